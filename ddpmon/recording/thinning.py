"""Keeps a recording small: once it is large, its oldest steps become seconds, these minutes, and these hours.

A recording of at most WHOLE_BYTES is left as it is: every step for ever. Above, a little of what is oldest is merged at
a time, so that the file does not grow any more: SQLite uses the pages again that this frees. Steps reach back as far as
there is room for them, seconds and minutes so many times as far, hours to the beginning. What a script logged becomes
minutes with the steps, and samples are merged where steps are no longer kept by the second. Events, with the findings
in them, are kept whole.
"""

from __future__ import annotations

import math
import sqlite3

from ddpmon.analysis.steps.clocks import Clocks
from ddpmon.recording import merging
from ddpmon.recording.merging import Seat
from ddpmon.recording.tables import TIERS

WHOLE_BYTES = 1_500_000_000
KEPT_RECORDS = 1_000_000
"""Of the last steps, that are never merged: more than a report goes through."""
SECONDS_REACH = 5
MINUTES_REACH = 80
"""How far these reach back at most, in times of what whole steps do. 64 ranks of 10 steps a second: two hours of
steps, eleven of seconds, a week of minutes."""
LONG_STEP_US = 250_000
"""Longer steps become minutes at once: as many seconds would take more room than they do."""
BITE_ROWS = 800
"""Rows that are merged in one go, about: some 20 ms."""
LAST_SAMPLES_US = 3_600_000_000
"""Samples of a process of which no step is there are kept whole for so long."""


_OF_BLOCKS = "(SELECT {} FROM step_blocks WHERE process = processes.id ORDER BY first_step {} LIMIT 1)"
_FIRST = _OF_BLOCKS.format("first_step", "ASC")
_OLDEST_US = _OF_BLOCKS.format("first_end_us", "ASC")
_NEWEST_US = _OF_BLOCKS.format("last_end_us", "DESC")
"""SQL: of the process of a row of `processes`."""


