"""Keeps the training thread's notes in order until the background thread reads them.

A note costs the training thread one clock reading and one `append` to a deque, which is atomic. The background thread
interprets many notes at once, with warm caches. Until such a thread runs, each note is read as it is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

from ddpmon.probe.records import DeviceEvent

Note = tuple[Any, int, DeviceEvent | None, Any, Any, Any]
"""A note: its reader (or the reader's index in `Journal.every_step`), its time (CLOCK_MONOTONIC nanoseconds), an event
on the device's timeline or None, and three arguments for the reader.
"""
Release = Callable[[DeviceEvent], None]


class Journal:
    """Queue of notes from the training thread to an account that interprets them.

    Readers also get the time and the device event of the note from the queue: those of the moment of writing.
    """

    def __init__(self, release: Release) -> None:
        """Create an empty queue. release: called with the device event of a note if its reader did not use it."""
        self.account: Any = None
        """First argument of each note's reader."""
        self.now = monotonic_ns()
        """Time of the note that is being read."""
        self.note: Callable[[Note], None] = self._read_at_once
        """Adds a note."""
        self.every_step: Sequence[Callable[..., object]] = ()
        """Readers to which notes refer by index."""
        self._waiting: deque[Any] = deque()
        self._held: deque[Any] | None = None
        """Notes that are not read before `release_notes` is called; None if no notes are held back."""
        self._release = release
        self._event: DeviceEvent | None = None
        self._used = False

    def current_note_ns(self) -> int:
        """Return the time of the note that is being read, in nanoseconds."""
        return self.now

    def event(self) -> DeviceEvent | None:
        """Return the event on the device's timeline that was recorded with the note that is being read."""
        self._used = True
        return self._event

    def defer(self) -> None:
        """Queue notes from now on, until another thread calls `read_notes`."""
        self.note = self._waiting.append

    def hold_notes(self) -> None:
        """Hold notes back from now on until `release_notes`. Called by the training thread."""
        self._held = deque()
        self.note = self._held.append

    @property
    def held_count(self) -> int:
        """Return the number of notes that are held back."""
        return 0 if self._held is None else len(self._held)

    def release_notes(self) -> None:
        """Queue the held notes for reading. Called by the reading thread once it has read all earlier notes."""
        if self._held is not None:
            self._waiting, self._held = self._held, None

    def read_notes(self, most: int) -> bool:
        """Read at most `most` notes; return whether there may be further notes."""
        waiting = self._waiting
        take = waiting.popleft
        account = self.account
        every_step = self.every_step
        count = min(most, len(waiting))
        for _ in range(count):
            reader, self.now, self._event, first, second, third = take()
            if type(reader) is int:
                reader = every_step[reader]
            if self._event is None:
                reader(account, first, second, third)
            else:
                self._used = False
                reader(account, first, second, third)
                self._release_unused()
        if count < most:
            self.now = max(self.now, monotonic_ns())
            self._event = None
        return count == most

    def _read_at_once(self, note: Note) -> None:
        """Read a note at once, while no other thread reads. A garbage collection meanwhile may add a second note."""
        outer = self._event, self._used
        reader, self.now, self._event, first, second, third = note
        if type(reader) is int:
            reader = self.every_step[reader]
        self._used = False
        reader(self.account, first, second, third)
        self._release_unused()
        self._event, self._used = outer

    def _release_unused(self) -> None:
        if self._event is not None and not self._used:
            self._release(self._event)
