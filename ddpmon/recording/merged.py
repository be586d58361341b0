"""Reads a recording's steps for replay. Merged steps are read as the same number of steps with mean values."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from ddpmon.messages import MAX_STEP, MAX_US, SYNC_GRADIENTS, Micros, Step, Sync
from ddpmon.messages.steps import check_step
from ddpmon.recording import checked
from ddpmon.recording.recording import Recording
from ddpmon.recording.tables import HOUR_US, MINUTE_US

_WIDTHS = {MINUTE_US: "minutes", HOUR_US: "hours"}
SPANS = 64
"""Number of spans that are read at once."""


class Span(msgspec.Struct, array_like=True):
    """A row of `rollup`: sums over the steps that were merged into it. `tables` describes each value."""

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
        """Check the row, and raise ValueError if it is impossible."""
        if self.width_us not in _WIDTHS:
            raise ValueError(f"a span of {self.width_us} µs")
        if not 0 < self.steps <= self.last_step - self.first_step + 1 or self.last_step > MAX_STEP:
            raise ValueError(f"{self.steps} steps from {self.first_step} to {self.last_step}")

    def steps_between(self, begin: int, end: int) -> list[Step]:
        """Return the span's steps from `begin` to before `end`.

        There are as many as were merged, spread evenly over their numbers and their time.
        """
        places = range(self.steps)
        return [
            self._step(place)
            for place in range(bisect_left(places, begin, key=self._number), bisect_left(places, end, key=self._number))
        ]

    def after(self, at_us: int) -> int:
        """Return the number of its first step that ends after a moment, which must be before the end of the span."""
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
        # If a rank was missing, the blocked time of its peers is known, but not their wait.
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


class Merged:
    """Reader of all steps of one recording, merged or not. Impossible rows are left out.

    Spans are read in the order of their time, in which the coarsest come first. Methods raise RecordingError if the
    recording cannot be read.
    """

    def __init__(self, recording: Recording) -> None:
        self._database, self._blocks = recording.database, recording.blocks
        self._is_empty = not self._database.read_table("rollup", ("process",), "LIMIT 1")

    def steps(self, process: int, begin: int, end: int = MAX_STEP, most: int | None = None) -> list[Step]:
        """Return a process's steps from `begin` to before `end`, at most `most`, with mean steps in place of merged
        ones.
        """
        whole = self._blocks.steps(process, begin, end, most)
        if self._is_empty or (whole and whole[0].step <= begin):
            return whole
        return [*self._means(process, begin, whole[0].step if whole else end, most), *whole][:most]

    def first_step_after(self, process: int, at_us: int, last: int) -> int:
        """Return the first of a process's steps up to `last` that ends after a moment, or last + 1 if none does."""
        span = next(self._from(process, "end_us", at_us + 1), None)
        return span.after(at_us) if span else self._blocks.first_step_after(process, at_us, last)

    def first_end_us(self, process: int) -> int | None:
        """Return when the first of a process's steps ended, or None if it has no step."""
        steps = self.steps(process, 0, most=1)
        return steps[0].end_us if steps else None

    def span_us(self, process: int) -> tuple[int, int] | None:
        """Return the moments of a process's first and last sample or step, or None if it has none."""
        ends_us = self._blocks.span_us(process)
        ends_us += [span.end_us for span in self._read("WHERE process = ? ORDER BY begin_us DESC LIMIT 1", process)]
        ends_us += [first for first in (self.first_end_us(process),) if first is not None]
        return (min(ends_us), max(ends_us)) if ends_us else None

    def resolution_at(self, process: int, step: int) -> str:
        """Return "minutes" or "hours" if a process's step was merged into these, or "" if it was not merged."""
        span = next(self._from(process, "last_step", step), None)
        return _WIDTHS[span.width_us] if span and span.first_step <= step else ""

    def count(self) -> int:
        """Return the number of step records that were merged."""
        if self._is_empty:
            return 0
        return int(self._database.rows("SELECT total(steps) FROM rollup WHERE steps > 0")[0][0])

    def _means(self, process: int, begin: int, end: int, most: int | None = None) -> list[Step]:
        """Return the mean steps of a process from `begin` to before `end`, at most `most` of them."""
        means: list[Step] = []
        for span in self._from(process, "last_step", begin):
            if span.first_step >= end:
                break
            begin = max(begin, span.first_step)
            room = end if most is None else min(end, span.last_step + 1, begin + most - len(means))
            means += [step for step in span.steps_between(begin, room) if not means or step.step > means[-1].step]
            if most is not None and len(means) >= most:
                break
            begin = min(end, span.last_step + 1)
        return means

    def _from(self, process: int, column: str, least: int) -> Iterator[Span]:
        """Yield the spans of a process from the first one on in which a column is at least `least`.

        The column must rise with time, as it is found by binary search.
        """
        if self._is_empty:
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
        while spans := self._read(clauses, process, low):
            yield from spans
            low = spans[-1].begin_us + 1

    def _read(self, clauses: str, *values: object) -> list[Span]:
        rows = self._database.read_table("rollup", Span.__struct_fields__, clauses, *values)
        spans, bad = checked.parse_rows(rows, lambda row: msgspec.convert(row, Span))
        self._database.damaged |= bad > 0
        return spans
