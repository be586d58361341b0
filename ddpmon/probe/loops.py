"""The training loop as a whole: how many steps it will have, and which epoch of how many it is in.

Trainers report it (`trainers`), DistributedSampler is given the epoch, tqdm's bars show it. What the script
says itself, with `ddpmon.step(total=…)`, is not here: it goes before all of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ddpmon.messages import MAX_STEP
from ddpmon.probe.bars import Bars


class Progress(NamedTuple):
    """Progress of a training loop and its end; None: unknown."""

    total: int | None = None
    """Steps of this process, from its first to its last."""
    epoch: int | None = None
    """The one that runs, counted from 1."""
    epochs: int | None = None


class Loops:
    """Gathers progress from trainers, samplers and bars.

    The training thread writes, the sending thread reads; what was written is replaced, never changed.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        """note: takes a line on what could not be read."""
        self._note = note
        self.trainer: Callable[[], Progress] | None = None
        """Returns the last progress that Hugging Face's or Lightning's trainer reported."""
        self._sampler: tuple[int, float] | None = None
        """Epoch that a sampler was last given, and when: Unix time."""
        self._counts_from = 0
        self._bars = Bars()
        self._resumed = False
        """True if the first epoch that a sampler was given was a late one."""
        self._ahead: int | None = None
        """Epochs by which the samplers' count of a resumed run was ahead of the bars' at first."""
        self._bars_fail = False

    def join_late(self) -> None:
        """Expect loops that began before steps were counted."""
        self._bars = Bars(join_late=True)

    def set_epoch(self, epoch: object) -> None:
        """DistributedSampler.set_epoch: what a loop calls when an epoch begins."""
        if isinstance(epoch, int) and 0 <= epoch < MAX_STEP - 1:
            if self._sampler is None:
                self._counts_from = int(epoch == 1)  # some loops count from one; fewer are resumed in their second
                self._resumed = epoch > 1
            self._sampler = epoch, time.time()

    def progress(self, step: int, at: float) -> Progress:
        """The progress at this moment. step: finished so far. at: seconds of any clock."""
        trainer = self.trainer
        said = trainer() if trainer is not None else Progress()
        sampler = self._sampler
        bars = self._bars
        if said.total is None and not self._bars_fail:
            try:
                bars.follow(step, at, sampler[1] if sampler else None)
            except Exception as error:
                self._bars_fail = True  # a class of the script's own may be quite unlike tqdm's
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
    """The same, without an epoch that is none, and without a number of epochs that is already passed."""
    if epoch is None or not 0 < epoch < MAX_STEP:
        return None, None
    return epoch, epochs if epochs is not None and epoch <= epochs < MAX_STEP else None
