"""The training thread of this process: which one it is, whether the probe listens, its notes, models and account.

The base of every part of the probe that listens to the training thread or reads its notes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from time import monotonic_ns
from typing import Any

from torch import is_grad_enabled

from ddpmon import api
from ddpmon.probe import updates
from ddpmon.probe.account import EVERY_STEP, Account
from ddpmon.probe.changes import Changes
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.cuda import Events, Readings
from ddpmon.probe.identity import Identity
from ddpmon.probe.journal import Journal, Note
from ddpmon.probe.loss import Loss
from ddpmon.probe.parallelism import Parallelism, in_backward
from ddpmon.probe.records import DeviceEvent
from ddpmon.probe.replica import Replica, Replicas

SILENT_S = 5.0
"""After so long without a note, a thread that trained counts as one that has finished training."""
Reader = Callable[[Account, Any, Any, Any], object]


@dataclass(slots=True)
class HotPathState:
    """Everything that the calls of every step look up, in one object: caches are cold then."""

    note: Callable[[Note], None]
    """Takes a note of the training thread's; see `journal`."""
    loss: Loss
    """Reads the loss."""
    mark: Callable[[Note], None]
    """Takes a note of a moment that is wanted on the GPU's timeline too."""
    events: Events | None = None
    """The events of the GPU's timeline, where there is one."""
    thread: int | None = field(default_factory=lambda: threading.main_thread().ident)
    """The thread that the probe listens to; 0: none any more."""
    fetching: int = 0
    """The id of the iterator that was fetched from last."""
    before_forward: bool = False
    """True if there is work before a forward other than its digest."""
    depth: int = 0
    """Number of backward calls inside each other."""
    expecting: list[Replica] = field(default_factory=list)
    """Models whose next backward reduces gradients."""
    expects_inside: bool = False
    """True if a model was prepared inside the backward that runs, for one inside of it."""
    inner: list[int] = field(default_factory=list)
    """The depths of backward calls inside another whose begin was noted."""
    reduced_inside: bool = False
    """True if one of them reduced gradients."""
    unreduced: bool = False
    """True if a backward since the last optimizer step left gradients that no reducer was prepared for."""
    updates: updates.Counters = field(default_factory=updates.private)
    """Counts updates of models, in memory that the hub reads once this process was killed."""
    optimizers: dict[int, str] = field(default_factory=dict)
    """Optimizers that live, by their id: a name for the parameters each updates, "" before its first step."""
    start: CommonStart | None = None
    """Steps do not count yet: the process trained before it was watched."""
    tells: bool = False
    """True if other machines count steps as this rank does, and learn from it where they end."""
    rates: dict[int, float] = field(default_factory=dict)
    """The learning rate of each."""

    def write_with(self, note: Callable[[Note], None], events: Events | None = None) -> None:
        """Hand notes to `note` from now on. events: of the GPU's timeline, where one is followed."""
        self.note = note
        self.events = events
        self.mark = note if events is None else _with_event(note, events)


def _with_event(note: Callable[[Note], None], events: Events) -> Callable[[Note], None]:
    def mark(noted: Note) -> None:
        reader, now, _, *rest = noted
        note((reader, now, events.event(), *rest))

    return mark


