"""State of the listener: the training thread, whether the probe listens to it, its notes, its models and its account.

`ThreadListener` is the base of every part of the probe that listens to the training thread.
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
from ddpmon.probe import update_counter
from ddpmon.probe.account import EVERY_STEP, Account
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.cuda import Events, Readings
from ddpmon.probe.identity import Identity
from ddpmon.probe.journal import Journal, Note
from ddpmon.probe.loss import Loss
from ddpmon.probe.parallelism import Parallelism, in_backward
from ddpmon.probe.records import DeviceEvent
from ddpmon.probe.replica import Replica, Replicas
from ddpmon.probe.undo import Changes

FINISHED_THREAD_S = 5.0
"""Seconds without a note after which another thread may become the training thread."""
Reader = Callable[[Account, Any, Any, Any], object]


@dataclass(slots=True)
class HotPathState:
    """State that the hooks of every step use, in one object, because CPU caches are cold in these hooks."""

    note: Callable[[Note], None]
    """Adds a note of the training thread; see `journal`."""
    loss: Loss
    """Reads the loss."""
    mark: Callable[[Note], None]
    """Adds a note whose time is also marked on the GPU's timeline."""
    events: Events | None = None
    """Pool of events on the GPU's timeline, if there is one."""
    thread: int | None = field(default_factory=lambda: threading.main_thread().ident)
    """Id of the thread that the probe listens to; 0 once the probe has stopped listening."""
    fetching: int = 0
    """Id of the iterator that was fetched from last."""
    before_forward: bool = False
    """True if every forward needs extra work before it begins: for buckets, or for a GPU's timeline."""
    depth: int = 0
    """Number of nested backward calls."""
    expecting: list[Replica] = field(default_factory=list)
    """Models whose next backward reduces gradients."""
    expects_inside: bool = False
    """True if a reducer was prepared inside the current backward, for a nested backward."""
    inner: list[int] = field(default_factory=list)
    """Depths of the nested backward calls whose start was noted."""
    reduced_inside: bool = False
    """True if one of the nested backward calls reduced gradients."""
    unreduced: bool = False
    """True if a backward since the last optimizer step left gradients that no reducer was prepared for."""
    updates: update_counter.Counters = field(default_factory=update_counter.private)
    """Counters of model updates, in memory that the hub can read after this process was killed."""
    optimizers: dict[int, str] = field(default_factory=dict)
    """Living optimizers by id, with a name for the parameters of each; "" before its first step."""
    start: CommonStart | None = None
    """Agreement on the first counted step; set while an attached process does not count steps yet."""
    tells: bool = False
    """True if this rank must publish where steps end, because ranks on other machines count as it does."""
    rates: dict[int, float] = field(default_factory=dict)
    """Learning rate of each optimizer, by its id."""

    def write_with(self, note: Callable[[Note], None], events: Events | None = None) -> None:
        """Write notes with `note` from now on. events: pool of device events, if the GPU's timeline is used."""
        self.note = note
        self.events = events
        self.mark = note if events is None else _with_event(note, events)


def _with_event(note: Callable[[Note], None], events: Events) -> Callable[[Note], None]:
    def mark(noted: Note) -> None:
        reader, now, _, *rest = noted
        note((reader, now, events.event(), *rest))

    return mark


