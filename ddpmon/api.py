"""Functions by which a script may report to ddpmon. They do nothing where no probe is attached.

This module knows nobody: a probe that arms itself in this process attaches itself, and detaches when it leaves.
"""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Protocol, Self


class Probe(Protocol):
    """Receiver of a script's calls."""

    def log(self, values: dict[str, float]) -> None:
        """Take values of the current step."""

    def enter_step(self, samples: int | None, total: int | None) -> None:
        """A step that the script marks itself begins."""

    def exit_step(self) -> None:
        """A step that the script marks itself ends."""

    def enter_phase(self, name: str) -> None:
        """Enter a named part of the script: time also belongs to it from now on."""

    def exit_phase(self, name: str) -> None:
        """Time no longer belongs to that name."""


_probe: Probe | None = None


def attach(probe: Probe) -> None:
    """Give the script's calls to `probe` from now on, in the place of any other."""
    global _probe
    _probe = probe


def detach() -> None:
    """Ignore the script's calls from now on."""
    global _probe
    _probe = None


def attached() -> bool:
    """Return whether somebody does."""
    return _probe is not None


def log(**values: float) -> None:
    """Show values of this step under their own names: `ddpmon.log(loss=0.3, accuracy=0.91)`."""
    if _probe is not None:
        _probe.log(values)


_flops_at = 0.0
"""When the last call of `flops` was, in seconds of the monotonic clock."""


def flops(step: float, peak: float) -> None:
    """Show the model FLOPs utilization of this rank as `mfu`: call it once in each step, at the same place.

    The first call only starts the clock. Time between two calls counts, also that of an evaluation between them.

    Args:
        step: Floating-point operations of this rank's model in a step, forward and backward.
        peak: Floating-point operations that its device can do in a second, such as 312e12.

    """
    global _flops_at
    if _probe is None:
        return
    before, _flops_at = _flops_at, time.monotonic()
    if not before:
        return
    try:
        used = step / (_flops_at - before) / peak
    except (ArithmeticError, TypeError):
        used = math.nan
    _probe.log({"mfu": used})


def counts_flops() -> bool:
    """Return whether the script calls `flops`."""
    return _flops_at > 0


class step:  # noqa: N801  reads as a statement: with ddpmon.step(samples=64):
    """Mark one step of a loop: `with ddpmon.step(samples=64, total=5000):`.

    samples: how many samples this rank handles in it, where the first dimension of the batch does not tell.
    total: how many steps this run will have, without those before a checkpoint that it goes on from, so that the
        dashboard can tell how long it still takes.
    """

    __slots__ = ("samples", "total")

    def __init__(self, samples: int | None = None, total: int | None = None) -> None:
        self.samples = samples
        self.total = total

    def __enter__(self) -> Self:
        if _probe is not None:
            _probe.enter_step(self.samples, self.total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _probe is not None:
            _probe.exit_step()


class phase:  # noqa: N801  reads as a statement: with ddpmon.phase("augment"):
    """Name part of a step: `with ddpmon.phase("augment"):`.

    Each rank's mean time in it is shown beside its peers', and a finding about a straggler names where it loses its
    time. Names nest, and the outer one's time holds the inner one's; time blocked in a synchronisation belongs to none.
    Only the training thread is heard: not DataLoader workers, not threads of the script.

    name: 1 to 64 printable characters, the same in every step; at most 16 names a step are kept.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        if _probe is not None:
            _probe.enter_phase(self.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _probe is not None:
            _probe.exit_phase(self.name)
