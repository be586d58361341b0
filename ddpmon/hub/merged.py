"""Reads the steps of a recording as one would play them: where they were merged, as so many steps of their means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from ddpmon.errors import RecordingError
from ddpmon.hub.recording import Recording
from ddpmon.hub.tables import TIERS
from ddpmon.messages import MAX_STEP, OWN_PHASES, SYNC_GRADIENTS, Step, Sync

Row: TypeAlias = Sequence[Any]
_COLUMNS = (
    *("end_us", "first_step", "last_step", "steps", "waits", "length_us_sum"),
    *(f"{phase}_us_sum" for phase in OWN_PHASES),
    *("wait_us_sum", "transfer_us_sum", "losses", "loss_sum", "losses_not_finite"),
    *("samples", "tokens", "gradient_bytes", "learning_rate", "gc_us", "backwards"),
)
_COARSEST_FIRST = tuple(reversed(TIERS))


class Merged:
    """The tiers of one recording, beside its whole steps. RecordingError where they cannot be read."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._tiers = [tier for tier in _COARSEST_FIRST if self._there(tier)]

    def _there(self, tier: str) -> bool:
        """Whether a tier is; an older version made none."""
        try:
            return bool(list(self._rows(f"SELECT 1 FROM {tier} LIMIT 1")))  # noqa: S608  ours
        except RecordingError:
            return False

    def steps(self, process: int, begin: int, end: int) -> list[Step]:
        """A process's steps from `begin` to before `end`; those that were merged as steps of their means."""
        whole = self._recording.steps(process, begin, end)
        if not self._tiers or (whole and whole[0].step <= begin):
            return whole
        end = whole[0].step if whole else end
        means = [step for row in self._spans(process, begin, end) for step in _steps(row) if begin <= step.step < end]
        return means + whole

    def steps_from(self, process: int, begin: int, most: int) -> list[Step]:
        """A process's next steps, at most so many whole ones; those that were merged as steps of their means."""
        whole = self._recording.steps_from(process, begin, most)
        if not self._tiers or (whole and whole[0].step <= begin):
            return whole
        means: list[Step] = []
        for row in self._spans(process, begin, whole[0].step if whole else MAX_STEP):
            means += [step for step in _steps(row) if begin <= step.step]
            if len(means) >= most:
                break
        return means or whole

    def first_step_after(self, process: int, at_us: int, last: int) -> int:
        """The first of a process's steps up to `last` that ends after a moment; last + 1 if none does."""
        for tier in self._tiers:
            for row in self._from(tier, process, "end_us", at_us + 1):
                return next(step.step for step in _steps(row) if step.end_us > at_us)
        return self._recording.first_step_after(process, at_us, last)

    def first_end_us(self, process: int) -> int | None:
        """When the first of a process's steps ended; None: there is none."""
        for tier in self._tiers:
            for row in self._from(tier, process, "last_step", 0):
                return _steps(row)[0].end_us
        return self._recording.first_end_us(process)

    def span_us(self, process: int) -> tuple[int, int] | None:
        """When a process was first and last heard of, by its samples and steps; None: never."""
        found, first = self._recording.span_us(process), self.first_end_us(process)
        if first is None:
            return found
        if found is None:  # every step and sample of it is merged
            last = self._last_end_us(process)
            return (first, last) if last is not None else None
        return min(first, found[0]), max(self._last_end_us(process) or 0, found[1])

    def tier_at(self, process: int, step: int) -> str:
        """Into what a process's step was merged: "seconds", "minutes" or "hours"; "": into nothing."""
        for tier in self._tiers:
            for row in self._from(tier, process, "last_step", step):
                if row[1] <= step:
                    return tier
        return ""

    def count(self) -> int:
        """How many step records were merged."""
        return sum(
            int(count or 0)
            for tier in self._tiers
            for (count,) in self._rows(f"SELECT sum(steps) FROM {tier}")  # noqa: S608  ours
        )

    def _last_end_us(self, process: int) -> int | None:
        ends = [
            end
            for tier in self._tiers
            for (end,) in self._rows(
                f"SELECT end_us FROM {tier} WHERE process = ? ORDER BY begin_us DESC LIMIT 1",  # noqa: S608  ours
                process,
            )
        ]
        return max(ends, default=None)

    def _spans(self, process: int, begin: int, end: int) -> Iterator[Row]:
        """The rows of all tiers that hold steps from `begin` to before `end`, the oldest first."""
        for tier in self._tiers:
            for row in self._from(tier, process, "last_step", begin):
                if row[1] >= end:
                    return
                yield row

    def _from(self, tier: str, process: int, column: str, least: int) -> Iterator[Row]:
        """Rows of a process from the first on of which a column is at least so much; it rises with time."""
        mine = f"SELECT {{}}(begin_us) FROM {tier} WHERE process = :1"  # noqa: S608  ours
        bounds = next(self._rows(f"SELECT ({mine.format('min')}), ({mine.format('max')})", process))  # each by the key
        if bounds[0] is None:
            return
        low, high = bounds[0], bounds[1] + 1
        probe = f"SELECT begin_us, {column} FROM {tier} WHERE process = ? AND begin_us >= ? ORDER BY begin_us LIMIT 1"  # noqa: S608  ours
        while low < high:
            middle = (low + high) // 2
            found = list(self._rows(probe, process, middle))
            if not found or found[0][1] >= least:
                high = middle
            else:
                low = found[0][0] + 1
        yield from self._rows(
            f"SELECT {', '.join(_COLUMNS)} FROM {tier} WHERE process = ? AND begin_us >= ? ORDER BY begin_us",  # noqa: S608  ours
            process,
            low,
        )

    def _rows(self, query: str, *values: object) -> Iterator[Any]:
        yield from self._recording.rows(query, *values)


def _steps(row: Row) -> list[Step]:
    """So many steps as a row was made of, each of its means, evenly over the time in which they ended."""
    end_us, first, last, count, waits, length = row[:6]
    own = row[6 : 6 + len(OWN_PHASES)]
    wait, transfer, losses, loss, not_finite, samples, tokens, sent_bytes, rate, gc, backwards = row[
        6 + len(OWN_PHASES) :
    ]
    if not 0 < count <= last - first + 1:
        raise ValueError(f"{count} steps from {first} to {last}")
    data, forward, backward, optimizer, other = (value // count for value in own)
    # Where a rank was missing, what its peers were blocked for is known, but not by whom.
    blocked = (wait + transfer) // waits if waits else max(0, length - sum(own)) // count
    arrival = data + forward + backward + optimizer + other
    syncs = [Sync(SYNC_GRADIENTS, arrival, arrival + blocked, sent_bytes // count)] if blocked else []
    told = [loss / losses] * losses if losses else []
    told += [float("nan")] * not_finite
    return [
        Step(
            first + (i * (last - first) // (count - 1) if count > 1 else 0),
            end_us - (count - 1 - i) * (length // count),
            arrival + blocked,
            data,
            forward,
            backward,
            optimizer,
            other,
            syncs,
            told[i] if i < len(told) else None,
            samples // count,
            tokens // count,
            rate,
            gc // count,
            backwards=max(1, round(backwards / count)),
        )
        for i in range(count)
    ]
