"""The interface through which every viewer reads a run: live, recorded or on another machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ddpmon.messages import Snapshot, ViewRequest
from ddpmon.runs.logs import Log


@dataclass(frozen=True)
class TapePosition:
    """The current position in a recording that is being played."""

    at_s: float
    """Seconds since the start of the recording."""
    length_s: float
    speed: float = 1.0
    """Seconds of the recording that are played in one second."""
    paused: bool = False


class Tape(Protocol):
    """A recording that is being played. The methods return at once, before the snapshot has changed."""

    @property
    def cursor(self) -> TapePosition:
        """Return the current position."""

    def toggle(self) -> None:
        """Pause or resume; start over if the recording is at its end."""

    def skip(self, by: int) -> None:
        """Move forward (1) or back (-1) by a fixed part of the recording."""

    def step(self, by: int) -> None:
        """Move to the end of the next step (1) or of the previous step (-1), and pause there."""

    def jump(self, by: int) -> None:
        """Move to the next event (1) or the previous one (-1)."""

    def faster(self, by: int) -> None:
        """Double (1) or halve (-1) the speed."""


class Source(Protocol):
    """The source of a viewer's snapshots. Its methods never block."""

    @property
    def stoppable(self) -> bool:
        """Return whether the run can be stopped from here."""

    @property
    def tape(self) -> Tape | None:
        """Return the recording that is being played; None if the source shows the run's current or final state."""

    def snapshot(self) -> Snapshot | None:
        """Return the newest snapshot, or None before the first. The result is the same object until a new snapshot
        arrives.
        """

    def request_view(self, view_request: ViewRequest) -> None:
        """Request the parts of the snapshot that only some screens show, for this and all later snapshots."""

    @property
    def refused(self) -> str:
        """Return why the hub's last answer is not a valid snapshot; "" if the last answer is valid and is shown."""

    def silent_for(self) -> float:
        """Return the seconds since the hub's last answer; 0.0 for a recording or a run that has ended."""

    def trouble(self) -> str:
        """Return a sentence about a problem between viewer and hub, such as a lost connection; "" if there is no
        problem.
        """

    def news(self) -> str:
        """Return one message for the user, such as a failed request, and remove the message; "" if there is
        no message.
        """

    def logs(self) -> Log:
        """Return the output of the ranks, as far as it is on the run's machine. The result is always the
        same object.
        """

    @property
    def askable(self) -> bool:
        """Return whether ranks can be asked for their stacks. A recording has only their last stacks."""

    def ask(self, ranks: Sequence[int] = (), profile_steps: int = 0, peak_flops: float = 0.0) -> None:
        """Ask ranks for their current stacks or for a profile; the answers arrive in later snapshots.

        Args:
            ranks: The ranks to ask; if empty, all ranks.
            profile_steps: If above 0, profile this number of steps instead of asking for stacks. Without `ranks`,
                profile a slow rank and one of its peers.
            peak_flops: If above 0, count the floating-point operations of one step instead. The value is the device's
                peak, in FLOP/s.

        """

    def stop(self, now: bool = False) -> None:
        """Ask the run to stop, without waiting for the run's end. `now` skips the grace period."""

    def close(self) -> None:
        """Close the sockets and end the threads."""


class LocalSource:
    """Base of the sources of runs on this machine, which read the run without a network connection."""

    def trouble(self) -> str:
        return ""

    def news(self) -> str:
        return ""


class EndedSource(LocalSource):
    """Base of the sources of runs that have ended: no process can answer questions or be stopped."""

    stoppable = False
    askable = False
    refused = ""

    def silent_for(self) -> float:
        return 0.0

    def ask(self, ranks: Sequence[int] = (), profile_steps: int = 0, peak_flops: float = 0.0) -> None:
        """Do nothing, because no rank is left to answer."""

    def stop(self, now: bool = False) -> None:
        """Do nothing, because no process is left to stop."""
