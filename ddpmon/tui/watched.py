"""Selects the run that the dashboard shows: the one that it was opened on, or another of the same machine."""

from __future__ import annotations

import enum
from functools import partial

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.runs import Run
from ddpmon.source import Source
from ddpmon.source.place import Place
from ddpmon.source.run_list import Listed
from ddpmon.tui.daemon_thread import on_daemon_thread
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import plain
from ddpmon.tui.playback import Playback


class Outcome(enum.Enum):
    """Way in which the dashboard was left."""

    DETACHED = "detached"
    """The run goes on, as far as this viewer knows."""
    STOPPING = "stopping"
    """A stop was asked for from here; the run had not ended yet."""
    ENDED = "ended"
    """The run was over by then."""


class Watched:
    """The run that is shown, and what was asked of it and of the others."""

    def __init__(self, source: Source, place: Place) -> None:
        """source: given by the caller, who closes it; another one, opened here, is closed here."""
        self.place = place
        self.playback = Playback(source)
        self._first = source
        self._id = ""
        """Id of the run that is shown; empty: the one given by the caller."""
        self.opening: Run | None = None
        """Run that is being opened, while the one before it is still shown."""
        self._stopping: set[str] = set()
        """Runs that were asked to stop, named as `_name` does."""

    def _name(self, other: Run | None) -> str:
        """Return how a run is named where it matters which one was given by the caller; None: the one that is shown."""
        if other is None:
            return self._id
        first = self._first.snapshot()
        return "" if first is not None and first.run.id == other.id else other.id

    async def open(self, run: Run) -> bool:
        """Show a run from now on, once it was read on another thread; False: meanwhile another one was asked for.

        Raises:
            DdpmonError: it cannot be shown; nothing changed.

        """
        name = self._name(run)
        self.opening = run
        try:
            opened = await on_daemon_thread(partial(self.place.attach, run)) if name else self._first
            if self.opening is not run:
                opened.close()
                return False
        finally:
            if self.opening is run:
                self.opening = None
        self.close()
        self._id = name
        self.playback.switch_source(opened)
        return True

    def close(self) -> None:
        """Let go of what was opened here."""
        if not self.is_first:
            self.playback.source.close()

    @property
    def is_first(self) -> bool:
        """Return whether the run that the dashboard was opened on is shown."""
        return self.playback.source is self._first

    def shows(self, run: Run) -> bool:
        """Return whether it is this run that is shown."""
        return self.playback.newest is not None and self.playback.newest.run.id == run.id

    def other(self, listed: Listed | None) -> Run | None:
        """The run of a line of the Runs screen, if it is not the one that is shown."""
        return None if listed is None or self.shows(listed.run) else listed.run

    @property
    def name(self) -> str:
        """Return how the run is called in questions."""
        newest = self.playback.newest
        return "the run" if newest is None else plain(newest.run.name) or "the run"

    @property
    def run(self) -> Run | None:
        """The run that is shown, where it is one of this machine."""
        newest = self.playback.newest
        if newest is None or self.place.name:
            return None
        try:
            return runs.load(newest.run.id)
        except DdpmonError:  # a recording that is replayed
            return None

    @property
    def ended(self) -> bool:
        """Return whether the run has ended."""
        return Frame(self.playback.newest).ended

    @property
    def grace_left_s(self) -> float | None:
        """Return how long its ranks may still take to end; None if its hub reported no stop that is under way."""
        newest = self.playback.newest
        if newest is None or newest.run.kill_at is None:
            return None
        return max(0.0, newest.run.kill_at - newest.at)

    def stop(self, other: Run | None, *, now: bool) -> None:
        """Ask a run to stop: another one, or (None) the one that is shown.

        Raises:
            DdpmonError: it cannot be asked.

        """
        if other is None:
            self.playback.source.stop(now)
        else:
            self.place.stop(other, now)
        self._stopping.add(self._name(other))

    def stop_asked(self, other: Run | None = None) -> bool:
        """Return whether a run was asked to stop, from here or from anywhere."""
        if self._name(other) in self._stopping:
            return True
        return self.grace_left_s is not None if other is None else other.stopping

    @property
    def notice(self) -> str:
        """Return what stands in the key bar while nothing else does; "": nothing."""
        held, newest = self.playback.held, self.playback.newest
        if self.opening is not None:
            return f"opening {plain(self.opening.name)}…"
        if self.ended:
            unseen = held is not None and held is not newest and not self.playback.plays
            return "the run has ended; press space to see how" if unseen else ""
        if not self.stop_asked():
            return ""
        left_s = self.grace_left_s
        return f"stopping…{'' if left_s is None else f' {left_s:.0f} s left'}  x kills it now   q leaves"

    @property
    def outcome(self) -> Outcome:
        """Return how the dashboard was left, as to the run that it was opened on."""
        if Frame(self._first.snapshot()).ended:
            return Outcome.ENDED
        return Outcome.STOPPING if "" in self._stopping else Outcome.DETACHED
