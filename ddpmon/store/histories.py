"""Stores the history of every quantity of a run for charts, from steps, samples and logged values."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec
import numpy as np

from ddpmon.analysis.over_time.history import (
    LOW_IS_WORST,
    ROWS_PER_LEVEL,
    History,
    SavedHistory,
    Spread,
    row_spread,
    rows_of,
)
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.steps.world import World
from ddpmon.messages import LOGGED, QUANTITIES, SAMPLE_SERIES, STEP_SERIES, Sample, Scalar, Series, SeriesView

SECOND_US = 1_000_000
LATE_S = 2
"""Number of seconds by which samples may arrive late. A second is complete once samples from so much later have
arrived."""
LOGGED_MOST = 24
"""Largest number of names of logged values. Values with further names are ignored."""
PENDING = 4096
"""Largest number of unfinished steps whose logged values are kept, for each name."""
_Values = tuple[float | None, ...]
_values: Callable[[Sample], _Values] = attrgetter(*(QUANTITIES[name].field for name in SAMPLE_SERIES))
"""Reads the values of a sample in the order of SAMPLE_SERIES."""


class SavedHistories(msgspec.Struct):
    """All histories, as a recording stores them."""

    steps: SavedHistory
    samples: SavedHistory
    logged: dict[str, SavedHistory]


class Histories:
    """Low, median, high and the worst rank of every quantity over time, in seconds since the run started."""

    def __init__(self) -> None:
        self._steps = History(STEP_SERIES)
        self._samples = History(SAMPLE_SERIES)
        self._logged: dict[str, History] = {}
        self._by_second: dict[int, dict[int, _Values]] = {}
        """Samples by second and rank that are not in the history yet."""
        self._by_step: dict[str, dict[int, dict[int, float]]] = {}
        """Logged values by name, step and rank that are not in the history yet."""
        self._second = -1
        """The last second that is in the history."""

    @property
    def quantities_present(self) -> list[str]:
        """Return the names of all quantities that have at least one value."""
        recorded = self._steps.recorded | self._samples.recorded
        listed = [name for name in (*STEP_SERIES, *SAMPLE_SERIES) if name in recorded]
        return listed + [LOGGED + name for name in self._logged]

    def series(self, name: str) -> Series:
        """Return the quantity `name` of STEP_SERIES over the whole run."""
        return self._steps.series(name)

    def view(self, name: str, span_s: float | None, end_s: float | None, points: int) -> SeriesView | None:
        """Return a quantity over a span of time, or None if there is no such quantity.

        Args:
            name: Name of the quantity.
            span_s: Length of the span in seconds, or None for the time since the run's start.
            end_s: End of the span in seconds since the run started, or None for now.
            points: Largest number of points.

        """
        if name in STEP_SERIES:
            return self._steps.view(name, span_s, end_s, points)
        if name in SAMPLE_SERIES:
            shown = self._samples.view(name, span_s, end_s, points)
            return msgspec.structs.replace(shown, steps=self._steps_at(shown, points))
        logged = self._logged.get(name.removeprefix(LOGGED)) if name.startswith(LOGGED) else None
        if logged is None:
            return None
        return msgspec.structs.replace(logged.view(logged.names[0], span_s, end_s, points), name=name)

    def _steps_at(self, shown: SeriesView, points: int) -> list[int]:
        """Return for each point of a view the last step that had ended at its time, or 0 if none had."""
        if not shown.seconds:
            return []
        rows, _ = self._steps.between(shown.seconds[0], shown.seconds[-1], points)
        ends, steps = rows["seconds"].tolist(), [0, *rows["step"].tolist()]
        return [steps[bisect.bisect_right(ends, at)] for at in shown.seconds]

    def add_steps(self, part: World, seconds: Floats) -> None:
        """Add new steps. seconds: [S], the end of each step in seconds since the run started."""
        if not len(part):
            return
        many = len(part.ranks) > 1
        none = np.zeros(part.own_ms.shape, bool)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = part.samples * 1e3 / part.length_ms
        critical = np.where(part.critical >= 0, np.asarray(part.ranks)[part.critical], -1)
        length = row_spread(part.length_ms)
        spreads = {
            "loss": row_spread(part.loss, None if part.has_loss.all() else part.has_loss, part.ranks),
            "step": Spread(length.low, length.median, length.high, critical, length.weight),
            "own": row_spread(part.own_ms, ranks=part.ranks),
            "wait": row_spread(part.wait_ms, None if many else none, part.ranks, low_is_worst=True),
            "transfer": row_spread(part.transfer_ms, None if many else none, part.ranks),
            "samples": row_spread(
                rate, None if (part.samples > 0).all() else part.samples > 0, part.ranks, low_is_worst=True
            ),
        }
        self._steps.add(rows_of(seconds, part.step, [spreads[name] for name in STEP_SERIES]))
        for name in self._by_step:
            self._end_logged(name, part, seconds)

    def add_samples(self, rank: int, samples: Sequence[Sample], run_began_us: float) -> None:
        """Add samples of a rank. run_began_us: start of the run in µs by the clock of the samples."""
        for sample in samples:
            second = int((sample.time_us - run_began_us) // SECOND_US)
            if second > self._second:
                self._by_second.setdefault(second, {})[rank] = _values(sample)

    def end_seconds(self, *, final: bool = False) -> None:
        """Move the complete seconds into the history. final: move all, because no more samples will arrive."""
        newest = max(self._by_second, default=0)
        over = sorted(second for second in self._by_second if final or second <= newest - LATE_S)
        rank_values = [self._by_second.pop(second) for second in over]
        by_ranks: list[tuple[tuple[int, ...], list[int]]] = []
        for place, values in enumerate(rank_values):
            ranks = tuple(sorted(values))
            if by_ranks and by_ranks[-1][0] == ranks:
                by_ranks[-1][1].append(place)
            else:
                by_ranks.append((ranks, [place]))
        for ranks, places in by_ranks:
            table = np.array(
                [[rank_values[place][rank] for rank in ranks] for place in places], np.float64
            )  # None becomes NaN.
            spreads = [
                row_spread(table[..., i], ~np.isnan(table[..., i]), ranks, low_is_worst=name in LOW_IS_WORST)
                for i, name in enumerate(SAMPLE_SERIES)
            ]
            seconds = np.array([over[place] + 1.0 for place in places])
            self._samples.add(rows_of(seconds, np.zeros(len(places), np.int64), spreads))
        if over:
            self._second = over[-1]

    def add_logged(self, rank: int, scalars: Sequence[Scalar]) -> None:
        """Add values that a rank's script logged."""
        for scalar in scalars:
            steps = self._by_step.get(scalar.name)
            if steps is None:
                if len(self._by_step) >= LOGGED_MOST:
                    continue
                steps = self._by_step[scalar.name] = {}
            steps.setdefault(scalar.step, {})[rank] = scalar.value
            if len(steps) > PENDING:
                del steps[min(steps)]

    def _end_logged(self, name: str, part: World, seconds: Floats) -> None:
        """Move the logged values of the steps that have ended into the history."""
        pending = self._by_step[name]
        ended = sorted(step for step in pending if step <= part.step[-1])
        if not ended:
            return
        rank_values = [pending.pop(step) for step in ended]
        ranks = sorted({rank for values in rank_values for rank in values})
        values = np.array([[each.get(rank, 0.0) for rank in ranks] for each in rank_values], np.float64)
        present = np.array([[rank in each for rank in ranks] for each in rank_values])
        spread_row = row_spread(values, present)
        at = seconds[np.searchsorted(part.step, ended)]
        self._logged.setdefault(name, History([name])).add(rows_of(at, np.array(ended, np.int64), [spread_row]))

    def forget_logged(self) -> None:
        """Discard logged values of unfinished steps, because the ranks were restarted and these steps never end."""
        for pending in self._by_step.values():
            pending.clear()

    def logged_of(self, other: Histories, seconds: float) -> None:
        """Replace the logged values by those of `other` up to a time in seconds since the run started."""
        cut = {name: history.as_of(seconds) for name, history in other._logged.items()}
        self._logged = {name: history for name, history in cut.items() if history.recorded}

    def as_of(self, seconds: float) -> Histories:
        """Return the histories as they were at an earlier time, in seconds since the run started."""
        cut = Histories()
        cut._steps, cut._samples = self._steps.as_of(seconds), self._samples.as_of(seconds)
        cut._second = int(max(cut._samples.last_s, 0.0)) - 1
        cut.logged_of(self, seconds)
        return cut

    @property
    def sampled_s(self) -> float:
        """Return the end of the last second in the history of samples, in seconds since the run started; 0.0 if it is
        empty.
        """
        return self._second + 1.0

    def saved(self, most: int = ROWS_PER_LEVEL) -> SavedHistories:
        """Return the histories for a recording, with the latest `most` rows of each resolution."""
        logged = {name: history.saved(most) for name, history in self._logged.items()}
        return SavedHistories(self._steps.saved(most), self._samples.saved(most), logged)

    @classmethod
    def restored(cls, saved: SavedHistories) -> Histories:
        """Restore histories from the result of `saved()`. Raise ValueError if the data is invalid."""
        histories = cls()
        histories._steps = History.restored(saved.steps, STEP_SERIES)
        histories._samples = History.restored(saved.samples, SAMPLE_SERIES)
        histories._second = int(max(histories._samples.last_s, 0.0)) - 1
        for name, logged in saved.logged.items():
            histories._logged[name] = History.restored(logged, (name,))
            histories._by_step[name] = {}
        return histories