class Thinning:
    """Merges the oldest rows of one recording, through the connection of its one writer."""

    def __init__(self, db: sqlite3.Connection, whole_bytes: int, kept_records: int) -> None:
        self._db = db
        self._whole_bytes = whole_bytes
        self._kept_records = kept_records
        (self._page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        self._attempt: int | None = None
        """The attempt whose steps were merged last."""
        self._seats: list[Seat] = []
        """The ranks of that attempt."""
        self._clocks = Clocks()
        self._samples_us = -math.inf
        """By the clock of the lowest rank: all samples before this time are merged."""
        self._sampled_us: dict[int, int] = {}
        """By process and its own clock: all samples before this time are merged."""

    @property
    def due(self) -> bool:
        """Whether the recording is too large."""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return bool((pages - free) * self._page_bytes > self._whole_bytes)

    def bite(self) -> bool:
        """Merge a little of what is oldest, in the transaction that is open; False: there is nothing to merge.

        Raises sqlite3.Error, and ValueError or msgspec's errors where a row is damaged.
        """
        oldest_us, newest_us = self._end_us("ASC"), self._end_us("DESC")
        seconds_us, minutes_us = self._oldest("seconds"), self._oldest("minutes")
        if oldest_us is not None and newest_us is not None:
            fine_us = oldest_us if seconds_us is None else min(seconds_us, oldest_us)
            if fine_us - self._samples_us >= TIERS["minutes"]:
                if self._merge_samples():
                    return True
                self._samples_us = fine_us
            reach_us = newest_us - oldest_us
            if minutes_us is not None and newest_us - minutes_us > MINUTES_REACH * reach_us:
                return self._merge_minutes(minutes_us)
            if seconds_us is not None and newest_us - seconds_us > SECONDS_REACH * reach_us:
                return self._merge_spans(seconds_us, "seconds", "minutes")
            if self._merge_steps():
                return True
        if seconds_us is not None:
            return self._merge_spans(seconds_us, "seconds", "minutes")
        if minutes_us is not None:
            return self._merge_minutes(minutes_us)
        return self._merge_samples()

    def _end_us(self, order: str) -> int | None:
        """When the oldest (ASC) or newest (DESC) whole step ended, of the lowest rank; None: there is none."""
        query = f"""
        SELECT at FROM (
            SELECT attempt, rank, {_NEWEST_US if order == "DESC" else _OLDEST_US} AS at FROM processes
        ) WHERE at IS NOT NULL ORDER BY attempt {order}, rank LIMIT 1
        """  # noqa: S608  ours
        row = self._db.execute(query).fetchone()
        return None if row is None else int(row[0])

    def _oldest(self, tier: str) -> int | None:
        """When the oldest row of a tier begins; None: it is empty."""
        query = f"""
        SELECT min(at) FROM (
            SELECT (SELECT begin_us FROM {tier} WHERE process = processes.id ORDER BY begin_us LIMIT 1) AS at
            FROM processes
        )
        """  # noqa: S608  ours
        (at,) = self._db.execute(query).fetchone()
        return None if at is None else int(at)

    def _merge_minutes(self, begin_us: int) -> bool:
        self._merge_spans(begin_us, "scalar_minutes", "scalar_hours")
        return self._merge_spans(begin_us, "minutes", "hours")

    def _merge_spans(self, begin_us: int, finer: str, coarser: str) -> bool:
        """Move the first rows of a tier to the next one."""
        (processes,) = self._db.execute("SELECT count(*) FROM processes").fetchone()
        end_us = begin_us + max(1, BITE_ROWS // 2 // processes) * TIERS[finer.removeprefix("scalar_")]
        merging.merge_spans(self._db, finer, coarser, end_us)
        return True

    def _merge_steps(self) -> bool:
        """Merge the oldest steps of the oldest attempt that has any."""
        oldest = self._db.execute(
            f"""
            SELECT attempt, min(first) FROM (SELECT attempt, {_FIRST} AS first FROM processes)
            WHERE first IS NOT NULL GROUP BY attempt ORDER BY attempt LIMIT 1
            """  # noqa: S608  ours
        ).fetchone()
        if oldest is None:
            return False
        attempt, first = oldest
        if attempt != self._attempt or len(self._seats) != self._count(attempt):
            self._attempt, self._seats, self._clocks = attempt, merging.seats(self._db, attempt), Clocks()
        end = first + max(1, BITE_ROWS // len(self._seats))
        latest, last = self._db.execute(
            "SELECT attempt, max(last_step) FROM processes GROUP BY attempt ORDER BY attempt DESC LIMIT 1"
        ).fetchone()
        if attempt == latest:
            end = min(end, last + 1 - self._kept_records // len(self._seats))
        if end <= first:
            return False
        merging.merge_steps(self._db, self._seats, self._clocks, end, LONG_STEP_US)
        return True

    def _count(self, attempt: int) -> int:
        query = f"SELECT count(*) FROM processes WHERE attempt = ? AND {merging.TRAINED}"  # noqa: S608  ours
        (count,) = self._db.execute(query, (attempt,)).fetchone()
        return int(count)

    def _merge_samples(self) -> bool:
        """Merge samples of before the oldest step or second, a minute of a process each. False: all are."""
        rows = 0
        for process, fine_us in self._db.execute(
            f"""
            SELECT id, coalesce(
                (SELECT end_us FROM seconds WHERE process = processes.id ORDER BY begin_us LIMIT 1),
                {_OLDEST_US},
                (SELECT time_us FROM samples WHERE process = processes.id ORDER BY time_us DESC LIMIT 1) - ?
            ) FROM processes
            """,  # noqa: S608  ours
            (LAST_SAMPLES_US,),
        ).fetchall():
            while fine_us is not None and rows < BITE_ROWS:
                merged, self._sampled_us[process] = merging.merge_samples(
                    self._db, process, self._sampled_us.get(process, 0), fine_us
                )
                if not merged:
                    break
                rows += merged
        return rows > 0
