"""The end of a run as a state machine, which takes events and returns the next action. It uses no clock or process.

running ──stop──▶ asked ──── too long, or a stop now ──▶ killing ──▶ over
   │  └─killed──▶   │ the command ended, no rank is left        ▲
   └──ended──▶ settling ── something is left ──▶ terminating ── still left
"""

from __future__ import annotations

from enum import Enum

STOP_MARGIN_S = 4.0
"""Seconds to wait beyond the grace. torchrun kills its ranks at the end of the grace, and needs time to report that."""
SETTLE_S = 6.0
"""Seconds for orphans to end after the command ended by itself. DataLoader workers check for their parent every 5 s."""
TERMINATE_S = 2.0
STUCK_AFTER_S = 10.0
"""Seconds after which a process that survives SIGKILL counts as stuck in the kernel."""
HUB_END_S = 15.0
"""Longest time, in seconds, for the hub to write its last records once the run is over, including its restart."""


class Do(Enum):
    """The supervisor's next action. The value describes the action."""

    NOTHING = "nothing"
    ASK = "sending the command a signal to end"
    ASK_RANKS = "the launcher is dead, so ddpmon sends SIGTERM to its ranks"
    TERMINATE = "sending SIGTERM to all remaining processes"
    KILL = "sending SIGKILL to all remaining processes"
    FINISH = "all processes have ended"


class Life:
    """State of one run's end. Times are seconds of any clock that does not go back."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.state = "running"
        self.command_ended = False
        self._deadline = 0.0
        self._grace_until = 0.0

    def take_over(self, command_ended: bool, grace_until: float | None = None) -> None:
        """Set the state of a run whose supervisor was killed.

        If the command has already ended, the run is over when all its processes have ended.

        Args:
            command_ended: The command is gone.
            grace_until: Time at which the grace of an earlier stop is over; None if nobody requested a stop.

        """
        self.command_ended = command_ended
        if grace_until is not None:
            self.state = "asked"
            self._deadline = self._grace_until = grace_until + STOP_MARGIN_S

    def request_stop(self, at: float, now: bool = False) -> Do:
        """Handle a request to end the run. A repeated request has no effect, unless its `now` ends the grace period."""
        if self.state in {"killing", "over"}:
            return Do.NOTHING
        if now:
            return self._begin_killing(at)
        if self.state != "running":
            return Do.NOTHING
        self._begin_grace(at)
        return Do.ASK

    def handle_command_end(self, at: float, by_signal: bool) -> Do:
        """Handle the end of the command. The run's remaining processes may finish their work.

        If a signal killed the command, which is the launcher, its ranks would continue to train. The ranks are then
        asked to end, and have the whole grace to save a checkpoint.
        """
        self.command_ended = True
        if self.state == "running":
            if by_signal:
                self._begin_grace(at)
                return Do.ASK_RANKS
            self._begin_settling(at + SETTLE_S)
        return Do.NOTHING

    def due_action(self, at: float, left: int, ranks: int = 0) -> Do:
        """Return the action that is due at a time.

        Args:
            at: The time.
            left: Number of processes of the run that are alive, including the command.
            ranks: Number of ranks among these processes.

        """
        if self.state == "over" or (self.command_ended and left == 0):
            self.state = "over"
            return Do.FINISH
        if self.state == "asked" and self.command_ended and not ranks:
            self._begin_settling(min(at + SETTLE_S, self._grace_until))
        if self.state == "running" or at < self._deadline:
            # SIGKILL is repeated, because a process may have been forking.
            return Do.KILL if self.state == "killing" else Do.NOTHING
        if self.state == "settling":
            return self._begin_terminating(at)
        if self.state == "killing":
            self.state = "over"
            return Do.FINISH
        return self._begin_killing(at)

    def _begin_grace(self, at: float) -> None:
        self.state = "asked"
        self._deadline = self._grace_until = at + self.grace_s + STOP_MARGIN_S

    def _begin_settling(self, until: float) -> None:
        self.state = "settling"
        self._deadline = until

    def _begin_terminating(self, at: float) -> Do:
        self.state = "terminating"
        # A process that outlived its launcher may be a rank, so it gets the rest of the grace too.
        self._deadline = max(at + TERMINATE_S, self._grace_until)
        return Do.TERMINATE

    def _begin_killing(self, at: float) -> Do:
        self.state = "killing"
        self._deadline = at + STUCK_AFTER_S
        return Do.KILL
