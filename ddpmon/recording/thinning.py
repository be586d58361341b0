"""Thins out a large recording: merges its oldest steps into minutes, and its oldest minutes into hours.

A recording of at most WHOLE_BYTES keeps every step for ever. In a larger recording, a few of the oldest rows are merged
at a time. SQLite reuses the pages that merged rows free, so the file grows no more. Single steps reach back as far as
there is room, minutes MINUTES_REACH times as far, and hours to the beginning of the run. Logged values are merged into
minutes with the steps, and samples where steps are merged. Events and findings are never merged.
"""

from __future__ import annotations

import math
import sqlite3

from ddpmon.analysis.steps.clocks import Clocks
from ddpmon.recording import merging
from ddpmon.recording.merging import Seat
from ddpmon.recording.tables import MINUTE_US

WHOLE_BYTES = 1_500_000_000
KEPT_RECORDS = 1_000_000
"""Number of the latest step records that are never merged: more than a report reads."""
MINUTES_REACH = 40
"""Age from which minutes are merged into hours, as a multiple of the largest age of unmerged steps. 64 ranks at 10
steps a second have eight hours of steps and two weeks of minutes."""
BITE_ROWS = 800
"""Approximate number of rows that are merged at a time. Merging them takes some 20 ms."""
LAST_SAMPLES_US = 3_600_000_000
"""For a process without steps: its samples are merged once they are this many microseconds older than its last
sample."""


_OF_BLOCKS = "(SELECT {} FROM step_blocks WHERE process = processes.id ORDER BY first_step {} LIMIT 1)"
_FIRST = _OF_BLOCKS.format("first_step", "ASC")
_OLDEST_US = _OF_BLOCKS.format("first_end_us", "ASC")
_NEWEST_US = _OF_BLOCKS.format("last_end_us", "DESC")
"""SQL expressions over `processes`: a process's first step, and when its oldest and its newest step ended, in µs."""


class Thinning:
    """Merges the oldest rows of one recording, through the connection of its only writer."""

    def __init__(self, db: sqlite3.Connection, whole_bytes: int, kept_records: int) -> None:
        self._db = db
        self._whole_bytes = whole_bytes
        self._kept_records = kept_records
        (self._page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        self._attempt: int | None = None
        """Attempt whose steps were merged last, or None before the first merge."""
        self._seats: list[Seat] = []
        """The ranks of `_attempt`."""
        self._clocks = Clocks()
        self._samples_us = -math.inf
        """Moment before which all samples are merged, in microseconds on the clock of the lowest rank."""
        self._sampled_us: dict[int, int] = {}
        """By process: moment before which all of its samples are merged, in microseconds on its own clock."""

    @property
    def is_due(self) -> bool:
        """Return whether the recording is so large that rows must be merged."""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return bool((pages - free) * self._page_bytes > self._whole_bytes)

    def merge_oldest(self) -> bool:
        """Merge some of the oldest rows in the open transaction, and return False if there is nothing to merge.

        Raises:
            sqlite3.Error: the recording cannot be written.
            ValueError: a row is damaged. Errors of msgspec mean the same.

        """
        oldest_us, newest_us = self._end_us("ASC"), self._end_us("DESC")
        (minutes_us,) = self._db.execute("SELECT min(begin_us) FROM rollup WHERE width_us = ?", (MINUTE_US,)).fetchone()
        if oldest_us is not None and newest_us is not None:
            if oldest_us - self._samples_us >= MINUTE_US:
                if self._merge_samples():
                    return True
                self._samples_us = oldest_us
            reach_us = newest_us - oldest_us
            if minutes_us is not None and newest_us - minutes_us > MINUTES_REACH * reach_us:
                return self._merge_minutes(minutes_us)
            if self._merge_steps():
                return True
        if minutes_us is not None:
            return self._merge_minutes(minutes_us)
        return self._merge_samples()

    def _end_us(self, order: str) -> int | None:
        """Return the end of the lowest rank's oldest (ASC) or newest (DESC) unmerged step, or None if it has none."""
        query = f"""
        SELECT at FROM (
            SELECT attempt, rank, {_NEWEST_US if order == "DESC" else _OLDEST_US} AS at FROM processes
        ) WHERE at IS NOT NULL ORDER BY attempt {order}, rank LIMIT 1
        """  # noqa: S608  no outside input
        row = self._db.execute(query).fetchone()
        return None if row is None else int(row[0])

    def _merge_minutes(self, begin_us: int) -> bool:
        """Merge the oldest minutes into hours."""
        (processes,) = self._db.execute("SELECT count(*) FROM processes").fetchone()
        end_us = begin_us + max(1, BITE_ROWS // 2 // processes) * MINUTE_US
        for table in ("rollup", "scalar_rollup"):
            merging.merge_minutes(self._db, table, end_us)
        return True

    def _merge_steps(self) -> bool:
        """Merge the oldest steps of the oldest attempt with unmerged steps. Return False if there are no steps to
        merge.
        """
        oldest = self._db.execute(
            f"""
            SELECT attempt, min(first) FROM (SELECT attempt, {_FIRST} AS first FROM processes)
            WHERE first IS NOT NULL GROUP BY attempt ORDER BY attempt LIMIT 1
            """  # noqa: S608  no outside input
        ).fetchone()
        if oldest is None:
            return False
        attempt, first = oldest
        if attempt != self._attempt or len(self._seats) != self._count(attempt):
            self._attempt, self._seats, self._clocks = (
                attempt,
                merging.processes_with_steps(self._db, attempt),
                Clocks(),
            )
        end = first + max(1, BITE_ROWS // len(self._seats))
        latest, last = self._db.execute(
            "SELECT attempt, max(last_step) FROM processes GROUP BY attempt ORDER BY attempt DESC LIMIT 1"
        ).fetchone()
        if attempt == latest:
            end = min(end, last + 1 - self._kept_records // len(self._seats))
        if end <= first:
            return False
        merging.merge_steps(self._db, self._seats, self._clocks, end)
        return True

    def _count(self, attempt: int) -> int:
        query = f"SELECT count(*) FROM processes WHERE attempt = ? AND {merging.TRAINED}"  # noqa: S608  no outside input
        (count,) = self._db.execute(query, (attempt,)).fetchone()
        return int(count)

    def _merge_samples(self) -> bool:
        """Merge samples that are older than the oldest unmerged step, minute by minute. Return False if there are none
        to merge.
        """
        rows = 0
        for process, fine_us in self._db.execute(
            f"""
            SELECT id, coalesce(
                {_OLDEST_US},
                (SELECT time_us FROM samples WHERE process = processes.id ORDER BY time_us DESC LIMIT 1) - ?
            ) FROM processes
            """,  # noqa: S608  no outside input
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
