"""What a script says itself: values that it logs, where its steps begin and end, names for parts of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

import torch

from ddpmon.messages import MAX_NAME, MAX_NAMES

if TYPE_CHECKING:
    from ddpmon.probe.cuda import Readings
    from ddpmon.probe.identity import Identity
    from ddpmon.probe.iteration import Iteration
    from ddpmon.probe.stepclock import StepClock


class Said(ABC):
    """The part of a listener that `ddpmon.log`, `ddpmon.step` and `ddpmon.phase` speak to."""

    identity: Identity
    clock: StepClock
    iteration: Iteration
    readings: Readings
    scalars: deque[tuple[int, str, object]]
    total_steps: int | None
    beats: int
    begun: bool
    marked: bool
    marked_step: int

    @abstractmethod
    def hears(self) -> bool:
        """Whether this call is on the training thread of a process that is watched."""

    @abstractmethod
    def start(self) -> None:
        """This process is a rank."""

    @abstractmethod
    def begin_first_step(self) -> None:
        """The first step begins now, if none has ended."""

    @abstractmethod
    def first_step_done(self) -> None:
        """A step may just have ended: the first one tells that the rank trains."""

    def log(self, values: dict[str, float]) -> None:
        self.beats += 1
        step = self.marked_step or self.clock.step + 1
        for name, value in values.items():
            reading: object = (
                self.readings.read(value) if isinstance(value, torch.Tensor) and value.is_cuda else float(value)
            )
            self.scalars.append((step, name, reading))

    def enter_step(self, samples: int | None, total: int | None) -> None:
        if self.hears():
            self.marked = True
            self.marked_step = self.clock.step + 1
            self.clock.marked_samples = samples
            if not self.begun:
                self.begun = True
                self.begin_first_step()
            if total is not None:
                self.total_steps = total

    def exit_step(self) -> None:
        """A marked step ends with its last gradient synchronisation; without any, here."""
        if self.hears():
            self.marked_step = 0
            self.start()
            if not self.clock.held:
                self.clock.cut(self.clock.leave())
            self.iteration.marked()
            self.first_step_done()

    def enter_phase(self, name: str) -> None:
        if self.hears():
            if isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable():
                self.clock.enter_named(name)
            else:
                self.identity.note(f"ddpmon.phase takes names of 1 to {MAX_NAME} printable characters; one was not")

    def exit_phase(self, name: str) -> None:
        if self.hears() and isinstance(name, str) and not self.clock.exit_named(name):
            self.identity.note(f"more than {MAX_NAMES} names of ddpmon.phase in a step: the rest is left out")
