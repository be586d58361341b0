"""Reads tqdm's progress bars for the total number of steps, the epoch and the number of epochs.

tqdm does not mark the bar of the training. It is the bar that advances with the steps: one item per step, several items
per step (micro-batches, samples of a batch), or one item in several steps (epochs). A bar counts a finished item after
some delay, and steps end in the middle of items. So each observation of steps and items leaves a range of steps at
which the bar may have begun. The right ratio of items to steps is the ratio for which all these ranges overlap.

A bar of samples or tokens advances by the same number in each update except the last. Its unit is the greatest common
divisor of its advances. Divided by this unit, its count is like that of a bar of batches.

Reading a bar takes none of tqdm's locks and does not keep the bar alive.
"""

from __future__ import annotations

import math
import re
import sys
from itertools import repeat
from operator import call, is_
from typing import NamedTuple

_FIELDS = ("n", "total", "pos", "initial", "mininterval", "miniters", "start_t", "desc", "unit")
_FEWEST = 3
"""Smallest number of observations, and of steps, after which a ratio is accepted."""
_MANY_STEPS = 100
_STEPS_TO_SEE_ONE = 10
"""Steps after which one unit per step can be told from five units in four steps."""
_CANDIDATES_MOST = 16
"""Largest number of ratios to try at each observation."""
_MOST_KEPT = 128
"""Largest number of observations to keep of one bar."""
_ITEMS_MOST = 1 << 40
_ROUNDING = 1e-6
_SKEW_S = 0.02
"""Seconds that may pass between reading the steps and reading a bar."""
_EPOCH_OF = re.compile(r"epoch\W{0,3}(\d{1,7}) ?(?:/|of) ?(\d{1,7})", re.IGNORECASE)
"""Matches "Epoch 2/10" or "Epoch [2/10]" in a bar's description. Scripts write a first epoch as 1/10, 0/10 or 0/9."""


class BarReading(NamedTuple):
    """The state of a bar at one moment."""

    bar: object
    """tqdm's own weak reference to the bar, which identifies it."""
    n: float
    total: float
    position: int
    """Row of the bar on the terminal; the outermost bar has 0."""
    initial: float
    lag_s: float
    """Longest time in seconds before the bar counts a finished item."""
    lag_items: float
    """Largest number of finished items that the bar may not have counted yet."""
    began_at: float
    """Unix time at which the bar began."""
    description: str
    by_update: bool
    """True if only calls of `update` advance the bar. A bar around an iterable counts item by item."""


def bar_readings() -> list[BarReading]:
    """Return the readings of all living bars that have a total.

    Disabled bars (disable=True) count nothing and are left out. So are bars that count bytes (unit="B"), which show
    downloads and files.
    """
    instances = getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", None)
    references = getattr(instances, "data", None)
    if not isinstance(references, set):
        return []
    bars = list(references)
    # Read each column in one call. If this thread held a bar between two calls, it could become the bar's last owner
    # and would run its `__del__`, which prints and takes tqdm's lock.
    columns = [list(map(getattr, map(call, bars), repeat(name), repeat(None))) for name in _FIELDS]
    # Hold no iterable between two calls either: the last owner of a DataLoader's iterator has to end its workers.
    by_update = list(map(is_, map(getattr, map(call, bars), repeat("iterable"), repeat(False)), repeat(None)))
    live = []
    for bar, n, total, position, initial, interval, items, began, description, unit, updates in zip(
        bars, *columns, by_update, strict=True
    ):
        if unit in ("B", "iB"):
            continue
        if _is_number(n) and _is_number(total) and 1 <= total < _ITEMS_MOST and _is_number(position):
            live.append(
                BarReading(
                    bar,
                    n,
                    total,
                    abs(int(position)),
                    initial if _is_number(initial) else 0,
                    max(0, interval) if _is_number(interval) else 0,
                    max(0, items) if _is_number(items) else 0,
                    began if _is_number(began) else 0,
                    description if isinstance(description, str) else "",
                    updates,
                )
            )
    return live


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


class _Observation(NamedTuple):
    """A bar's count together with the steps that were finished at that moment."""

    step: int
    n: float


