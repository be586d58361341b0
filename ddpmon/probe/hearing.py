"""The training thread of this process: which one it is, whether the probe listens, its notes, models and account.

The base of every part of the probe that listens to the training thread or reads its notes.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from typing import Any

from ddpmon import api
from ddpmon.probe import updates
from ddpmon.probe.account import EVERY_STEP, Account
from ddpmon.probe.cuda import Events, Readings
from ddpmon.probe.identity import Identity
from ddpmon.probe.journal import Journal, Note
from ddpmon.probe.loss import Loss
from ddpmon.probe.parallelism import Parallelism, in_backward
from ddpmon.probe.records import DeviceEvent
from ddpmon.probe.replica import Replica, Replicas

Reader = Callable[[Account, Any, Any, Any], object]


class Pen:
    """Everything that the calls of every step look up, in one object: caches are cold then."""

    __slots__ = (
        "before_forward",
        "depth",
        "events",
        "expecting",
        "fetching",
        "loss",
        "mark",
        "note",
        "optimizers",
        "thread",
        "unreduced",
        "updates",
    )

    def begin(self, note: Callable[[Note], None], loss: Loss) -> None:
        """Start from nothing: a new process."""
        self.thread: int | None = threading.main_thread().ident
        """The thread that the probe listens to; 0: none any more."""
        self.write_with(note)
        self.loss = loss
        """Reads the loss."""
        self.fetching = 0
        """The id of the iterator that was fetched from last."""
        self.before_forward = False
        """Whether there is work before a forward other than its digest."""
        self.depth = 0
        """How many backward calls are inside of each other."""
        self.expecting: list[Replica] = []
        """Models whose next backward reduces gradients."""
        self.unreduced = False
        """Whether a backward since the last optimizer step left gradients that no reducer was prepared for."""
        self.updates = updates.private()
        """Counts updates of models, in memory that the hub reads once this process was killed."""
        self.optimizers: dict[int, str] = {}
        """Those that live, by their id: a name for what each updates, "" before its first step."""

    def write_with(self, note: Callable[[Note], None], events: Events | None = None) -> None:
        """note: takes notes from now on. events: of the GPU's timeline, where one is followed."""
        self.note = note
        """Takes a note of the training thread's; see `journal`."""
        self.events = events
        """The events of the GPU's timeline, where there is one."""
        self.mark = note if events is None else _with_event(note, events)
        """The same, of a moment that is wanted on the GPU's timeline too."""


def _with_event(note: Callable[[Note], None], events: Events) -> Callable[[Note], None]:
    def mark(noted: Note) -> None:
        reader, now, _, *rest = noted
        note((reader, now, events.event(), *rest))

    return mark


class Hearing:
    """Hears the training thread, until something in the probe fails."""

    def __init__(self) -> None:
        self.pen = Pen()

    def begin(self, identity: Identity) -> None:
        """Start from nothing: a new process."""
        self.identity = identity
        self.thread = threading.main_thread().ident
        """The training thread: the one that set up the process group or wrapped a model."""
        self.native_thread = threading.main_thread().native_id
        self.replicas = Replicas()
        self.parallelism = Parallelism()
        self.journal = Journal(self._release)
        self.readings = Readings()
        self.account = Account(identity, self.parallelism, self.journal)
        self.journal.account = self.account
        self.journal.every_step = EVERY_STEP
        self.clock = self.account.clock
        # Last: in a process that was forked the collector may run, and note so, between any two of these lines.
        self.pen.begin(self.journal.note, Loss(self.readings))

    def defer(self) -> None:
        """Another thread will read the notes from now on."""
        self.journal.defer()
        self.pen.write_with(self.journal.note, self.pen.events)

    @property
    def listening(self) -> bool:
        """Whether this process is watched."""
        return self.pen.thread != 0

    def hears(self) -> bool:
        """Whether this call is on the training thread of a process that is watched."""
        return get_ident() == self.pen.thread

    def hears_collective(self) -> bool:
        """The same for a collective: inside backward, autograd calls it on a thread of its own for each GPU."""
        if not self.listening:
            return False
        if get_ident() == self.thread:
            return True
        return self.pen.depth > 0 and in_backward()

    def tell(self, reader: Reader, first: Any = None, second: Any = None) -> None:
        """Note something that happens now."""
        self.pen.mark((reader, monotonic_ns(), None, first, second, None))

    def leave(self, error: BaseException) -> None:
        """Something in the probe went wrong: say so once, and stop listening. Training goes on."""
        if not self.listening:
            return
        self.pen.thread = 0
        api.detach()
        with contextlib.suppress(Exception):  # whatever the script has put there, or a full disk
            print(
                f"ddpmon: the probe failed ({type(error).__name__}: {error}) and has left this process; "
                "training goes on unwatched",
                file=sys.stderr,
            )

    def _release(self, event: DeviceEvent) -> None:
        if self.pen.events is not None:
            self.pen.events.free(event)

    def _on_training_thread(self) -> None:
        self.thread = get_ident()
        if self.listening:
            self.pen.thread = self.thread
        self.native_thread = threading.get_native_id()
