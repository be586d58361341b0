"""Finds the progress of the training loop: its total number of steps, its epoch and its number of epochs.

Trainers report all three (`trainers`), DistributedSampler gets the epoch, and tqdm's bars show them. A total that the
script itself reports with `ddpmon.step(total=…)` takes precedence; `script_notes` handles it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ddpmon.messages import MAX_STEP
from ddpmon.probe.progress_bars import Bars


class Progress(NamedTuple):
    """Progress of a training loop; None where unknown."""

    total: int | None = None
    """Number of steps of this process, from its first to its last."""
    epoch: int | None = None
    """Current epoch, counted from 1."""
    epochs: int | None = None


class Loops:
    """Combines progress from trainers, samplers and bars.

    The training thread writes and the background thread reads: values are replaced, never changed.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        """Start without progress. note: called with a message if progress bars cannot be read."""
        self._note = note
        self.trainer: Callable[[], Progress] | None = None
        """Returns the latest progress that Hugging Face's or Lightning's trainer reported."""
        self._sampler: tuple[int, float] | None = None
        """Last epoch that was set on a sampler, and the Unix time at which it was set."""
        self._counts_from = 0
        self._bars = Bars()
        self._resumed = False
        """True if the first epoch that a sampler was given was above 1, as in a resumed run."""
        self._ahead: int | None = None
        """In a resumed run: the samplers' epoch minus the bars' epoch, from the moment when both were first known."""
        self._bars_fail = False

    def join_late(self) -> None:
        """Expect loops that began before steps were counted."""
        self._bars = Bars(join_late=True)

    def set_epoch(self, epoch: object) -> None:
        """Handle DistributedSampler.set_epoch, which a loop calls when an epoch begins."""
        if isinstance(epoch, int) and 0 <= epoch < MAX_STEP - 1:
            if self._sampler is None:
                self._counts_from = int(epoch == 1)  # Some loops count from one; few are resumed in their second epoch.
                self._resumed = epoch > 1
            self._sampler = epoch, time.time()

    def progress(self, step: int, at: float) -> Progress:
        """Return the current progress.

        Args:
            step: Number of finished steps.
            at: Time in seconds of any clock.

        """
        trainer = self.trainer
        said = trainer() if trainer is not None else Progress()
        sampler = self._sampler
        bars = self._bars
        if said.total is None and not self._bars_fail:
            try:
                bars.read_all(step, at, sampler[1] if sampler else None)
            except Exception as error:
                self._bars_fail = True  # The script may use a subclass that differs from tqdm's bars.
                self._note(f"ddpmon could not read the progress bars ({type(error).__name__}), and no longer tries")
                self._bars = bars = Bars()
        total = said.total or bars.total
        epoch, epochs = (said.epoch, said.epochs) if said.epoch is not None else self._epoch(bars, sampler)
        return Progress(total if total is not None and step <= total < MAX_STEP else None, *_possible(epoch, epochs))

    def _epoch(self, bars: Bars, sampler: tuple[int, float] | None) -> tuple[int | None, int | None]:
        given = sampler[0] + 1 - self._counts_from if sampler is not None else None
        if bars.epoch is None:
            return given, None
        if given is not None and self._resumed and self._ahead is None:
            self._ahead = max(0, given - bars.epoch)
        ahead = self._ahead or 0
        return bars.epoch + ahead, None if bars.epochs is None else bars.epochs + ahead


def _possible(epoch: int | None, epochs: int | None) -> tuple[int | None, int | None]:
    """Return `epoch` and `epochs`; None for an impossible epoch, and for a number of epochs below the epoch."""
    if epoch is None or not 0 < epoch < MAX_STEP:
        return None, None
    return epoch, epochs if epochs is not None and epoch <= epochs < MAX_STEP else None
