"""A host or a rank is late again and again, and keeps up between: one finding with its rhythm, not one each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds import load_imbalance, slow_host, straggler
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.own_time import SOME_STEPS, WORTH, caveat, forward_may_be
from ddpmon.analysis.statistics.arrays import Floats, Ints, median, medians
from ddpmon.analysis.statistics.excess import SMOOTHED, some_of, steady
from ddpmon.analysis.steps.what_if import gain
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting
from ddpmon.messages import OWN_PHASES, Finding

TIMES = Threshold(
    3,
    of="stretches in the window over which the same host or rank is late, to be one finding",
    why="A judgement: two have no rhythm yet, and are read sooner than it is. At least two of them must have been found"
    " as they came, each beyond chance, or one, where six and more are in time.",
)
SEEN = 2
"""Of them, stretches that were found as they came: who is late twice is looked at for a third time."""
RHYTHM, EVEN = 6, 0.25
"""So many, each as far from the one before as others but for that share, of which one was found, are enough as well:
chance has no rhythm (of a Poisson process one draw in a thousand does), and many hide each other in the noise that they
make."""
MISSED = Threshold(
    2.0,
    of="times the longest distance so far without another one, after which they are over",
    why="A judgement: one may be missed, and not be seen; until then nothing that a person would do has changed.",
)
PARTS = frozenset(one.KIND.name for one in (straggler, load_imbalance, slow_host))
"""Kinds of which this one joins the stretches."""


@dataclass(frozen=True)
class LateInBursts:
    """While it is late; gain: times as fast if it never were."""

    over_median_ms: float
    phase_excess_ms: float
    """Of the phase that has most of it."""
    times: int
    """In the window."""
    each_steps: int
    every_steps: int
    """Steps that one lasts, and from the beginning of one to that of the next: medians."""
    gain: float
    part: str
    """The kind of finding that each is."""
    stretches: list[list[int | None]]
    """First and last step of each that was found as it came; shorter ones are not."""
    may_be_forward: bool = for_words(default=False)


def detect(moment: Moment) -> Iterator[Detection[LateInBursts] | Finding]:
    """One for each host and rank that was late so often, by the stretches of the kinds before."""
    world = moment.longer or moment.world
    held = moment.held(KIND)
    over = {one.subject: one for one in held if one.until_step is not None and one.until_step >= world.step[0]}
    lasting = {one.subject: one for one in held if one.lasts}
    by_name: dict[str, list[Finding]] = {name: [] for name in lasting}
    for finding in moment.findings:
        past = over.get(_name(finding)) if finding.kind in PARTS else None
        if finding.kind in PARTS and finding.since_step is not None and (not past or not covers(past, finding)):
            by_name.setdefault(_name(finding), []).append(finding)
    for name, stretches in by_name.items():
        before = lasting.get(name)
        if before or stretches:
            yield from _joined(moment, world, name, sorted(stretches, key=_since), before)
    yield from over.values()


def _name(finding: Finding) -> str:
    return finding.subject or f"rank {finding.ranks[0]}" if finding.ranks else finding.subject


def _since(finding: Finding) -> int:
    return finding.since_step or 0


def _joined(
    moment: Moment, world: World, name: str, stretches: Sequence[Finding], before: Finding | None
) -> Iterator[Detection[LateInBursts]]:
    """stretches: of it, the first first. before: its finding of last time."""
    last = stretches[-1] if stretches else before
    if last is None:
        return
    columns = [world.ranks.index(rank) for rank in last.ranks if rank in world.ranks]
    peers = np.delete(np.arange(len(world.ranks)), columns)
    if not columns or not len(peers):
        return
    level = before.evidence["over_median_ms"] if before else 0.0
    over = world.own_ms[:, columns].mean(axis=1) - medians(world.own_ms[:, some_of(peers)])
    if stretches:
        level = median(np.concatenate([over[slice(*_span(world, one))] for one in stretches]))
    spans = list(_bursts(over, level / 2))
    if not spans:
        return
    begins = np.array([begin for begin, _ in spans])
    every = (
        float(np.median(np.diff(begins))) if len(spans) > 1 else float((before or last).evidence.get("every_steps", 0))
    )
    longest = max(every, *np.diff(begins).tolist()) if len(spans) > 2 else every
    is_over = MISSED.reached((len(world) - spans[-1][0]) / max(1.0, longest))
    if is_over and spans[-1][1] == len(world):  # late for good since
        spans.pop()
    if not spans:
        return
    bursts = [world.between(begin, end) for begin, end in spans]
    saved = sum(float(one.step_ms.sum()) * (1 - 1 / max(1.0, gain(one, columns, seen=world))) for one in bursts)
    real = float(world.step_ms[spans[0][0] :].sum())
    factor = real / max(real - saved, 1e-9)
    worth = WORTH.reached(factor, held=before is not None and before.severity == "warn")
    if before is None and (is_over or not worth or not are_enough(begins, len(stretches))):
        return
    phases = [one.phases_ms[:, columns].mean(axis=1) - medians(one.phases_ms[:, some_of(peers)]) for one in bursts]
    by_phase = np.median(np.concatenate(phases), axis=0)
    phase = OWN_PHASES[int(by_phase.argmax())]
    facts = LateInBursts(
        over_median_ms=level,
        phase_excess_ms=float(by_phase.max()),
        times=len(spans),
        each_steps=round(float(np.median([end - begin for begin, end in spans]))),
        every_steps=round(every),
        gain=factor,
        part=stretches[-1].kind if stretches or not before else before.evidence["part"],
        stretches=[[_since(part), part.until_step] for part in stretches],
        may_be_forward=forward_may_be(phase, moment.evidence),
    )
    first = len(spans) - 1  # noise may have hidden the first ones: those in time with the others are some of them
    while first and begins[first] - begins[first - 1] <= MISSED.enter * every:
        first -= 1
    since = int(world.step[spans[first][0]])
    yield Detection(
        KIND,
        "warn" if worth and not is_over else "info",
        facts,
        last.ranks,
        phase,
        _since(before) if before else since,
        int(world.step[spans[-1][1] - 1]) if is_over else None,
        cost_ms=saved / max(1, len(world) - spans[0][0]),
        subject=name,
    )


def are_enough(begins: Ints, seen: int) -> bool:
    """Whether these are bursts that come back. begins: of each; seen: so many of them were found as they came."""
    if seen >= SEEN:
        return len(begins) >= TIMES.enter
    apart = np.diff(begins)
    return len(begins) >= RHYTHM and bool((np.abs(apart / np.median(apart) - 1) <= EVEN).all())


def _span(world: World, part: Finding) -> tuple[int, int]:
    """Index of its first step in the window, and the one after its last."""
    begin = int(np.searchsorted(world.step, _since(part)))
    end = len(world) if part.until_step is None else int(np.searchsorted(world.step, part.until_step, side="right"))
    return min(begin, len(world) - 1), max(end, begin + 1)


def _bursts(over: Floats, least: float) -> Iterator[tuple[int, int]]:
    """Spans of steps over which a series is high, but for single steps."""
    high = np.concatenate([[False], np.pad(steady(over), SMOOTHED // 2, mode="edge") >= least, [False]])
    edges = np.flatnonzero(high[1:] != high[:-1])
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if end - begin >= SMOOTHED:
            yield begin, end


def parts(finding: Finding) -> list[Finding]:
    """The stretches that it is made of, so that they go on as what they are."""
    kind, stretches = str(finding.evidence.get("part", "")), finding.evidence.get("stretches") or []
    subject = finding.subject if kind == slow_host.KIND.name else ""
    return [
        Finding(kind, finding.severity if until is None else "info", "", finding.ranks, finding.phase, since, until,
                subject=subject)
        for since, until in stretches
    ]  # fmt: skip


def covers(whole: Finding, part: Finding) -> bool:
    """Whether a stretch is one of these. What comes when they are over is none."""
    return _name(part) == whole.subject and (whole.until_step is None or _since(part) <= whole.until_step)


def words(detection: Detection[LateInBursts]) -> Words:
    """Who, by how much, how often, and what it costs."""
    facts, name = detection.facts, detection.subject
    over = f"{facts.phase_excess_ms:+.1f} ms {detection.phase}"
    often = f"{facts.each_steps} of {facts.every_steps} steps"
    advice = caveat(
        facts,
        f"It comes back every {facts.every_steps} steps or so, for {facts.each_steps}: look at what runs on"
        f" {name if facts.part == slow_host.KIND.name else f'the machine of {name}'} as often: other programs, backups,"
        " checkpoints, monitoring, clocks that fall when it is hot.",
    )
    if detection.until_step is not None:
        lead = f"{name} was slow in bursts from step {detection.since_step:,} to {detection.until_step:,}:"
        return Words(fitting(f"{lead} {over}"), advice, f"{name} was slow until step {detection.until_step:,}", lead)
    lead = f"{name} is slow in bursts:"
    return Words(fitting(f"{lead} {over}", f", {often}", f"; {facts.gain:.2f}x if fixed"), advice, lead=lead)


KIND = Kind(
    "late_in_bursts",
    subject="host",
    family="late",
    gone="{who} keep{s} up again",
    words=words,
    detect=detect,
    fewest_steps=SOME_STEPS,
    by_cost=True,
    outdoes=tuple(sorted(PARTS)),
    covers=covers,
    parts=parts,
    slows="bursts of {host}",
)
