"""The driver has reported a critical error of a rank's GPU since the rank trains: an Xid, or an ECC error."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.gpus import OF_PROGRAMS, error_words
from ddpmon.messages import DeviceMark, Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield a finding for each rank whose GPU had an error; a hint where it is one of the program."""
    for rank, errors in sorted(moment.evidence.gpu_errors.items()):
        lead = f"the GPU of rank {rank} had a critical error:"
        words = Words(
            f"{lead} {', '.join(map(error_words, errors[-2:]))}",
            "The kernel log of its host (dmesg) says more. Errors of its memory, its bus or NVLink come back: train"
            " without that GPU until it has been reset or replaced.",
            lead=lead,
        )
        harmless = OF_PROGRAMS.issuperset(errors)
        yield KIND.finding("info" if harmless else "warn", words, [rank], evidence={"errors": list(errors)})


KIND = Kind("gpu_error", subject="rank", detect=detect, device=DeviceMark("GPU error", ["gpu"], 5))
