"""Pauses between training steps: evaluations, checkpoints, compilation, or unknown causes.

Steps in which any rank paused are excluded: means, efficiencies and everything else are computed from training steps
alone. The additional time of steps with pauses is counted by kind of pause.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import PHASE_FIELDS, Rows
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import duration, named_ranks
from ddpmon.messages import EXCLUDED_PAUSES, OUT_OF_DATA, OWN_PHASES, PAUSE, PAUSES
from ddpmon.messages import steps as wire

USUAL_LENGTH_STEPS = 50
"""Number of steps whose median is the usual length: enough for a median, few enough to follow changes of pace."""
MIN_STEPS = 10
"""Minimum number of training steps from which the usual length of a step is known."""
PAUSE_RATIO = Threshold(
    10.0,
    of="length of a step without a reported pause, or of a first step, as a multiple of the usual step",
    why="A judgement call: no training step takes that long by chance, so the rank compiled code or did other work.",
)
LEAST_US = Threshold(
    500_000,
    of="length of a noticeable pause in µs; if no rank reported the pause, the excess of the step over the usual step",
    why="A judgement call: people notice half a second. A limit of ten times the usual step would be too low, "
    "because steps of a few ms can take that long on a busy machine.",
)
SELDOM = Threshold(
    0.05,
    of="share of the recent steps that are much longer than usual, although no rank reported a pause",
    why="A judgement call: if long steps are more frequent than that, they are a normal part of the training, "
    "and ddpmon does not call them pauses.",
    below=True,
)
MAX_LATEST = 64
"""Maximum number of latest pauses that are recorded one by one, to limit memory."""


class Pause(msgspec.Struct, frozen=True):
    """A pause of one or more ranks."""

    kind: str
    """One of PAUSES."""
    step: int
    """The step before which, or in which, the ranks paused; the latest such step if they were out of data."""
    seconds: float
    """Duration in seconds on the rank where the pause was longest."""
    ranks: tuple[int, ...]
    """Ranks that paused; if the kind is unknown, the rank with the most own time in that step."""
    phase: str = ""
    """The phase that took longest on that rank if the kind is unknown."""

    def event_text(self, world_size: int) -> str:
        """Return the text of the event for the pause once it has ended."""
        who = named_ranks(self.ranks, world_size)
        if self.kind == PAUSES[OUT_OF_DATA]:
            return f"{who} ran out of data after step {self.step - 1:,}; the other ranks continue to train"
        on = "" if len(self.ranks) == world_size else f" on {who}"
        where = f", in {self.phase}" if self.phase else ""
        return f"{self.kind} before step {self.step:,}: {duration(self.seconds)}{on}{where}"


class Times(msgspec.Struct):
    """The total training time and pause time since the first step, in seconds."""

    last: int = 0
    """The last step that was counted."""
    training_s: float = 0.0
    paused_s: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(PAUSES))
    """Seconds of each kind of pause, in the order of PAUSES."""
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * len(PAUSES))
    latest: list[Pause] = msgspec.field(default_factory=list)


class PauseFilter:
    """Separates steps with pauses from training steps, and counts the time of both."""

    def __init__(self, times: Times | None = None) -> None:
        """Continue from recorded times; raise ValueError if they have other kinds of pauses."""
        self.times = times or Times()
        for listed in (self.times.paused_s, self.times.counts):
            listed.extend([0] * (len(PAUSES) - len(listed)))  # The recording may be older than some kinds of pauses.
        if {len(self.times.paused_s), len(self.times.counts)} != {len(PAUSES)}:
            raise ValueError("seconds or counts of other kinds of pauses")
        self.for_events: list[Pause] = []
        """Pauses that deserve an event; the code that makes the events clears this list."""
        self._usual: deque[float] = deque(maxlen=USUAL_LENGTH_STEPS)
        """Lengths of the latest training steps."""
        self._paused: deque[bool] = deque(maxlen=USUAL_LENGTH_STEPS)
        """True for each of the latest steps in which a rank reported a pause."""
        self._long: deque[bool] = deque(maxlen=USUAL_LENGTH_STEPS)
        """True for each of the latest steps that took far longer than usual."""

    def training_steps(self, rows: Rows) -> Rows | None:
        """Count further steps and return the training steps among them; None if there are none."""
        lengths, numbers = rows.integer_field("length_us").mean(axis=1).tolist(), rows.step_numbers()
        kept = [
            place
            for place, (number, length) in enumerate(zip(numbers, lengths, strict=True))
            if self._trains(rows, place, number, length)
        ]
        if len(kept) == len(rows):
            return rows
        return rows.steps_at(kept) if kept else None

    def _trains(self, rows: Rows, place: int, step: int, length: float) -> bool:
        """Count the step at index `place` of the rows, and return whether it is a training step."""
        by_rank = {rank: record.pauses for rank, record in rows.odd_records(place).items() if record.pauses}
        self._paused.append(bool(by_rank))
        pauses = _pauses(by_rank, step)
        rest = length - sum(pause.seconds for pause in pauses) * 1e6
        usual = statistics.median(self._usual) if len(self._usual) >= MIN_STEPS else rest
        long = rest >= max(PAUSE_RATIO.enter * usual, usual + LEAST_US.enter)
        self._long.append(long)
        long = long and sum(self._long) <= SELDOM.enter * USUAL_LENGTH_STEPS
        if long:
            pauses.append(_unknown(rows.steps_at([place]), step, rest - usual))
        self._count(step, length, pauses)
        if any(PAUSES.index(pause.kind) in EXCLUDED_PAUSES for pause in pauses):
            return False
        if by_rank:
            # If most steps contain pauses, keep these steps and subtract the pauses. Otherwise hardly any step would
            # be left.
            return len(self._paused) >= 2 * MIN_STEPS and 2 * sum(self._paused) > len(self._paused)
        if not long:
            self._usual.append(length)
        return not long

    def add_final(self, rest: Mapping[int, Sequence[wire.Pause]], step: int) -> None:
        """Count the pauses of ranks after the last step; `step` is the number of the step that would have come next."""
        self._count(step, 0, _pauses(rest, step))

    def _count(self, step: int, length_us: float, pauses: Sequence[Pause]) -> None:
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
            # Only the first, second, fourth, eighth … pause of a kind gets an event.
            told = LEAST_US.is_reached(pause.seconds * 1e6) or kind == OUT_OF_DATA
            if told and times.counts[kind].bit_count() == 1:
                self.for_events.append(pause)
        times.training_s += max(0.0, length_us / 1e6 - sum(pause.seconds for pause in pauses))
        times.latest = latest[-MAX_LATEST:] if pauses else times.latest


def _goes_on(before: Pause, pause: Pause) -> bool:
    """Return whether ranks that were out of data in the step before are still out of data, in one continuous pause."""
    out_of_data = before.kind == pause.kind == PAUSES[OUT_OF_DATA]
    return out_of_data and before.step == pause.step - 1 and {*pause.ranks} <= {*before.ranks}


def _pauses(by_rank: Mapping[int, Sequence[wire.Pause]], step: int) -> list[Pause]:
    """Return one pause for each kind that ranks reported before a step. Its duration is that of the longest."""
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
    """Return a pause of unknown cause, which no rank reported, on the rank with the most own time in the step."""
    phases = np.stack([rows.integer_field(name)[0] for name in PHASE_FIELDS], axis=-1)
    most = int(phases.sum(axis=1).argmax())
    return Pause(PAUSES[PAUSE], step, over_us / 1e6, (rows.ranks[most],), OWN_PHASES[int(phases[most].argmax())])
