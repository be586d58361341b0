"""Memory of GPUs grows and grows."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.growth import KEPT, growing, growth_finding
from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.words import GIB
from ddpmon.messages import DeviceMark, Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield one finding about all ranks whose GPU's memory grows, by torch's own count where it has one."""
    counts = any(one.gpu_reserved_bytes for one in moment.evidence.memory)
    grown = growing(moment, "gpu_reserved_bytes" if counts else "gpu_used_bytes")
    if not grown:
        return
    first = grown[0].memory
    left = first.gpu_total_bytes - (first.gpu_used_bytes or 0) if first.gpu_total_bytes else None
    in_tensors = first.gpu_allocated_bytes
    advice = KEPT if in_tensors is None else f"{KEPT}; {in_tensors / GIB:.1f} GiB of it are in tensors"
    yield growth_finding(
        moment, KIND, grown, grown[:1], left, lead=f"rank {first.rank}'s GPU memory grows", advice=advice
    )


KIND = Kind(
    "gpu_memory_growth",
    gone="GPU memory no longer grows",
    detect=detect,
    device=DeviceMark("GPU memory grows", ["gpu_memory", "gpu_reserved"], 2),
)
