"""Memory of ranks, or of their DataLoader workers, grows and grows."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.growth import KEPT, growing, growth_finding
from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.messages import DeviceMark, Finding

COPIED = (
    "A worker copies the memory of the dataset's Python objects piece by piece, as reading one changes its reference"
    " count (copy-on-write). Hold them in numpy arrays, tensors or Arrow tables instead of lists and dicts, and look"
    " for what the dataset keeps of each sample; fewer workers make fewer copies"
)


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield one finding about all ranks whose memory grows. It names the rank, or its workers, that grow fastest."""
    grown = growing(moment, "rss_bytes", "worker_bytes")
    if not grown:
        return
    host, rank = grown[0].memory.host, grown[0].memory.rank
    there = [one for one in grown if one.memory.host == host]
    left = min((one.left_bytes for one in moment.evidence.memory if one.host == host and one.left_bytes), default=None)
    if grown[0].name == "worker_bytes":
        lead, advice = f"rank {rank}'s DataLoader workers grow", COPIED
    else:
        lead, advice = f"rank {rank}'s memory grows", f"{KEPT}, caches of a dataset"
    yield growth_finding(moment, KIND, grown, there, left, lead=lead, advice=advice)


KIND = Kind(
    "memory_growth",
    gone="memory no longer grows",
    detect=detect,
    device=DeviceMark("memory grows", ["rss", "worker_memory"], 1),
)
