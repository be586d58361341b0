"""The data from which the screens are drawn: a snapshot of the run and the viewer's own state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddpmon.messages import END_STATES, RankSpans, RankView, SeriesView, Snapshot
from ddpmon.source import TapePosition
from ddpmon.tui.filters import Filter, runs_of
from ddpmon.tui.lines import plain_text
from ddpmon.tui.views import ViewName

STALE_AFTER_S = 3.0
"""Seconds without an answer after which values are stale; a live hub answers at least every second."""


@dataclass(frozen=True)
class Badge:
    """The badge of a state: a glyph, a word and a colour, so that no state is shown by its colour alone."""

    glyph: str
    word: str
    role: str


STAGE_WORDS = {
    "importing": "importing torch",
    "connected": "torch imported",
    "group": "process group up",
    "model": "model wrapped in DDP",
    "training": "training",
    "ended": "ended",
}
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


def arriving(snapshot: Snapshot) -> bool:
    """Return whether no rank has a measured step yet. Screens then show the stage of each rank instead of
    measurements.
    """
    return not snapshot.loss_series.seconds and all(rank.own_ms is None for rank in snapshot.ranks)


def short_host(host: str) -> str:
    """Return the first label of a host's name, by which people call the host."""
    return plain_text(host).partition(".")[0]


@dataclass(frozen=True)
class Frame:
    """One frame of the dashboard. Equal frames look the same, so that no frame is drawn twice."""

    snapshot: Snapshot | None = None
    silent_s: float = 0.0
    """Seconds since the hub's last answer, if it should be answering."""
    refused: str = ""
    """Reason why the hub's last message is not shown; "" if the message is shown."""
    behind_s: float | None = None
    """Seconds by which the newest snapshot is newer than the shown snapshot; None if the screen is not frozen."""
    can_stop: bool = False
    stopping: bool = False
    """True if the run was asked to stop, by this dashboard or by another process."""
    readonly: bool = False
    """True if this viewer may not stop any run."""
    notice: str = ""
    """Message about the last key, shown in the key bar."""
    view: ViewName = ViewName.WORLD
    """The screen that is shown."""
    filter: Filter | None = None
    """Filter of the listed ranks; None lists all ranks."""
    series: SeriesView | None = None
    """The requested series. It is from the newest snapshot even on a frozen screen, because past values do not change.
    """
    cursor: TapePosition | None = None
    """Position in a recording that is being played; None if no recording plays."""
    where: str = ""
    """Name of the run's machine; "" stands for this machine."""
    trouble: str = ""
    """Reason why no data arrives, such as a lost connection to the machine. "" if data arrives, or if the hub is silent
    although it can be reached."""

    @property
    def ranks(self) -> list[RankView]:
        """Return all ranks of the world, by their number; an empty list before the first snapshot."""
        return [] if self.snapshot is None else self.snapshot.ranks

    @property
    def listed_ranks(self) -> list[RankView]:
        """Return the ranks that pass the filter."""
        return [rank for rank in self.ranks if self.filter is None or self.filter.matches_rank(rank)]

    @property
    def listed_spans(self) -> RankSpans | None:
        """Return the listed ranks as the spans that the hub expects; None without a filter."""
        return None if self.filter is None else runs_of(rank.rank for rank in self.listed_ranks)

    @property
    def ended(self) -> bool:
        """Return whether the run has ended."""
        return self.snapshot is not None and self.snapshot.state in END_STATES

    @property
    def is_stale(self) -> bool:
        """Return whether the shown values are out of date."""
        return self.snapshot is not None and not self.ended and (self.silent_s > STALE_AFTER_S or self.refused != "")

    @property
    def why_absent(self) -> str:
        """Return the text that replaces a requested part of the snapshot while that part is missing."""
        return "coming…" if self.behind_s is None else "no longer in memory; space resumes"

    @property
    def badge(self) -> Badge:
        """Return the glyph, word and colour of the run's state, or of the viewer's own state."""
        if self.snapshot is None:
            return BADGES["starting"]
        if self.is_stale:
            return BADGES["stale"]
        state = self.snapshot.state
        return BADGES.get(state) or Badge("●", state.upper(), "text")


def finite_or_none(value: float | None) -> float | None:
    """Return the value, or None if it is missing, nan or infinite."""
    return value if value is not None and math.isfinite(value) else None
