"""The end of a run as a state machine: events in, what to do next out. No processes and no clock of its own.

running ──stop──▶ asked ──── too long, or a stop now ──▶ killing ──▶ over
   │  └─killed──▶   │ the command ended, no rank is left        ▲
   └──ended──▶ settling ── something is left ──▶ terminating ── still left
"""

from __future__ import annotations

from enum import Enum

STOP_MARGIN_S = 4.0
"""Beyond the grace: torchrun kills its ranks when the grace is over and needs a moment to say so."""
SETTLE_S = 6.0
"""Time for orphans after an ordinary end: a DataLoader worker looks for its parent every 5 s."""
TERMINATE_S = 2.0
GIVE_UP_S = 10.0
"""A process that survives SIGKILL for this long is stuck in the kernel."""
HUB_END_S = 15.0
"""Longest time for the hub to write the last records once the run is over, for one that was only just started too."""


class Do(Enum):
    """Next action of the supervisor."""

    NOTHING = "nothing"
    ASK = "sending the command a signal to end"
    ASK_RANKS = "the launcher is dead, so ddpmon sends SIGTERM to its ranks"
    TERMINATE = "sending SIGTERM to all remaining processes"
    KILL = "sending SIGKILL to all remaining processes"
    FINISH = "all processes have ended"


class Life:
    """Progress of the end of one run. Times are seconds of any clock that does not go back."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.state = "running"
        self.command_ended = False
        self._deadline = 0.0
        self._grace_until = 0.0

    def take_over(self, command_ended: bool, grace_until: float | None = None) -> None:
        """Go on where nobody watched. grace_until: when the grace of a stop is over that was asked for before.

        Where the command was gone by then, the run is over when all processes have ended.
        """
        self.command_ended = command_ended
        if grace_until is not None:
            self.state = "asked"
            self._deadline = self._grace_until = grace_until + STOP_MARGIN_S

    def stop(self, at: float, now: bool = False) -> Do:
        """Someone wants the run to end. A further stop joins the first; only `now` shortens the grace."""
        if self.state in {"killing", "over"}:
            return Do.NOTHING
        if now:
            return self._kill(at)
        if self.state != "running":
            return Do.NOTHING
        self._ask(at)
        return Do.ASK

    def ended(self, at: float, by_signal: bool) -> Do:
        """The command ended. What it leaves behind may finish its work.

        Ranks whose launcher was killed train on for nobody: they are asked to end, and have all of the grace to save.
        """
        self.command_ended = True
        if self.state == "running":
            if by_signal:
                self._ask(at)
                return Do.ASK_RANKS
            self._settle(at + SETTLE_S)
        return Do.NOTHING

    def tick(self, at: float, left: int, ranks: int = 0) -> Do:
        """Time has passed; `left` processes of the run still live, the command included, `ranks` of them ranks."""
        if self.state == "over" or (self.command_ended and left == 0):
            self.state = "over"
            return Do.FINISH
        if self.state == "asked" and self.command_ended and not ranks:
            self._settle(min(at + SETTLE_S, self._grace_until))
        if self.state == "running" or at < self._deadline:
            return Do.KILL if self.state == "killing" else Do.NOTHING  # again: one may have been forking
        if self.state == "settling":
            return self._terminate(at)
        if self.state == "killing":
            self.state = "over"
            return Do.FINISH
        return self._kill(at)

    def _ask(self, at: float) -> None:
        self.state = "asked"
        self._deadline = self._grace_until = at + self.grace_s + STOP_MARGIN_S

    def _settle(self, until: float) -> None:
        self.state = "settling"
        self._deadline = until

    def _terminate(self, at: float) -> Do:
        self.state = "terminating"
        # whatever outlived its launcher and listens to SIGTERM may be a rank: it has all of the grace too
        self._deadline = max(at + TERMINATE_S, self._grace_until)
        return Do.TERMINATE

    def _kill(self, at: float) -> Do:
        self.state = "killing"
        self._deadline = at + GIVE_UP_S
        return Do.KILL
