"""Pauses between training steps: evaluations, checkpoints, compilation, or unknown causes.

A step in which any rank did so is set apart: means, efficiencies and everything else are of training steps alone, and
the time that such steps took beyond training is counted by kind.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import PHASES, Rows
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import APART, OUT_OF_DATA, OWN_PHASES, PAUSE, PAUSES
from ddpmon.messages import steps as wire

RECENT = 50
"""Steps whose median is the usual length: enough for a median, few enough to follow a run that changes its pace."""
MIN_STEPS = 10
"""Training steps before it that a step is compared with, at least: before that nothing is usual yet."""
TIMES = Threshold(
    10.0,
    of="length of a step without a reported pause, or of a first step, as a multiple of the usual step",
    why="A judgement call: no training step takes that long by chance, so the rank compiled code or did other work.",
)
LEAST_US = Threshold(
    500_000,
    of="length of a noticeable pause in µs; if no rank reported the pause, the excess of the step over the usual step",
    why="A judgement call: people notice half a second. Ten times the usual step would not be enough, because "
    "on a busy machine, steps of a few ms become that long.",
)
SELDOM = Threshold(
    0.05,
    of="share of the recent steps that are much longer than usual, although no rank reported a pause",
    why="A judgement call: if long steps are more frequent than that, they are a normal part of the training, "
    "and ddpmon does not call them pauses.",
    below=True,
)
MAX_LATEST = 64
"""Pauses that are kept one by one, so that memory is bounded."""


class Pause(msgspec.Struct, frozen=True):
    """One pause of the world."""

    kind: str
    """One of PAUSES."""
    step: int
    """The step before which, or in which, it was; of ranks out of data, the latest."""
    seconds: float
    """On the rank where it took longest."""
    ranks: tuple[int, ...]
    """Ranks that paused; of an unknown kind, the one with the most own time in that step."""
    phase: str = ""
    """The phase that took longest on that rank, if the kind is unknown."""


class Times(msgspec.Struct):
    """Training and pauses since the first step, in seconds of the world."""

    last: int = 0
    """The last step that is counted."""
    training_s: float = 0.0
    paused_s: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(PAUSES))
    """Seconds of each kind, in the order of PAUSES."""
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * len(PAUSES))
    latest: list[Pause] = msgspec.field(default_factory=list)


class PauseFilter:
    """Sets steps with pauses apart from training steps, and counts the time of both."""

    def __init__(self, times: Times | None = None) -> None:
        """Go on from times that were recorded; raise ValueError if they are of other kinds of pauses."""
        self.times = times or Times()
        for listed in (self.times.paused_s, self.times.counts):
            listed.extend([0] * (len(PAUSES) - len(listed)))  # kinds that are newer than the recording
        if {len(self.times.paused_s), len(self.times.counts)} != {len(PAUSES)}:
            raise ValueError("seconds or counts of other kinds of pauses")
        self.for_events: list[Pause] = []
        """Pauses that are worth an event; the maker of the events clears them."""
        self._usual: deque[int] = deque(maxlen=RECENT)
        """Lengths of the latest training steps."""
        self._paused: deque[bool] = deque(maxlen=RECENT)
        """True for each of the latest steps in which a rank reported a pause."""
        self._long: deque[bool] = deque(maxlen=RECENT)
        """True for each of the latest steps that took far longer than usual."""

    def training_steps(self, rows: Rows) -> Rows | None:
        """Count further steps and return those of training; None if there is none."""
        lengths, numbers = rows.number("length_us").max(axis=1).tolist(), rows.step_numbers()
        kept = [
            place
            for place, (number, length) in enumerate(zip(numbers, lengths, strict=True))
            if self._trains(rows, place, number, length)
        ]
        if len(kept) == len(rows):
            return rows
        return rows.part(kept) if kept else None

    def _trains(self, rows: Rows, place: int, step: int, length: int) -> bool:
        """Count a step and return whether it is one of training. place: its index among the rows."""
        by_rank = {rank: record.pauses for rank, record in rows.records(place).items() if record.pauses}
        self._paused.append(bool(by_rank))
        pauses = _pauses(by_rank, step)
        rest = length - sum(pause.seconds for pause in pauses) * 1e6
        usual = statistics.median(self._usual) if len(self._usual) >= MIN_STEPS else rest
        long = rest >= max(TIMES.enter * usual, usual + LEAST_US.enter)
        self._long.append(long)
        long = long and sum(self._long) <= SELDOM.enter * RECENT
        if long:
            pauses.append(_unknown(rows.part([place]), step, rest - usual))
        self._count(step, length, pauses)
        if any(PAUSES.index(pause.kind) in APART for pause in pauses):
            return False
        if by_rank:
            # In a run that pauses in most steps hardly one would be left: the pauses are taken out of them.
            return len(self._paused) >= 2 * MIN_STEPS and 2 * sum(self._paused) > len(self._paused)
        if not long:
            self._usual.append(length)
        return not long

    def add_final(self, rest: Mapping[int, Sequence[wire.Pause]], step: int) -> None:
        """Count the pauses of ranks after the last step. step: number of the one that would have come."""
        self._count(step, 0, _pauses(rest, step))

    def _count(self, step: int, length_us: int, pauses: Sequence[Pause]) -> None:
        times = self.times
        if step <= times.last:
            return
        times.last = step
        latest = list(times.latest)
        for pause in pauses:
            kind = PAUSES.index(pause.kind)
            times.paused_s[kind] += pause.seconds
            before = next((one for one in latest if _goes_on(one, pause)), None)
            if before is not None:
                latest.remove(before)
                latest.append(msgspec.structs.replace(pause, seconds=before.seconds + pause.seconds))
                continue
            latest.append(pause)
            times.counts[kind] += 1
            # The first, second, fourth, eighth of a kind.
            told = LEAST_US.reached(pause.seconds * 1e6) or kind == OUT_OF_DATA
            if told and times.counts[kind].bit_count() == 1:
                self.for_events.append(pause)
        times.training_s += max(0.0, length_us / 1e6 - sum(pause.seconds for pause in pauses))
        times.latest = latest[-MAX_LATEST:] if pauses else times.latest


def _goes_on(before: Pause, pause: Pause) -> bool:
    """Return whether ranks were out of data in the step before too: until they have some again, it is one pause."""
    out_of_data = before.kind == pause.kind == PAUSES[OUT_OF_DATA]
    return out_of_data and before.step == pause.step - 1 and {*pause.ranks} <= {*before.ranks}


def _pauses(by_rank: Mapping[int, Sequence[wire.Pause]], step: int) -> list[Pause]:
    """Return one pause of each kind before a step, as long as on the rank that took longest."""
    by_kind: dict[int, tuple[float, list[int]]] = {}
    for rank, pauses in by_rank.items():
        spent: dict[int, int] = {}
        for pause in pauses:
            spent[pause.kind] = spent.get(pause.kind, 0) + pause.end_us - pause.start_us
        for kind, us in spent.items():
            longest, those = by_kind.get(kind, (0.0, []))
            by_kind[kind] = max(longest, us / 1e6), [*those, rank]
    return [Pause(PAUSES[kind], step, seconds, tuple(those)) for kind, (seconds, those) in sorted(by_kind.items())]


def _unknown(rows: Rows, step: int, over_us: float) -> Pause:
    """Return the pause in one step that no rank reported, of the rank with the most own time."""
    phases = np.stack([rows.number(name)[0] for name in PHASES], axis=-1)
    most = int(phases.sum(axis=1).argmax())
    return Pause(PAUSES[PAUSE], step, over_us / 1e6, (rows.ranks[most],), OWN_PHASES[int(phases[most].argmax())])
