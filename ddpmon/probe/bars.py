"""What tqdm's progress bars know: how many steps there will be, and which epoch of how many this is.

Nobody says which bar is the training's: it is the one that advances with the steps, one item a step, or some (the
micro-batches that gradients are accumulated over, the samples of a batch), or one in some steps (epochs). A bar counts
an item some time after it was done, and steps end in the midst of items, so every look at both leaves a range for
where the bar began; the right ratio is one for which these ranges have something in common, and none beside it has.

Bars are read from outside: no lock of tqdm's is taken, and none lives longer because it was looked at.
"""

from __future__ import annotations

import math
import re
import sys
from itertools import repeat
from operator import call
from typing import NamedTuple

_FIELDS = ("n", "total", "pos", "initial", "mininterval", "miniters", "start_t", "desc")
_LOOKS = 3
"""At least, before a ratio is believed; so many steps too."""
_MANY_STEPS = 100
_CANDIDATES_MOST = 16
"""That are tried at a look."""
_LOOKS_MOST = 128
"""That are kept of a bar."""
_ITEMS_MOST = 1 << 40
_ROUNDING = 1e-6
_EPOCH_OF = re.compile(r"epoch\W{0,3}(\d{1,7}) ?(?:/|of) ?(\d{1,7})", re.IGNORECASE)
"""What people write before a bar: "Epoch 2/10", "Epoch [2/10]"."""


class Reading(NamedTuple):
    """A bar at this moment."""

    bar: object
    """tqdm's own weak reference to it: who it is."""
    n: float
    total: float
    position: int
    """The outermost one's is 0."""
    initial: float
    lag_s: float
    """How long an item may wait to be counted."""
    lag_items: float
    """How many may."""
    began_at: float
    """Unix time."""
    description: str


def readings() -> list[Reading]:
    """The bars that live and know their total. Those that were told to show nothing know nothing either."""
    instances = getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", None)
    references = getattr(instances, "data", None)
    if not isinstance(references, set):
        return []
    bars = list(references)
    # Each column in one call: a bar that was held across two could lose its last other owner between them, and its end
    # (which prints, and takes tqdm's lock) would come in this thread.
    columns = [list(map(getattr, map(call, bars), repeat(name), repeat(None))) for name in _FIELDS]
    found = []
    for bar, n, total, position, initial, interval, items, began, description in zip(bars, *columns, strict=True):
        if _is_number(n) and _is_number(total) and 1 <= total < _ITEMS_MOST and _is_number(position):
            found.append(
                Reading(
                    bar,
                    n,
                    total,
                    abs(int(position)),
                    initial if _is_number(initial) else 0,
                    max(0, interval) if _is_number(interval) else 0,
                    max(0, items) if _is_number(items) else 0,
                    began if _is_number(began) else 0,
                    description if isinstance(description, str) else "",
                )
            )
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


class _Look(NamedTuple):
    step: int
    n: float


