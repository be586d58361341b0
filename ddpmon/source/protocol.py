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
        """Skip forward (1) or back (-1) by a fixed part of the recording."""

    def step(self, by: int) -> None:
        """Move to the end of the next step (1) or of the previous step (-1), and pause there."""

    def jump(self, by: int) -> None:
        """Move to the next event (1) or the previous one (-1)."""

    def faster(self, by: int) -> None:
        """Double (1) or halve (-1) the speed."""


class Source(Protocol):
    """The source of a viewer's snapshots. No method blocks."""

    @property
    def stoppable(self) -> bool:
        """Return whether the run can be stopped from here."""

    @property
    def tape(self) -> Tape | None:
        """Return the recording that is being played; None if the source shows the run's current or final state."""

    def snapshot(self) -> Snapshot | None:
        """Return the newest snapshot: the same object until a new one arrives, and None before the first."""

    def request_view(self, view_request: ViewRequest) -> None:
        """Request the parts of the snapshot that only some screens show, for this and all later snapshots."""

    @property
    def refused(self) -> str:
        """Return why the last answer is not a valid snapshot and is not shown; "" if the last answer is shown."""

    def silent_for(self) -> float:
        """Return the seconds since the hub's last answer; 0.0 for a recording or a run that has ended."""

    def trouble(self) -> str:
        """Return a sentence about a problem between viewer and hub, such as a lost connection; "" if none."""

    def news(self) -> str:
        """Return one message for the user, such as a failed request, and remove it; "" if there is none."""

    def logs(self) -> Log:
        """Return the output of the ranks as far as it was written on the run's machine; always the same object."""

    @property
    def askable(self) -> bool:
        """Return whether ranks can be asked for their stacks. A recording has only their last stacks."""

    def ask(self, ranks: Sequence[int] = (), profile_steps: int = 0, peak_flops: float = 0.0) -> None:
        """Ask ranks for their current stacks or for a profile; the answers arrive in later snapshots.

        Args:
            ranks: The ranks to ask; all of them if empty.
            profile_steps: Number of steps to profile instead; without `ranks`, those of a slow rank and of a peer.
            peak_flops: If above 0, count the operations of one step instead, for a device with so many FLOP/s.

        """

    def stop(self, now: bool = False) -> None:
        """Ask the run to stop, without waiting for its end; `now` skips the grace period."""

    def close(self) -> None:
        """Close the sockets and end the threads."""


class LocalSource:
    """Base of the sources of runs on this machine, which no connection separates from the run."""

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
