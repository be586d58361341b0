"""Signs that a GPU is broken or idle in a hang, as its driver reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

IDLE_PERCENT, BUSY_PERCENT = 5.0, 90.0
"""Maximum utilization of an idle GPU, and minimum utilization of a GPU that waits in a collective (waiting keeps it
busy)."""
XIDS = {
    "Xid 48": "an ECC error that could not be corrected",
    "Xid 74": "an NVLink error",
    "Xid 79": "the GPU has fallen off the bus",
    "Xid 94": "an ECC error that ended one program",
    "Xid 95": "an ECC error that ends all programs on it",
    "Xid 119": "the GPU's firmware does not answer",
    "Xid 120": "its firmware failed",
}
"""Meanings of driver errors that occur in training, from NVIDIA's list of Xid errors."""
OF_PROGRAMS = frozenset({"Xid 13", "Xid 31", "Xid 43", "Xid 45"})
"""Errors of a program: the program accessed memory that is not its own, or the program or its kernel was stopped.

These errors say nothing about the state of the GPU. The driver reports them to all programs on the GPU: on an H200, a
failed assertion in one run appeared as Xid 43 in all other runs.
"""


@dataclass(frozen=True)
class GpuSigns:
    """Measurements of a rank's GPU while no rank progresses; None: not measured."""

    device: str
    """Name of the device in torch: "cuda:3"."""
    errors: tuple[str, ...] = ()
    """Critical errors that the driver reported."""
    percent: float | None = None
    """Utilization of the GPU in percent."""
    power_w: float | None = None

    @property
    def is_broken(self) -> bool:
        """Return whether the GPU has an error that no program caused."""
        return not OF_PROGRAMS.issuperset(self.errors)


def error_words(error: str) -> str:
    """Return a critical error with its meaning, as in "Xid 79 (the GPU has fallen off the bus)"."""
    return f"{error} ({XIDS[error]})" if error in XIDS else error


def named_gpu(rank: int, device: str) -> str:
    """Return a rank's GPU as the subject of a sentence: "GPU 3 (rank 3)"."""
    number = device.partition(":")[2]
    return f"GPU {number} (rank {rank})" if number else f"the GPU of rank {rank}"


def broken_gpus(gpus: Mapping[int, GpuSigns]) -> list[int]:
    """Return the ranks whose GPU is broken. If there are none, return the rank whose GPU is idle while all others are
    busy.
    """
    broken = sorted(rank for rank, signs in gpus.items() if signs.is_broken)
    load = {rank: signs.percent for rank, signs in gpus.items() if signs.percent is not None}
    idle = [rank for rank, percent in load.items() if percent <= IDLE_PERCENT]
    alone = len(idle) == 1 and len(load) > 1 and sorted(load.values())[1] >= BUSY_PERCENT
    return broken or (idle if alone else [])


def evidence_of(rank: int, gpus: Mapping[int, GpuSigns]) -> str:
    """Return the driver's data about a rank's GPU and the others: "Xid 79, 0% busy, 68 W (others 240 W)"."""
    signs = gpus.get(rank)
    if signs is None:
        return ""
    parts = [error for error in signs.errors if error not in OF_PROGRAMS][-2:]
    if signs.percent is not None:
        parts.append(f"{signs.percent:.0f}% busy")
    if signs.power_w is not None:
        others = [other.power_w for each, other in gpus.items() if each != rank and other.power_w is not None]
        parts.append(f"{signs.power_w:.0f} W" + (f" (others {median(others):.0f} W)" if others else ""))
    return ", ".join(parts)
