"""Contents of the screens at one moment: a snapshot, and the viewer's own state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddpmon.messages import END_STATES, RankSpans, RankView, SeriesView, Snapshot
from ddpmon.source import TapePosition
from ddpmon.tui.filters import Filter, runs_of
from ddpmon.tui.views import ViewName

STALE_AFTER_S = 3.0
"""A hub that lives answers at least every second."""


@dataclass(frozen=True)
class Badge:
    """Badge of a state: always a glyph, a word and a colour."""

    glyph: str
    word: str
    role: str


BADGES = {
    "waiting": Badge("◌", "WAITING", "info"),
    "running": Badge("●", "RUNNING", "ok"),
    "slow": Badge("▲", "SLOW", "warn"),
    "stalled": Badge("▲", "STALLED", "bad"),
    "stopping": Badge("■", "STOPPING", "warn"),
    "done": Badge("✔", "DONE", "ok"),
    "failed": Badge("✖", "FAILED", "bad"),
    "stopped": Badge("■", "STOPPED", "strong"),
    "detached": Badge("◌", "DETACHED", "strong"),
    "lost": Badge("✖", "LOST", "bad"),
    "unknown": Badge("?", "UNKNOWN", "warn"),
    "stale": Badge("◌", "STALE", "warn"),
    "replay": Badge("↺", "REPLAY", "info"),
    "unwatched": Badge("◌", "UNWATCHED", "muted"),
    "starting": Badge("◌", "STARTING", "info"),
}

SEVERITY_ROLES = {"info": "text", "warn": "warn", "critical": "bad"}


@dataclass(frozen=True)
class Frame:
    """One frame. Equal frames look the same, so that nothing is drawn twice."""

    snapshot: Snapshot | None = None
    silent_s: float = 0.0
    """Seconds since the hub was last heard, while it should speak."""
    refused: str = ""
    """Reason that the last message of the hub is not shown; "": it is."""
    behind_s: float | None = None
    """Seconds by which the newest snapshot is newer than this one; None when the screen is not frozen."""
    can_stop: bool = False
    readonly: bool = False
    """This viewer may not stop anything."""
    notice: str = ""
    """Result of the last key, in the key bar."""
    view: ViewName = ViewName.WORLD
    """The screen that is shown."""
    filter: Filter | None = None
    """Filter of the listed ranks."""
    series: SeriesView | None = None
    """Series that was requested. From the newest snapshot, also on a held screen: the past stays as it was."""
    cursor: TapePosition | None = None
    """Position of a recording that plays; None: none plays."""
    where: str = ""
    """The machine of the run; "": this one."""
    trouble: str = ""
    """Reason that nothing comes, if it is not the hub's fault."""

    @property
    def ranks(self) -> list[RankView]:
        """Return all ranks of the world, by their number; none before the first snapshot."""
        return [] if self.snapshot is None else self.snapshot.ranks

    @property
    def listed(self) -> list[RankView]:
        """Return those that the filter lets through."""
        return [rank for rank in self.ranks if self.filter is None or self.filter.lets(rank)]

    @property
    def listed_spans(self) -> RankSpans | None:
        """Return their numbers for the hub; None: no filter."""
        return None if self.filter is None else runs_of(rank.rank for rank in self.listed)

    @property
    def ended(self) -> bool:
        """Return whether the run has ended."""
        return self.snapshot is not None and self.snapshot.state in END_STATES

    @property
    def stale(self) -> bool:
        """Return whether the values are older than they look."""
        return self.snapshot is not None and not self.ended and (self.silent_s > STALE_AFTER_S or self.refused != "")

    @property
    def why_absent(self) -> str:
        """Return what stands for a part of the snapshot that its screen wished for and that is not in it."""
        return "coming…" if self.behind_s is None else "no longer in memory; space resumes"

    @property
    def badge(self) -> Badge:
        """Glyph, word and colour of the state, the viewer's own states included."""
        if self.snapshot is None:
            return BADGES["starting"]
        if self.stale:
            return BADGES["stale"]
        state = self.snapshot.state
        return BADGES.get(state) or Badge("●", state.upper(), "text")


def finite(value: float | None) -> float | None:
    """The value, or None where it is missing, nan or infinite."""
    return value if value is not None and math.isfinite(value) else None
