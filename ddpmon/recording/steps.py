"""Reads the steps of a recording: from blocks of single steps and, for replays, from rows of merged steps.

Merged steps are read as the same number of steps with mean values.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from operator import attrgetter

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import ROW, Table, concatenate_rows, steps_of
from ddpmon.messages import MAX_STEP, MAX_US, SYNC_GRADIENTS, Micros, Step, Sync, WireError
from ddpmon.messages.steps import check_step
from ddpmon.recording import checked, schema
from ddpmon.recording.database import Database
from ddpmon.recording.node_blocks import check_rows
from ddpmon.recording.tables import HOUR_US, MINUTE_US

TABLE = "step_blocks"
BLOCKS_PER_READ = 64
NO_ROWS = np.zeros(0, ROW)
_FROM = """
WHERE process = ? AND last_step >= ? AND first_step <= ? AND first_step >= coalesce(
    (SELECT max(first_step) FROM step_blocks WHERE process = ? AND first_step <= ?), 0) ORDER BY first_step
"""
"""SQL that selects the blocks with steps in a range. The first is the last block that begins at or before the range's
first step."""
_AFTER = "WHERE process = ? AND first_step > ? AND first_step <= ? ORDER BY first_step"

_WIDTHS = {MINUTE_US: "minutes", HOUR_US: "hours"}
SPANS = 64
"""Number of spans (rows of merged steps) that are read at once."""

Block = tuple[Table, list[Step]]
"""Steps as rows of a table, and further steps that do not fit into a row."""


class Span(msgspec.Struct, array_like=True):
    """A row of the table `rollup`: sums over the steps that were merged into the row. `tables` describes each value."""

    width_us: Micros
    begin_us: Micros
    end_us: Micros
    first_step: Micros
    last_step: Micros
    steps: Micros
    length_us_sum: Micros
    data_us_sum: Micros
    forward_us_sum: Micros
    backward_us_sum: Micros
    optimizer_us_sum: Micros
    other_us_sum: Micros
    wait_us_sum: Micros
    transfer_us_sum: Micros
    waits: Micros
    losses: Micros
    loss_sum: float
    losses_not_finite: Micros
    samples: Micros
    tokens: Micros
    gradient_bytes: int
    learning_rate: float | None
    gc_us: Micros
    backwards: Micros

    def __post_init__(self) -> None:
        """Check the row, and raise ValueError if its values are impossible."""
        if self.width_us not in _WIDTHS:
            raise ValueError(f"a span of {self.width_us} µs")
        if not 0 < self.steps <= self.last_step - self.first_step + 1 or self.last_step > MAX_STEP:
            raise ValueError(f"{self.steps} steps from {self.first_step} to {self.last_step}")

    def steps_between(self, begin: int, end: int) -> list[Step]:
        """Return the span's steps from `begin` to before `end`.

        The result has as many steps as were merged, spread evenly over the span's step numbers and time.
        """
        places = range(self.steps)
        return [
            self._step(place)
            for place in range(bisect_left(places, begin, key=self._number), bisect_left(places, end, key=self._number))
        ]

    def after(self, at_us: int) -> int:
        """Return the number of the span's first step that ends after a moment. The moment must be before the span's
        end.
        """
        return self._number(bisect_left(range(self.steps), at_us + 1, key=self._end_us))

    def _number(self, place: int) -> int:
        return self.first_step + (place * (self.last_step - self.first_step) // (self.steps - 1) if place else 0)

    def _end_us(self, place: int) -> int:
        return max(0, self.end_us - (self.steps - 1 - place) * (self.length_us_sum // self.steps))

    def _step(self, place: int) -> Step:
        count = self.steps
        data, forward, backward, optimizer, other = (
            each // count
            for each in (
                *(self.data_us_sum, self.forward_us_sum, self.backward_us_sum, self.optimizer_us_sum),
                self.other_us_sum,
            )
        )
        arrival = data + forward + backward + optimizer + other
        # If a rank was missing, the blocked time of its peers is known, but not which part of that time is wait.
        if self.waits:
            blocked = (self.wait_us_sum + self.transfer_us_sum) // self.waits
        else:
            blocked = max(0, self.length_us_sum // count - arrival)
        end = arrival + blocked
        loss = self.loss_sum / self.losses if place < self.losses else None
        if self.losses <= place < self.losses + self.losses_not_finite:
            loss = math.nan
        step = Step(
            self._number(place),
            self._end_us(place),
            end,
            data,
            forward,
            backward,
            optimizer,
            other,
            [Sync(SYNC_GRADIENTS, arrival, end, self.gradient_bytes // count)] if blocked else [],
            loss,
            self.samples // count,
            self.tokens // count,
            self.learning_rate,
            self.gc_us // count,
            backwards=max(1, round(self.backwards / count)),
        )
        check_step(step)
        return step


class RecordedSteps:
    """Reader of the steps of one recording. Impossible steps are left out.

    Spans of merged steps are read in the order of time. The oldest spans are the longest. Methods raise RecordingError
    if the recording cannot be read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.limits: dict[int, int] = {}
        """The last step that a process can have reached, for each process whose counters were checked."""
        self.unread = Counter[int]()
        """Number of step records that could not be read so far, by process."""
        self._bad: set[tuple[int, object]] = set()
        """Unreadable blocks by process and first step. These blocks are not decompressed a second time, which would be
        slow."""

    def whole_steps(self, process: int, begin: int, end: int = MAX_STEP, most: int | None = None) -> list[Step]:
        """Return a process's unmerged steps from `begin` to before `end`, at most `most` of them."""
        table, records = self.read_steps(process, begin, end, most)
        steps = steps_of(table)
        if records:
            steps = sorted({step.step: step for step in (*steps, *records)}.values(), key=attrgetter("step"))
        return steps[:most]

    def read_steps(self, process: int, begin: int, end: int = MAX_STEP, most: int | None = None) -> Block:
        """Return a process's unmerged steps from `begin` to before `end`. If there are more than `most`, later steps
        may be missing.
        """
        last = min(end - 1, self._limit(process))
        tables: list[Table] = []
        records: list[Step] = []
        count = 0
        for table, further in self._blocks(process, begin, last, counts_bad=most is None):
            tables.append(table if tables else table[table["step"] >= begin])
            records += [step for step in further if begin <= step.step <= last]
            count += len(tables[-1]) + len(further)
            if most is not None and count >= most:
                break
        if not tables:
            return NO_ROWS, []
        table = concatenate_rows(tables)
        _, places = np.unique(table["step"], return_index=True)  # A batch that was sent again may be in two blocks.
        return table[places[table["step"][places] <= last]], records

    def _limit(self, process: int) -> int:
        return self.limits.get(process, MAX_STEP)

    def _blocks(self, process: int, begin: int, last: int, *, counts_bad: bool = False) -> Iterator[Block]:
        """Yield the blocks with steps from `begin` to `last`.

        If `counts_bad` is True, steps of unreadable blocks are counted, which only a reader of all blocks may do.
        """
        clauses = _FROM
        values: tuple[object, ...] = (process, begin, last, process, begin)
        columns = ("first_step", "count", "rows", "records")
        limit = 1  # Many callers need only the next step, which one block holds.
        while rows := self._database.read_table(TABLE, columns, f"{clauses} LIMIT {limit}", *values):
            blocks = [None if (process, first) in self._bad else _decoded(*blobs) for first, _, *blobs in rows]
            if not _possible([block for block in blocks if block is not None]):
                blocks = [block if block is not None and _possible([block]) else None for block in blocks]
            for (first, number, *_), block in zip(rows, blocks, strict=True):
                if block is not None:
                    yield block
                    continue
                self._bad.add((process, first))
                self._database.damaged = True
                if counts_bad:
                    self.unread[process] += (
                        number if isinstance(number, int) and 0 < number <= schema.MAX_BLOCK_STEPS else 1
                    )
            if len(rows) < limit:
                return
            clauses, values, limit = _AFTER, (process, rows[-1][0], last), BLOCKS_PER_READ

    def stretches(self, processes: Iterable[int], begin: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of `size` steps in which processes have records, as (first step, step after the last)."""
        while True:
            firsts = [first for each in processes if (first := self._first_from(each, begin)) is not None]
            if not firsts:
                return
            begin = min(firsts) + size
            yield begin - size, begin

    def _first_from(self, process: int, begin: int) -> int | None:
        """Return the first of a process's steps from `begin` on, readable or not, or None if there is no such step."""
        values = process, begin, self._limit(process), process, begin
        rows = self._database.read_table(TABLE, ("first_step",), f"{_FROM} LIMIT 1", *values)
        return max(begin, rows[0][0]) if rows and isinstance(rows[0][0], int) else None

    def last_step(self, process: int) -> int:
        """Return the last step of a process, or 0 if the process has no step."""
        limit = self._limit(process)
        clauses = "WHERE process = ? AND first_step <= ? ORDER BY first_step DESC LIMIT 1"
        rows = self._database.read_table(TABLE, ("last_step",), clauses, process, limit)
        return min(limit, rows[0][0]) if rows and isinstance(rows[0][0], int) else 0

    def first_step_after(self, process: int, at_us: int, last: int) -> int:
        """Return a process's first step up to `last` that ends after a moment, or `last` + 1 if no step does."""
        if span := next(self._spans_from(process, "end_us", at_us + 1), None):
            return span.after(at_us)
        low, high = 1, last + 1
        while low < high:
            middle = (low + high) // 2
            steps = self.whole_steps(process, middle, most=1)
            if not steps or steps[0].end_us > at_us:
                high = middle
            else:
                low = steps[0].step + 1
        return low

    def count_steps(self, process: int) -> int:
        """Return the number of a process's steps, merged or not."""
        table, records = self.read_steps(process, 1)
        whole, limit = len({*table["step"].tolist(), *(step.step for step in records)}), self._limit(process)
        query = "SELECT total(steps) FROM rollup WHERE process = ? AND steps > 0 AND last_step <= ?"
        merged = int(self._database.rows(query, process, limit)[0][0]) if self._has_spans else 0
        return whole + min(limit, merged)

    def span_us(self, process: int) -> tuple[int, int] | None:
        """Return the moments of a process's first and last sample or step, or None if the process has neither."""
        ends = [
            at
            for table, columns, key in (
                ("samples", ("time_us", "time_us"), "time_us"), (TABLE, ("first_end_us", "last_end_us"), "first_step"),
            )
            for column, order in zip(columns, ("ASC", "DESC"), strict=True)
            for (at,) in self._database.read_table(
                table, (column,), f"WHERE process = ? ORDER BY {key} {order} LIMIT 1", process
            )
        ]  # fmt: skip
        ends = [at for at in ends if isinstance(at, int) and 0 <= at < MAX_US]
        ends += [span.end_us for span in self._spans("WHERE process = ? ORDER BY begin_us DESC LIMIT 1", process)]
        ends += [first for first in (self.first_end_us(process),) if first is not None]
        return (min(ends), max(ends)) if ends else None

    @cached_property
    def _has_spans(self) -> bool:
        return bool(self._database.read_table("rollup", ("process",), "LIMIT 1"))

    def steps(self, process: int, begin: int, end: int = MAX_STEP, most: int | None = None) -> list[Step]:
        """Return a process's steps from `begin` to before `end`, at most `most` of them. Merged steps are replaced by
        mean steps.
        """
        whole = self.whole_steps(process, begin, end, most)
        if not self._has_spans or (whole and whole[0].step <= begin):
            return whole
        return [*self._means(process, begin, whole[0].step if whole else end, most), *whole][:most]

    def first_end_us(self, process: int) -> int | None:
        """Return when the first of a process's steps ended, or None if the process has no step."""
        steps = self.steps(process, 0, most=1)
        return steps[0].end_us if steps else None

    def resolution_at(self, process: int, step: int) -> str:
        """Return the span into which a process's step was merged: "minutes" or "hours", or "" if it was not merged."""
        span = next(self._spans_from(process, "last_step", step), None)
        return _WIDTHS[span.width_us] if span and span.first_step <= step else ""

    def count_merged(self) -> int:
        """Return the number of step records that were merged."""
        if not self._has_spans:
            return 0
        return int(self._database.rows("SELECT total(steps) FROM rollup WHERE steps > 0")[0][0])

    def _means(self, process: int, begin: int, end: int, most: int | None = None) -> list[Step]:
        """Return merged steps of a process, each the mean of several steps, from `begin` to before `end`.

        most: The maximum number of merged steps; None: all.
        """
        means: list[Step] = []
        for span in self._spans_from(process, "last_step", begin):
            if span.first_step >= end:
                break
            begin = max(begin, span.first_step)
            room = end if most is None else min(end, span.last_step + 1, begin + most - len(means))
            means += [step for step in span.steps_between(begin, room) if not means or step.step > means[-1].step]
            if most is not None and len(means) >= most:
                break
            begin = min(end, span.last_step + 1)
        return means

    def _spans_from(self, process: int, column: str, least: int) -> Iterator[Span]:
        """Yield the spans of a process, from the first span on in which a column is at least `least`.

        The column must rise with time, because the first span is found by binary search.
        """
        if not self._has_spans:
            return
        low, high = 0, MAX_US
        while low < high:
            middle = (low + high) // 2
            clauses = "WHERE process = ? AND begin_us >= ? ORDER BY begin_us LIMIT 1"
            rows = self._database.read_table("rollup", ("begin_us", column), clauses, process, middle)
            begin_us, value = rows[0] if rows else (None, None)
            if not isinstance(begin_us, int) or not isinstance(value, int) or value >= least:
                high = middle
            else:
                low = begin_us + 1
        clauses = f"WHERE process = ? AND begin_us >= ? ORDER BY begin_us LIMIT {SPANS}"
        while spans := self._spans(clauses, process, low):
            yield from spans
            low = spans[-1].begin_us + 1

    def _spans(self, clauses: str, *values: object) -> list[Span]:
        rows = self._database.read_table("rollup", Span.__struct_fields__, clauses, *values)
        spans, bad = checked.parse_rows(rows, lambda row: msgspec.convert(row, Span))
        self._database.damaged |= bad > 0
        return spans


def _decoded(rows: object, records: object) -> Block | None:
    """Return the steps in a block, or None if the block cannot be read."""
    try:
        return schema.block_steps(rows, records)
    except (ValueError, msgspec.MsgspecError):
        return None


def _possible(blocks: list[Block]) -> bool:
    """Return whether all steps of several blocks are possible. Checking many rows at once takes as long as checking a
    few.
    """
    try:
        check_rows(concatenate_rows([NO_ROWS, *(table for table, _ in blocks)]))
        for _, records in blocks:
            for step in records:
                check_step(step)
    except WireError:
        return False
    return True
