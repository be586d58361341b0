"""Selects the run that the dashboard shows: the one that it was opened on, or another on the same machine."""

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
from ddpmon.tui.lines import plain_text
from ddpmon.tui.playback import Playback


class Outcome(enum.Enum):
    """The run's state when the user left the dashboard."""

    DETACHED = "detached"
    """The run was still running, as far as this viewer knows."""
    STOPPING = "stopping"
    """The user had asked the run to stop, but it had not ended yet."""
    ENDED = "ended"
    """The run had ended."""


class Watched:
    """The run that is shown, and the runs that were asked to stop."""

    def __init__(self, source: Source, place: Place) -> None:
        """Show `source`, which the caller closes. Sources that `open` opens are closed by `close`."""
        self.place = place
        self.playback = Playback(source)
        self._first = source
        self._id = ""
        """Id of the run that is shown; "" for the caller's run."""
        self.opening: Run | None = None
        """The run that is being opened, while the previous one is still shown."""
        self._stopping: set[str] = set()
        """Ids of the runs that were asked to stop; "" stands for the caller's run."""

    def _name(self, other: Run | None) -> str:
        """Return the id of `other`, or of the shown run if `other` is None. Return "" for the caller's run."""
        if other is None:
            return self._id
        first = self._first.snapshot()
        return "" if first is not None and first.run.id == other.id else other.id

    async def open(self, run: Run) -> bool:
        """Open a run on another thread and show it; return False if another run was requested meanwhile.

        Raises:
            DdpmonError: The run cannot be shown; the previous one stays.

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
        """Close the source that `open` opened, if there is one."""
        if not self.is_first:
            self.playback.source.close()

    @property
    def is_first(self) -> bool:
        """Return whether the dashboard shows the run that it was opened on."""
        return self.playback.source is self._first

    def is_shown(self, run: Run) -> bool:
        """Return whether this run is the one that is shown."""
        return self.playback.newest is not None and self.playback.newest.run.id == run.id

    def other_run(self, listed: Listed | None) -> Run | None:
        """Return the run in a row of the Runs screen, or None if that run is already shown."""
        return None if listed is None or self.is_shown(listed.run) else listed.run

    @property
    def name(self) -> str:
        """Return the shown run's name for messages."""
        newest = self.playback.newest
        return "the run" if newest is None else plain_text(newest.run.name) or "the run"

    @property
    def run(self) -> Run | None:
        """Return the run that is shown; None if the run is not on this machine."""
        newest = self.playback.newest
        if newest is None or self.place.name:
            return None
        try:
            return runs.load(newest.run.id)
        except DdpmonError:  # the recording of a run that is not here is being replayed
            return None

    @property
    def ended(self) -> bool:
        """Return whether the run has ended."""
        return Frame(self.playback.newest).ended

    @property
    def grace_left_s(self) -> float | None:
        """Return the seconds that are left of the grace period; None if the hub has reported no stop under way."""
        newest = self.playback.newest
        if newest is None or newest.run.kill_at is None:
            return None
        return max(0.0, newest.run.kill_at - newest.at)

    def stop(self, other: Run | None, *, now: bool) -> None:
        """Ask a run to stop; None is the run that is shown.

        Raises:
            DdpmonError: The run cannot be asked to stop.

        """
        if other is None:
            self.playback.source.stop(now)
        else:
            self.place.stop(other, now)
        self._stopping.add(self._name(other))

    def stop_asked(self, other: Run | None = None) -> bool:
        """Return whether a run was asked to stop, by this dashboard or by another process."""
        if self._name(other) in self._stopping:
            return True
        return self.grace_left_s is not None if other is None else other.stopping

    @property
    def notice(self) -> str:
        """Return the message that the key bar shows if there is no other message; "" if there is none at all."""
        held, newest = self.playback.held, self.playback.newest
        if self.opening is not None:
            return f"opening {plain_text(self.opening.name)}…"
        if self.ended:
            unseen = held is not None and held is not newest and not self.playback.is_recording
            return "the run has ended; press space to see how" if unseen else ""
        if not self.stop_asked():
            return ""
        left_s = self.grace_left_s
        return f"stopping…{'' if left_s is None else f' {left_s:.0f} s left'}  x kills it now   q leaves"

    @property
    def outcome(self) -> Outcome:
        """Return whether the run on which the dashboard was opened is running, stopping or ended, when the
        user leaves.
        """
        if Frame(self._first.snapshot()).ended:
            return Outcome.ENDED
        return Outcome.STOPPING if "" in self._stopping else Outcome.DETACHED
