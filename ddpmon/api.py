"""Functions with which a script can report to ddpmon. They do nothing without a probe.

This module imports no other part of ddpmon: a probe in this process attaches itself, and detaches when it is removed.
"""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Protocol, Self


class Probe(Protocol):
    """Interface of the probe, which receives the script's calls to this module."""

    def log(self, values: dict[str, float]) -> None:
        """Record values of the current step."""

    def enter_step(self, samples: int | None, total: int | None) -> None:
        """Begin a step that the script marks itself."""

    def exit_step(self) -> None:
        """End a step that the script marks itself."""

    def enter_phase(self, name: str) -> None:
        """Enter a named part of the script: from now on, time is also counted for this name."""

    def exit_phase(self, name: str) -> None:
        """Stop counting time for this name."""


_probe: Probe | None = None


def attach(probe: Probe) -> None:
    """Forward the script's calls to `probe` from now on, instead of any earlier one."""
    global _probe
    _probe = probe


def detach() -> None:
    """Ignore the script's calls from now on."""
    global _probe
    _probe = None


def attached() -> bool:
    """Return whether a probe receives the script's calls."""
    return _probe is not None


def log(**values: float) -> None:
    """Show values of this step under their own names: `ddpmon.log(loss=0.3, accuracy=0.91)`."""
    if _probe is not None:
        _probe.log(values)


_flops_at = 0.0
"""When `flops` was last called, in seconds of the monotonic clock."""


def flops(step: float, peak: float) -> None:
    """Show the model FLOPs utilization of this rank as `mfu`: call it once in each step, at the same place.

    The first call only starts the clock. The whole time between two calls counts, including evaluations.

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

    Args:
        samples: Number of samples that this rank processes in the step, if it is not the first dimension of the batch.
        total: Number of steps that this run will have, without those before a checkpoint that it resumes from. The
            dashboard needs it to show the remaining time.

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

    Each rank's mean time in it is shown beside that of the other ranks, and a finding about a straggler names the part
    in which it loses its time. Names nest, and the outer one's time includes the inner one's; time blocked in a
    synchronisation counts for none. Only calls of the training thread count, not those of DataLoader workers or other
    threads of the script.

    Args:
        name: 1 to 64 printable characters, the same in every step; at most 16 names are recorded in a step.

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