class _Bar:
    """Observations of one progress bar, and the ratio of items to steps that follows from them."""

    def __init__(self, reading: BarReading, before: int, step: int, at: float) -> None:
        self.last = reading
        self.first = min(reading.n, reading.initial)
        """Count with which the bar began."""
        self.ratio: tuple[int, int] | None = None
        """(items, number of steps for these items), without a common divisor; None while undecided."""
        self.counted: float | None = None
        """Count when a bar inside this one was last recognised as the training's."""
        self.stands_still = False
        """True if the count did not change while a bar inside this one made a whole pass."""
        self._between = before, step
        """Numbers of finished steps: at the last reading without this bar, and at the first reading with it."""
        self._since = at, reading.n
        self._changed = step, at
        """Number of finished steps, and time in seconds, when the bar's current count was first read."""
        self._rate = 0.0
        self._observed: list[_Observation] = []
        self._changes: list[_Observation] = []
        """The first and the last observation with a changed count."""
        self._settled_at = 0
        self._exact = False
        self._divisor = 0
        """Greatest common divisor of all advances of the bar's count."""
        self._advance: float | None = None
        """Advance of the bar's count between the last two readings."""
        self._advances_differ = False

    def observe(self, reading: BarReading, step: int, at: float) -> None:
        """Add the bar's present state to its observations."""
        advance = reading.n - self.last.n
        if advance:
            self._changed = step, at
        self.last = reading
        if self._observed:
            self._advances_differ |= self._advance not in (None, advance)
            self._advance = advance
            if reading.n < reading.total:  # The last batch may be smaller.
                self._divisor = math.gcd(self._divisor, round(advance))
        if self._observed and self._observed[-1] == (step, reading.n):
            return
        if self._observed and self._observed[-1].n != reading.n:
            self._changes = [*self._changes[:1], _Observation(step, reading.n)]
        self._observed.append(_Observation(step, reading.n))
        if len(self._observed) > _MOST_KEPT:
            del self._observed[1:-1:2]
        self._rate = (reading.n - self._since[1]) / max(at - self._since[0], 1e-3)
        if self.ratio is not None and not self._is_possible_ratio(self.ratio):
            self._forget()
        if self.ratio is None or (not self._exact and self._span()[1] >= 2 * self._settled_at):
            self._settle()

    def takes_many_steps(self, step: int, at: float) -> bool:
        """Return whether an item takes many steps, as an epoch does: the count stays the same beyond tqdm's delay."""
        since, changed_at = self._changed
        return step - since > _FEWEST and at - changed_at > 1 + 2 * self.last.lag_s and self.last.lag_items <= 1

    @property
    def advances_by_several(self) -> bool:
        """Return whether each advance was by several items. A bar over epochs advances by one."""
        return self._divisor > 1

    def _forget(self) -> None:
        del self._observed[:-1], self._changes[:-1]
        self._divisor, self._advance, self._advances_differ = 0, None, False
        self.ratio = None

    def _span(self) -> tuple[float, int]:
        """Return the number of items and of steps between the first and the last observation."""
        first, last = self._observed[0], self._observed[-1]
        return last.n - first.n, last.step - first.step

    @property
    def _unit(self) -> int:
        """Return the number of items that each update adds; 1 if the number varies or is uncertain yet."""
        if self._divisor <= 1 or not self.last.by_update:
            return 1
        # If equally many updates lie between all readings, the divisor is a multiple of the unit. It is too large if
        # steps have fewer items. If they have more (say three updates per step, read two at a time), wait until the
        # advances differ, or until there is clearly one update per step.
        items, steps = self._span()
        apart = self._divisor + self._rate * _SKEW_S
        enough = items + apart >= steps * self._divisor
        one = steps >= _STEPS_TO_SEE_ONE and items - apart <= steps * self._divisor
        return self._divisor if enough and (one or self._advances_differ) else 1

    @property
    def _lag(self) -> float:
        """Return how many items may be done but not counted yet."""
        if self._unit > 1:
            return 0  # `update` adds to the count at once and delays only the drawing.
        lag = max(self.last.lag_items, 2 * self._rate * self.last.lag_s)
        return math.ceil(lag) if lag >= 1 else 0  # tqdm counts items at once if they come less often than it draws.

    def _settle(self) -> None:
        """Decide how many items make up a step, if the observations leave only one possibility."""
        unit = self._unit
        items, steps = self._span()
        items /= unit
        if len(self._observed) < _FEWEST or len(self._changes) < 2 or steps < _FEWEST or items < 2:
            return
        several = items >= steps
        more, fewer = (items, steps) if several else (steps, items)
        least = math.floor((more - self._lag - 1) / (fewer + 1))
        most = math.ceil((more + self._lag + 1) / (fewer - 1))
        stride = -(-(most - least + 1) // _CANDIDATES_MOST)
        fitting = [
            count
            for count in range(max(0, least), most + 1, stride)
            if self._is_possible_ratio(_ratio(count, unit, several=several))
        ]
        if not fitting:
            if stride == 1 and items > 4 * (self._lag + 1):  # With fewer items, tqdm's delay may be the cause.
                self._forget()
            return
        apart = fitting[-1] - fitting[0] + 2 * (stride - 1)
        # An inexact ratio is refined later. A bar of epochs may never have enough items for an exact one.
        allowed = 0.1 if several and steps >= _MANY_STEPS else 0.0 if several or unit > 1 else 0.2
        if apart <= allowed * fitting[0]:
            first, last = self._changes
            mean = (last.n - first.n) / unit / max(1, last.step - first.step)
            count = round(mean if several else 1 / mean)
            self.ratio = _ratio(min(max(count, fitting[0]), fitting[-1]), unit, several=several)
            self._exact = apart == 0
            self._settled_at = steps

    def _is_possible_ratio(self, ratio: tuple[int, int]) -> bool:
        """Return whether all observations follow from this ratio and some step at which the bar began."""
        each = ratio[1] / ratio[0]
        lag, apart = self._lag, self._rate * each * _SKEW_S
        latest = min(at.step + 1 + apart - each * at.n for at in self._observed)
        earliest = max(at.step - apart - each * (at.n + lag + self._unit) for at in self._observed)
        return earliest <= latest

    @property
    def advances_each_step(self) -> bool:
        """Return whether the bar counts steps or parts of steps, and not passes over the data."""
        return self.ratio is not None and self.ratio[0] >= self.ratio[1]

    def possible_start(self, *expected: int) -> int:
        """Return the number of steps after which the bar began. expected: likely numbers, given the bars before it."""
        items, steps = self.ratio or (1, 1)
        each = steps / items
        began = min(at.step - each * at.n for at in self._observed) + each * self.first + max(0, 1 - each * self._unit)
        before, latest = self._between
        for place in expected:
            if before - 1 <= place <= latest + 1 and abs(place - began) <= 1 + each * self._lag:
                return place
        return min(max(math.ceil(began - _ROUNDING), before), latest)

    def steps(self, items: float) -> int:
        """Return the number of steps that this many items of the bar take."""
        each_items, each_steps = self.ratio or (1, 1)
        return math.ceil(items * each_steps / each_items - _ROUNDING)


def _ratio(count: int, unit: int, *, several: bool) -> tuple[int, int]:
    """Return (items, steps) for `count` units per step (`several`) or `count` steps per unit; 0 means 2 inverted."""
    if count < 1:
        several, count = not several, 2
    items, steps = (count * unit, 1) if several else (unit, count)
    shared = math.gcd(items, steps)
    return items // shared, steps // shared


class Bars:
    """Finds the training's bar, and reads its epochs and total. Only one thread uses this, about once a second."""

    def __init__(self, *, join_late: bool = False) -> None:
        """Start without bars. join_late: True if training already runs, so that bars can be older than step 1."""
        self._joins_late = join_late
        self.total: int | None = None
        self.epoch: int | None = None
        """Number of the current epoch, counted from 1."""
        self.epochs: int | None = None
        self._bars: dict[int, _Bar] = {}
        self._step = 0
        self._training: _Bar | None = None
        self._ratio: tuple[int, int] | None = None
        """Ratio of the training's bar when it was recognised."""
        self._outside: list[_Bar] = []
        """Bars whose items are passes of the training's bar, the outermost first."""
        self._repeats = False
        """True if the previous training bar had the same total, so that this is another pass over the same data."""
        self._end = 0
        """Number of steps that will be finished when the current pass ends."""
        self._written_from_0 = False
        """True if the epochs written beside bars begin with 0. Then the number of epochs stays unknown."""

    def read_all(self, step: int, at: float, epoch_at: float | None = None) -> None:
        """Read all bars.

        Args:
            step: Number of steps finished so far.
            at: Time in seconds of any clock.
            epoch_at: Unix time of the last `set_epoch`. A bar that began later shows only one epoch.

        """
        bars: dict[int, _Bar] = {}
        for reading in bar_readings():
            bar = self._bars.get(id(reading.bar))
            if bar is None or reading.n < bar.last.n:  # The bar is new, or has begun again.
                bar = _Bar(reading, self._step, step, at)
                if self._joins_late:
                    bar.first = reading.n
            bar.observe(reading, step, at)
            bars[id(reading.bar)] = bar
        self._bars, self._step, self._joins_late = bars, step, False
        if self.total is not None and step > self.total:
            self.total = self._ratio = None
        training = self._find()
        if training is not None and (training is not self._training or training.ratio != self._ratio):
            self._adopt(training, step, epoch_at)
        if self._outside:
            self._count_epochs(self._outside[-1])
        elif self._training is None and len(bars) == 1:
            (only,) = bars.values()
            if only.advances_by_several:
                self.epoch = self.epochs = None
            elif only.ratio is None and only.takes_many_steps(step, at):
                self._count_epochs(only)

    def _count_epochs(self, bar: _Bar) -> None:
        self.epochs = int(bar.last.total)
        self.epoch = min(int(bar.last.n) + 1, self.epochs)

    def _find(self) -> _Bar | None:
        """Return the training's bar: the outermost bar that advances each step, or else the innermost other bar."""
        counting = [bar for bar in self._bars.values() if bar.ratio is not None and bar.last.n < bar.last.total]
        each_step = [bar for bar in counting if bar.advances_each_step]
        if each_step:
            return min(each_step, key=lambda bar: bar.last.position)
        if self.total is not None and self._training is not None and self._training.advances_each_step:
            return None  # The next pass has only just begun.
        return max(counting, key=lambda bar: bar.last.position, default=None)

    def _adopt(self, bar: _Bar, step: int, epoch_at: float | None) -> None:
        """Accept a bar as the training's, and compute the total number of steps from it."""
        before, self._training, self._ratio = self._training, bar, bar.ratio
        if before is not bar:
            self._repeats = before is not None and before.last.total == bar.last.total
        whole = bar.steps(bar.last.total)
        self._outside = self._around(bar)
        if before is not bar and self._repeats:
            while self._outside and self._outside[-1].counted == self._outside[-1].last.n:
                self._outside.pop().stands_still = True
        done, passes = 0, 1
        for outer in self._outside:
            outer.counted = outer.last.n
            done = done * int(outer.last.total) + int(outer.last.n)
            passes *= int(outer.last.total)
        if before is bar:  # Only the bar's ratio has changed.
            self._end = step + bar.steps(bar.last.total - bar.last.n)
        else:
            self._end = bar.possible_start(whole * done, self._end) + bar.steps(bar.last.total - bar.first)
        written = _EPOCH_OF.search(bar.last.description)
        alone = epoch_at is not None and epoch_at <= bar.last.began_at
        self.epoch = self.epochs = None
        if self._outside:
            self.total = self._end + whole * (passes - done - 1)
        elif not bar.advances_each_step:
            self.total = self._end
            self._outside = [bar]
        elif written is not None:
            epoch, epochs = int(written[1]), int(written[2])
            self._written_from_0 = self._written_from_0 or epoch == 0
            if self._written_from_0:
                self.epoch, self.total = epoch + 1, None
            else:
                self.epoch, self.epochs = epoch, epochs
                self.total = self._end + whole * max(0, epochs - epoch)
        else:
            self.total = None if self._repeats or alone else self._end

    def _around(self, bar: _Bar) -> list[_Bar]:
        """Return the bars outside a bar, the outermost first."""
        outside = [
            other
            for other in self._bars.values()
            if other.last.position < bar.last.position
            and other.last.began_at <= bar.last.began_at
            and other.last.n < other.last.total
            and not other.stands_still
        ]
        return sorted(outside, key=lambda other: other.last.position)