class _Bar:
    """One bar, as far as it was followed."""

    def __init__(self, reading: Reading, before: int, step: int, at: float) -> None:
        self.last = reading
        self.first = min(reading.n, reading.initial)
        """Its count at its beginning."""
        self.ratio: tuple[int, int] | None = None
        """(items, the steps in which they are done); one of the two is 1. None: not known."""
        self.counted: float | None = None
        """Its count when a bar inside it was last found to be the training's."""
        self.stands_still = False
        """It did not count the passes of a bar inside it."""
        self._between = before, step
        """Steps that were finished when it was not there yet, and when it was."""
        self._since = at, reading.n
        self._rate = 0.0
        self._looks: list[_Look] = []
        self._changes: list[_Look] = []
        """The first and the last look that found its count changed."""
        self._settled_at = 0
        self._exact = False

    def look(self, reading: Reading, step: int, at: float) -> None:
        """Take the bar at this moment."""
        self.last = reading
        if self._looks and self._looks[-1] == (step, reading.n):
            return
        if self._looks and self._looks[-1].n != reading.n:
            self._changes = [*self._changes[:1], _Look(step, reading.n)]
        self._looks.append(_Look(step, reading.n))
        if len(self._looks) > _LOOKS_MOST:
            del self._looks[1:-1:2]
        self._rate = (reading.n - self._since[1]) / max(at - self._since[0], 1e-3)
        if self.ratio is not None and not self._fits(self.ratio):
            self._forget()
        if self.ratio is None or (not self._exact and self._span()[1] >= 2 * self._settled_at):
            self._settle()

    def _forget(self) -> None:
        del self._looks[:-1], self._changes[:-1]
        self.ratio = None

    def _span(self) -> tuple[float, int]:
        """How many items and steps lie between the first and the last look."""
        first, last = self._looks[0], self._looks[-1]
        return last.n - first.n, last.step - first.step

    @property
    def _lag(self) -> float:
        """Items that may have been done and are not counted yet."""
        lag = max(self.last.lag_items, 2 * self._rate * self.last.lag_s)
        return math.ceil(lag) if lag >= 1 else 0  # tqdm counts at once what comes less often than it draws

    def _settle(self) -> None:
        """Find how many items are a step, if what was seen leaves no other possibility."""
        items, steps = self._span()
        if len(self._looks) < _LOOKS or len(self._changes) < 2 or steps < _LOOKS or items < 2:
            return
        several = items >= steps
        more, fewer = (items, steps) if several else (steps, items)
        least = math.floor((more - self._lag - 1) / (fewer + 1))
        most = math.ceil((more + self._lag + 1) / (fewer - 1))
        stride = -(-(most - least + 1) // _CANDIDATES_MOST)
        fitting = [
            count for count in range(max(0, least), most + 1, stride) if self._fits(_ratio(count, several=several))
        ]
        if not fitting:
            if stride == 1 and items > 4 * (self._lag + 1):  # else it may only be that it was looked at too early
                self._forget()
            return
        apart = fitting[-1] - fitting[0] + 2 * (stride - 1)
        # Of many steps, and of epochs, which are few, it need not be known to the last one.
        allowed = 0.1 if several and steps >= _MANY_STEPS else 0.0 if several else 0.2
        if apart <= allowed * fitting[0]:
            first, last = self._changes
            mean = (last.n - first.n) / max(1, last.step - first.step)
            count = round(mean if several else 1 / mean)
            self.ratio = _ratio(min(max(count, fitting[0]), fitting[-1]), several=several)
            self._exact = apart == 0
            self._settled_at = steps

    def _fits(self, ratio: tuple[int, int]) -> bool:
        """Whether there is a beginning from which this ratio leads to everything that was seen."""
        each = ratio[1] / ratio[0]
        lag, apart = self._lag, self._rate * each * 0.02  # step and bar are not read in the same instant
        latest = min(look.step + 1 + apart - each * look.n for look in self._looks)
        earliest = max(look.step - apart - each * (look.n + lag + 1) for look in self._looks)
        return earliest <= latest

    @property
    def advances_each_step(self) -> bool:
        """Whether it counts something finer than passes over the data."""
        return self.ratio is not None and self.ratio[1] == 1

    def place(self, *expected: int) -> int:
        """After how many steps it began. expected: where it may well have, going by what was there before."""
        items, steps = self.ratio or (1, 1)
        each = steps / items
        began = min(look.step - each * look.n for look in self._looks) + each * self.first + (items - 1) / items
        before, seen = self._between
        for place in expected:
            if before - 1 <= place <= seen + 1 and abs(place - began) <= 1 + each * self._lag:
                return place
        return min(max(math.ceil(began - _ROUNDING), before), seen)

    def steps(self, items: float) -> int:
        """How many steps so many of its items are."""
        each_items, each_steps = self.ratio or (1, 1)
        return math.ceil(items * each_steps / each_items - _ROUNDING)


def _ratio(count: int, *, several: bool) -> tuple[int, int]:
    """So many items a step, or so many steps an item; the neighbour of one on either side is two on the other."""
    if count < 1:
        return (1, 2) if several else (2, 1)
    return (count, 1) if several else (1, count)


class Bars:
    """Finds the training's bar among all, and what it tells. For one thread, which looks about once a second."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.epoch: int | None = None
        """The one that runs, counted from 1."""
        self.epochs: int | None = None
        self._bars: dict[int, _Bar] = {}
        self._step = 0
        self._training: _Bar | None = None
        self._ratio: tuple[int, int] | None = None
        """Of the training's bar, when it was taken for that."""
        self._outside: list[_Bar] = []
        """Bars whose items are passes of the training's, the outermost first."""
        self._again = False
        """Whether there was one just like it before."""
        self._end = 0
        """Of the latest pass: the steps that will be finished then."""

    def look(self, step: int, at: float, epoch_at: float | None = None) -> None:
        """Look at all bars.

        step: finished so far. at: seconds of any clock. epoch_at: Unix time of the last `set_epoch`; a bar that began
        after it is of one epoch alone.
        """
        bars: dict[int, _Bar] = {}
        for reading in readings():
            bar = self._bars.get(id(reading.bar))
            if bar is None or reading.n < bar.last.n:  # new, or begun again
                bar = _Bar(reading, self._step, step, at)
            bar.look(reading, step, at)
            bars[id(reading.bar)] = bar
        self._bars, self._step = bars, step
        if self.total is not None and step > self.total:
            self.total = self._ratio = None
        training = self._find()
        if training is not None and (training is not self._training or training.ratio != self._ratio):
            self._take(training, step, epoch_at)
        if self._outside:
            counting = self._outside[-1].last
            self.epochs = int(counting.total)
            self.epoch = min(int(counting.n) + 1, self.epochs)

    def _find(self) -> _Bar | None:
        """The training's bar: the outermost that advances in each step, else the innermost of those that do not."""
        known = [bar for bar in self._bars.values() if bar.ratio is not None and bar.last.n < bar.last.total]
        often = [bar for bar in known if bar.advances_each_step]
        if often:
            return min(often, key=lambda bar: bar.last.position)
        if self.total is not None and self._training is not None and self._training.advances_each_step:
            return None  # the next pass has only begun
        return max(known, key=lambda bar: bar.last.position, default=None)

    def _take(self, bar: _Bar, step: int, epoch_at: float | None) -> None:
        """A bar was found to be the training's: work out the total."""
        before, self._training, self._ratio = self._training, bar, bar.ratio
        if before is not bar:
            self._again = before is not None and before.last.total == bar.last.total
        whole = bar.steps(bar.last.total)
        self._outside = self._around(bar)
        if before is not bar and self._again:
            while self._outside and self._outside[-1].counted == self._outside[-1].last.n:
                self._outside.pop().stands_still = True
        done, passes = 0, 1
        for outer in self._outside:
            outer.counted = outer.last.n
            done = done * int(outer.last.total) + int(outer.last.n)
            passes *= int(outer.last.total)
        if before is bar:  # something about it is not as was thought
            self._end = step + bar.steps(bar.last.total - bar.last.n)
        else:
            self._end = bar.place(whole * done, self._end) + bar.steps(bar.last.total - bar.first)
        written = _EPOCH_OF.search(bar.last.description)
        alone = epoch_at is not None and epoch_at <= bar.last.began_at
        self.epoch = self.epochs = None
        if self._outside:
            self.total = self._end + whole * (passes - done - 1)
        elif not bar.advances_each_step:
            self.total = self._end
            self._outside = [bar]
        elif written is not None:
            self.epoch, self.epochs = int(written[1]), int(written[2])
            self.total = self._end + whole * max(0, self.epochs - self.epoch)
        else:
            self.total = None if self._again or alone else self._end

    def _around(self, bar: _Bar) -> list[_Bar]:
        """The bars outside it, the outermost first."""
        outside = [
            other
            for other in self._bars.values()
            if other.last.position < bar.last.position
            and other.last.began_at <= bar.last.began_at
            and other.last.n < other.last.total
            and not other.stands_still
        ]
        return sorted(outside, key=lambda other: other.last.position)
