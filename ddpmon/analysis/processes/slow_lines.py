"""Finds the line of code behind a slowdown: the stack samples of a slow rank are compared with those of a peer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.words import format_count
from ddpmon.messages import LOADER_ITERATOR, OWN_PHASES, SampledStack, StackSamples

MIN_PLACE_SAMPLES = 8
"""Minimum number of samples that must show a place in the script. Fewer samples may all be from one unusual step."""
LISTED_SHARE = 0.15
"""Minimum share of a function's samples with which a line is listed, if several lines share the excess."""


@dataclass(frozen=True)
class SlowLine:
    """The place in the script at which a slow rank spends its excess."""

    place: str
    """"dataset.py:57 __getitem__", or "dataset.py:57-61 __getitem__" if several lines share the excess."""
    inside: str
    """The library function that the place has called: "PIL/Image.py open"; "": no Python function."""
    ms: float
    """Time per step in ms that the rank spends in the place beyond its peer."""
    interval_ms: tuple[float, float]
    """95% interval of `ms`."""
    share: float
    """Share of the rank's samples that show the place. Samples of waits count in the total."""
    peer_share: float | None
    """Share of the peer's samples that show the place; None: there is no peer, or the samples are of workers."""
    samples: int
    """Number of the rank's samples."""
    rank: int
    """The rank that was sampled."""
    peer: int | None
    """The rank with which the slow rank is compared; None: no peer."""
    of_workers: bool = False
    """True if samples, shares and place are of the DataLoader workers that the rank waited for."""

    @property
    def brief(self) -> str:
        """Return only file and line, as in "dataset.py:57"."""
        return self.place.partition(" ")[0].rpartition("/")[2]


def slow_line(mine: StackSamples, theirs: StackSamples | None, phase: str, excess_ms: float) -> SlowLine | None:
    """Return the line that explains the excess; None if the samples do not show one.

    Args:
        mine: Samples of the slow rank.
        theirs: Samples of a peer; None: all ranks are slow, so there is no peer to compare with.
        phase: The phase in which the rank is slow.
        excess_ms: Excess of the rank in the phase, in ms of a mean step.

    """
    index = OWN_PHASES.index(phase)
    of_workers = phase == "data" and waits_for_workers(mine)
    others = _Profile([], 0.0)
    if of_workers:
        ours = _of_workers(mine, excess_ms)
    else:
        ours = _of_rank(mine, index)
        others = others if theirs is None else _of_rank(theirs, index)
    places = [place for place in ours.depth if _explains(ours, others, place, excess_ms)]
    if not places:
        return None
    function = max(places, key=ours.depth.__getitem__)
    lines = ours.lines[function]
    most, count = lines.most_common(1)[0]
    alone = (*function, most)
    if count >= EXPLAINS.enter * lines.total() and _explains(ours, others, alone, excess_ms):
        numbers, where = str(most), alone
    else:
        listed = sorted((line for line, seen in lines.items() if seen >= LISTED_SHARE * lines.total()), key=int)
        numbers, where = f"{listed[0]}-{listed[-1]}" if len(listed) > 1 else str(most), function
    low, high = _interval(ours, others, where)
    return SlowLine(
        place=f"{function[0]}:{numbers} {function[1]}",
        inside=ours.called(where),
        ms=ours.ms(where) - others.ms(where),
        interval_ms=(max(0.0, low), high),
        share=ours.counts[where] / (ours.total if of_workers else mine.count),
        peer_share=None if theirs is None or of_workers else others.counts[where] / theirs.count,
        samples=ours.total if of_workers else mine.count,
        rank=mine.rank,
        peer=None if theirs is None else theirs.rank,
        of_workers=of_workers,
    )


def waits_for_workers(samples: StackSamples) -> bool:
    """Return whether most samples in `data` show the rank waiting for DataLoader workers."""
    data = [stack for stack in samples.stacks if OWN_PHASES[stack.phase] == "data"]
    waiting = sum(stack.count for stack in data if _is_waiting(stack))
    return waiting > 0.5 * sum(stack.count for stack in data)


def _of_rank(samples: StackSamples, phase: int) -> _Profile:
    """Return the profile of a rank's own work in a phase, without waits for workers."""
    stacks = [one for one in samples.stacks if one.phase == phase and not _is_waiting(one)]
    return _Profile(stacks, samples.sample_ms / samples.steps)


def _of_workers(samples: StackSamples, excess_ms: float) -> _Profile:
    """Return the profile of the workers for which the rank waited. All their samples together represent the excess."""
    total = sum(stack.count for stack in samples.workers)
    return _Profile(samples.workers, excess_ms / max(1, total))


def _explains(ours: _Profile, others: _Profile, place: Place, excess_ms: float) -> bool:
    """Return whether a place explains the excess even at the lower end of its time's confidence interval."""
    over = ours.ms(place) - others.ms(place)
    enough = ours.counts[place] >= MIN_PLACE_SAMPLES and over >= EXPLAINS.enter * excess_ms
    return enough and _interval(ours, others, place)[0] >= EXPLAINS.stay * excess_ms