class ThreadListener:
    """Listens to the training thread, until something in the probe fails."""

    def __init__(self) -> None:
        self.hot = HotPathState.__new__(HotPathState)
        """Never replaced, because the wrappers around torch's functions refer to it, also in forked processes."""
        self.changes = Changes()
        """Changes that the probe made to this process."""
        self.on_set_up: list[Callable[[], None]] = []
        """Functions to call when a model, optimizer or group was made. By then, the training libraries are imported."""

    def digest_soon(self) -> None:
        """Compare the ranks' digests soon, because something has changed, perhaps only on some ranks."""

    def reset(self, identity: Identity) -> None:
        """Reset all state, as in a new process."""
        self.identity = identity
        self.thread = threading.main_thread().ident
        """The training thread: the one that wraps the model, runs its forward or steps its optimizer."""
        self.native_thread: int | None = os.getpid()
        """Kernel id of the training thread. After a fork, `thread` is still that of the parent's main thread."""
        self._rival: tuple[int, int, float] = 0, -1, 0.0
        """The last other thread that claimed to train; the value of `beats` and the time in seconds at its claim."""
        self.replicas = Replicas()
        self.parallelism = Parallelism()
        self.journal = Journal(self._release)
        self.readings = Readings()
        self.account = Account(identity, self.parallelism, self.journal)
        self.journal.account = self.account
        self.journal.every_step = EVERY_STEP
        self.clock = self.account.clock
        # Do this last: in a forked process, the garbage collector may run and write a note after any line above.
        HotPathState.__init__(self.hot, self.journal.note, Loss(self.readings), self.journal.note)

    def defer(self) -> None:
        """Queue notes from now on, for another thread to read."""
        self.journal.defer()
        self.hot.write_with(self.journal.note, self.hot.events)

    def hold(self) -> None:
        """Hold notes back from now on. Called by the training thread."""
        self.journal.hold_notes()
        self.hot.write_with(self.journal.note, self.hot.events)

    @property
    def listening(self) -> bool:
        """Return whether this process is watched."""
        return self.hot.thread != 0

    def on_training_thread(self) -> bool:
        """Return whether this call is on the training thread of a watched process."""
        return get_ident() == self.hot.thread

    def hears_in_backward(self) -> bool:
        """Return whether the calling thread is an autograd thread (one per GPU) in the training thread's backward."""
        return self.listening and self.hot.depth > 0 and in_backward()

    # --- which thread it is ------------------------------------------------------------------------------------

    @property
    def has_trained(self) -> bool:
        """Return whether the training thread has trained."""
        hot = self.hot
        return bool(hot.expecting or hot.unreduced or any(list(hot.optimizers.values())) or self.account.clock.step)

    def trains_here(self) -> bool:
        """Return whether the calling thread, which runs a model, becomes the training thread."""
        return is_grad_enabled() and self.claims_thread()

    def claims_thread(self, *, trains: bool = True) -> bool:
        """Return whether the calling thread becomes the training thread.

        The calling thread does, unless the current training thread has trained, is alive and still writes notes.
        Threads of autograd never become the training thread.

        trains: True if the caller steps an optimizer or runs a model; False if it sets up what training needs.
        """
        try:
            if not self.listening or in_backward() or (self.has_trained and self._goes_on(trains=trains)):
                return False
            self._adopt_thread()
        except Exception as error:
            self.disable(error)
        return self.listening

    def _goes_on(self, *, trains: bool) -> bool:
        """Return whether the current training thread stays the training thread, although another thread calls."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        if self.thread not in names:
            return False
        me, beats, now = get_ident(), self.account.beats, time.monotonic()
        if self._rival[:2] != (me, beats):
            self._rival = me, beats, now
        if now - self._rival[2] > FINISHED_THREAD_S:
            return False
        if trains:
            self.identity.add_note(
                f"several threads train in this process; ddpmon watches {names[self.thread]}, but not {names.get(me)}"
            )
        return True

    def record(self, reader: Reader, first: Any = None, second: Any = None, third: Any = None) -> None:
        """Write a note with the current time."""
        self.hot.mark((reader, monotonic_ns(), None, first, second, third))

    def noting(self, reader: Reader, first: Any = None) -> Callable[..., None]:
        """Return a hook that writes a note for `reader` whenever it is called."""
        return lambda *_: self.record(reader, first)

    def disable(self, error: BaseException) -> None:
        """Stop listening because of an error in the probe, and print the error once. Training continues."""
        if not self.listening:
            return
        self.hot.thread = 0
        api.detach()
        with contextlib.suppress(Exception):  # The script may have replaced stderr, or the disk may be full.
            print(
                f"ddpmon: the probe failed ({type(error).__name__}: {error}) and has removed itself; "
                "training continues, but ddpmon does not watch this rank",
                file=sys.stderr,
            )

    def _release(self, event: DeviceEvent) -> None:
        if self.hot.events is not None:
            self.hot.events.recycle_event(event)

    def _adopt_thread(self) -> None:
        """Make the calling thread the training thread."""
        if self.thread != get_ident():
            self.thread = get_ident()
            self.native_thread = threading.get_native_id()
            self.hot.depth = 0  # The old value counted backward calls of the earlier thread.
            if self.listening:
                self.hot.thread = self.thread