class ThreadListener:
    """Hears the training thread, until something in the probe fails."""

    def __init__(self) -> None:
        self.hot = HotPathState.__new__(HotPathState)
        """One object for good: the wrappers around torch's calls hold it, in processes that are forked too."""
        self.changes = Changes()
        """Of what was there in this process before the probe."""
        self.on_set_up: list[Callable[[], None]] = []
        """Called when something was made that a step needs: by now the script has imported what it trains with."""

    def digest_soon(self) -> None:
        """Have ranks compared soon: something changed, on some of them perhaps."""

    def reset(self, identity: Identity) -> None:
        """Start from nothing: a new process."""
        self.identity = identity
        self.thread = threading.main_thread().ident
        """The training thread: the one that wraps the model, runs its forward or steps its optimizer."""
        self.native_thread: int | None = os.getpid()
        """The same as the kernel counts it; Python has the parent's main thread there in a forked process."""
        self._rival: tuple[int, int, float] = 0, -1, 0.0
        """The thread that last wanted to be it instead, the beats heard by then, and since when there were no more."""
        self.replicas = Replicas()
        self.parallelism = Parallelism()
        self.journal = Journal(self._release)
        self.readings = Readings()
        self.account = Account(identity, self.parallelism, self.journal)
        self.journal.account = self.account
        self.journal.every_step = EVERY_STEP
        self.clock = self.account.clock
        # Last: in a process that was forked the collector may run, and note so, between any two of these lines.
        HotPathState.__init__(self.hot, self.journal.note, Loss(self.readings), self.journal.note)

    def defer(self) -> None:
        """Another thread will read the notes from now on."""
        self.journal.defer()
        self.hot.write_with(self.journal.note, self.hot.events)

    def hold(self) -> None:
        """Keep notes from being read from now on. Called by the training thread."""
        self.journal.hold()
        self.hot.write_with(self.journal.note, self.hot.events)

    @property
    def listening(self) -> bool:
        """Return whether this process is watched."""
        return self.hot.thread != 0

    def on_training_thread(self) -> bool:
        """Return whether this call is on the training thread of a process that is watched."""
        return get_ident() == self.hot.thread

    def hears_in_backward(self) -> bool:
        """Return whether this thread is one of autograd's, which has one a GPU, in the training thread's backward."""
        return self.listening and self.hot.depth > 0 and in_backward()

    # --- which thread it is ------------------------------------------------------------------------------------

    @property
    def has_trained(self) -> bool:
        """Return whether the training thread has trained."""
        hot = self.hot
        return bool(hot.expecting or hot.unreduced or any(list(hot.optimizers.values())) or self.account.clock.step)

    def trains_here(self) -> bool:
        """Another thread runs a model: return whether it is the training thread now."""
        return is_grad_enabled() and self.claims_thread()

    def claims_thread(self, *, trains: bool = True) -> bool:
        """Return whether the calling thread becomes the training thread.

        It does unless the one so far has trained and still lives and is heard. Autograd's own threads never do.
        trains: it steps an optimizer or runs a model; else it sets up what training needs.
        """
        try:
            if not self.listening or in_backward() or (self.has_trained and self._goes_on(trains=trains)):
                return False
            self._adopt_thread()
        except Exception as error:
            self.disable(error)
        return self.listening

    def _goes_on(self, *, trains: bool) -> bool:
        """Return whether the training thread so far is still the one to listen to, though another one calls."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        if self.thread not in names:
            return False
        me, beats, now = get_ident(), self.account.beats, time.monotonic()
        if self._rival[:2] != (me, beats):
            self._rival = me, beats, now
        if now - self._rival[2] > SILENT_S:
            return False
        if trains:
            self.identity.add_note(
                f"several threads train in this process; ddpmon watches {names[self.thread]}, but not {names.get(me)}"
            )
        return True

    def record(self, reader: Reader, first: Any = None, second: Any = None, third: Any = None) -> None:
        """Note something that happens now."""
        self.hot.mark((reader, monotonic_ns(), None, first, second, third))

    def noting(self, reader: Reader, first: Any = None) -> Callable[..., None]:
        """Return a hook that notes this whenever it is called."""
        return lambda *_: self.record(reader, first)

    def disable(self, error: BaseException) -> None:
        """Something in the probe went wrong: say so once, and stop listening. Training goes on."""
        if not self.listening:
            return
        self.hot.thread = 0
        api.detach()
        with contextlib.suppress(Exception):  # whatever the script has put there, or a full disk
            print(
                f"ddpmon: the probe failed ({type(error).__name__}: {error}) and has removed itself; "
                "training continues, but ddpmon does not watch this rank",
                file=sys.stderr,
            )

    def _release(self, event: DeviceEvent) -> None:
        if self.hot.events is not None:
            self.hot.events.free(event)

    def _adopt_thread(self) -> None:
        """The calling thread is the training thread."""
        if self.thread != get_ident():
            self.thread = get_ident()
            self.native_thread = threading.get_native_id()
            self.hot.depth = 0  # of calls that another thread was in
            if self.listening:
                self.hot.thread = self.thread