def _interval(ours: _Profile, others: _Profile, place: Place) -> tuple[float, float]:
    """Return the 95% interval of the difference, in ms; counts are assumed to be Poisson distributed."""
    over = ours.ms(place) - others.ms(place)
    variance = sum(one.each_ms**2 * (one.counts[place] + 1) for one in (ours, others))
    return over - 1.96 * sqrt(variance), over + 1.96 * sqrt(variance)


Place = tuple[str, ...]
"""A place in the script: (file, function) or (file, function, line)."""


class _Profile:
    """Samples in a phase, counted by the script's functions that were running, and by their lines."""

    def __init__(self, stacks: Sequence[SampledStack], each_ms: float) -> None:
        self._stacks, self.each_ms = stacks, each_ms
        """Time in ms of a mean step that one sample represents."""
        self.total = sum(stack.count for stack in stacks)
        self.counts: Counter[Place] = Counter()
        self.lines: dict[Place, Counter[str]] = defaultdict(Counter)
        """Number of samples by line, for each function of the script."""
        self.depth: dict[Place, int] = {}
        """Greatest depth at which each function of the script was seen."""
        for stack in stacks:
            for place, (line, depth) in dict(_own_frames(stack)).items():
                self.counts[place] += stack.count
                self.counts[(*place, line)] += stack.count
                self.lines[place][line] += stack.count
                self.depth[place] = max(depth, self.depth.get(place, 0))

    def ms(self, place: Place) -> float:
        """Return the time in ms of a mean step that is spent in a place."""
        return self.counts[place] * self.each_ms

    def called(self, place: Place) -> str:
        """Return the innermost library function in which most samples of a place are; "" if there is none."""
        inside: Counter[Place] = Counter()
        depths: dict[Place, int] = {}
        for stack in self._stacks:
            through = [index for index in stack.own if _parted(stack.frames[index])[: len(place)] == place]
            inner = stack.frames[: through[0]] if through else []
            for function in {_parted(frame)[:2] for frame in inner}:
                inside[function] += stack.count
            for index, frame in enumerate(inner):
                depths[_parted(frame)[:2]] = len(stack.frames) - index
        most = [function for function, count in inside.items() if count >= EXPLAINS.enter * self.counts[place]]
        if not most:
            return ""
        innermost = max(most, key=depths.__getitem__)
        return " ".join(innermost)


def _own_frames(stack: SampledStack) -> Iterator[tuple[Place, tuple[str, int]]]:
    """Yield the script's functions in a stack, outermost first; a recursive function's innermost frame comes last."""
    for index in reversed(stack.own):
        file, function, line = _parted(stack.frames[index])
        yield (file, function), (line, len(stack.frames) - index)


def _parted(frame: str) -> tuple[str, str, str]:
    """Return file, function and line of a frame."""
    where, _, function = frame.partition(" ")
    file, _, line = where.rpartition(":")
    return file, function, line


def _is_waiting(stack: SampledStack) -> bool:
    """Return whether a stack shows a wait for DataLoader workers, whose work is in other processes."""
    return any(f" {LOADER_ITERATOR}" in frame for frame in stack.frames)


def line_of_ranks(
    samples: Sequence[StackSamples],
    slow: Sequence[int],
    phase: str,
    since: int,
    excess_ms: float,
    *,
    whole_world: bool = False,
) -> SlowLine | None:
    """Return the line behind a slowdown of some ranks; None if it was not sampled, or the samples do not show one.

    Args:
        samples: The latest samples of each rank that was sampled.
        slow: The slow ranks.
        phase: The phase in which the ranks are slow.
        since: First slow step of these ranks.
        excess_ms: Excess of these ranks in the phase, in ms of a mean step.
        whole_world: True if all ranks are slow, so that there are no peers to compare with.

    """
    mine = [one for one in samples if one.rank in slow and one.first_step >= since]
    peers = [one for one in samples if one.rank not in slow and one.first_step >= since]
    theirs = [None] if whole_world else peers
    found = (slow_line(one, other, phase, excess_ms) for one in mine for other in theirs)
    return next((line for line in found if line), None)


def line_words(line: SlowLine, excess_ms: float) -> str:
    """Return two sentences: the line that takes the time, and how certain that is."""
    low, high = line.interval_ms
    inside = f", inside {line.inside}" if line.inside else ""
    took = f"Look at {line.place}{inside}: it takes {min(line.ms, excess_ms):.1f} of the {excess_ms:.1f} ms a step"
    took += f" (95% interval {low:.1f} to {high:.1f})"
    whose = f"the DataLoader workers of rank {line.rank}" if line.of_workers else f"rank {line.rank}"
    others = "" if line.peer_share is None else f", and {line.peer_share:.0%} of rank {line.peer}'s"
    return f"{took}. {line.share:.0%} of {format_count(line.samples, 'stack sample')} of {whose} show it{others}."


def line_facts(line: SlowLine) -> dict[str, Any]:
    """Return the facts of a report about a line."""
    return {
        "line": line.place,
        "line_inside": line.inside or None,
        "line_ms": line.ms,
        "line_interval_ms": list(line.interval_ms),
        "line_sample_share": line.share,
        "peer_sample_share": line.peer_share,
        "line_samples": line.samples,
        "line_of_workers": line.of_workers or None,
    }
