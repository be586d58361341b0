"""The interface through which every viewer gets a run: live, recorded or from afar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ddpmon.messages import Snapshot, Wish
from ddpmon.runs.logs import Log


@dataclass(frozen=True)
class TapePosition:
    """A place in a recording."""

    at_s: float
    """Seconds since the recording's beginning."""
    length_s: float
    speed: float = 1.0
    """Seconds of the run in a second."""
    paused: bool = False


class Tape(Protocol):
    """A recording that plays. Calls return at once; the snapshot follows."""

    @property
    def cursor(self) -> TapePosition:
        """Return where it is."""

    def toggle(self) -> None:
        """Pause, or go on; at the end, begin again."""

    def skip(self, by: int) -> None:
        """Forward (1) or back (-1) by a piece of the whole."""

    def step(self, by: int) -> None:
        """To the end of the next step (1) or of the one before (-1), and pause there."""

    def jump(self, by: int) -> None:
        """To the next event (1) or the one before (-1)."""

    def faster(self, by: int) -> None:
        """Twice as fast (1) or half as fast (-1)."""


class Source(Protocol):
    """Source of a viewer's snapshots. Calls never block."""

    @property
    def stoppable(self) -> bool:
        """Return whether the run can be stopped from here."""

    @property
    def tape(self) -> Tape | None:
        """Return the position in a recording that is played; None: the run is shown as it is now or was last."""

    def snapshot(self) -> Snapshot | None:
        """The newest snapshot; None before the first. The same object as long as nothing new came."""

    def wish(self, wish: Wish) -> None:
        """Have the parts of the snapshot that only some screens show come with it from now on."""

    @property
    def refused(self) -> str:
        """Why the last answer is not shown, in words: it cannot be a snapshot of a run. "": it is shown."""

    def silent_for(self) -> float:
        """Seconds since the hub was last heard while it should speak; 0.0 for a recording or an ended run."""

    def trouble(self) -> str:
        """Why the hub cannot be heard, where that is not the hub's fault, in a sentence; "": nothing is in the way."""

    def news(self) -> str:
        """A line that a person should read, once; "": none. What went wrong elsewhere with what was asked for."""

    def logs(self) -> Log:
        """Return what the ranks printed, as far as it was written on the run's machine; always the same object."""

    @property
    def askable(self) -> bool:
        """Return whether ranks can be asked where they are: those of a recording cannot; it has their last stacks."""

    def ask(self, ranks: Sequence[int] = (), profile_steps: int = 0, peak_flops: float = 0.0) -> None:
        """Ask ranks, or all of them, where they are now; the answers come with the stacks that are wished for.

        profile_steps: profile so many of their steps instead; without ranks, of a slow one and a peer.
        peak_flops: count the operations of one step instead of that, for a device that can do so many a second.
        """

    def stop(self, now: bool = False) -> None:
        """Ask the run to stop; `now` skips the grace. Returns at once."""

    def close(self) -> None:
        """Let go of sockets and threads."""


class LocalSource:
    """Answers of all sources of this machine: nothing stands between them and the run."""

    def trouble(self) -> str:
        return ""

    def news(self) -> str:
        return ""


class EndedSource(LocalSource):
    """Answers of all sources of runs that have ended: nobody is there to answer or to be stopped."""

    stoppable = False
    askable = False
    refused = ""

    def silent_for(self) -> float:
        return 0.0

    def ask(self, ranks: Sequence[int] = (), profile_steps: int = 0, peak_flops: float = 0.0) -> None:
        """Nobody is there to answer."""

    def stop(self, now: bool = False) -> None:
        """Nothing runs."""
