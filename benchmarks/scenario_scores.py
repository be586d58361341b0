"""Compare what ddpmon showed of a synthetic run with the truth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from play import Moment, Played, Shown
from scenario_noises import Floats
from scenario_shapes import BURSTS, CONSTANT, NOTHING, PERIODIC, RAMP, ROTATING, STRETCH, Truth

CONSTANT_KINDS = ("straggler", "several_stragglers", "slow_host", "load_imbalance", "slow_link", "run_slowed")
PATTERNS = {
    **dict.fromkeys((*CONSTANT_KINDS, "constant"), CONSTANT),
    **dict.fromkeys(("periodic_straggler", "periodic"), PERIODIC),
    **dict.fromkeys(("late_in_bursts", "bursts"), BURSTS),
    **dict.fromkeys(("moving_straggler", "rotating"), ROTATING),
    "irregular": "irregular",
    "ramp": RAMP,
}
"""Patterns of findings, by `pattern` in the evidence, or by kind if there is none. A constant one that has ended is a
stretch. Findings of other kinds do not say which rank is slow, and are not counted."""
SLOWED = "run_slowed"
"""The kind of finding that says that all ranks are slower; it lists no ranks."""
WORTH = 0.02
"""A fault must be reported if it costs at least this share of the run's time."""
SINCE_STEPS = 5
COST_OFF = 0.05
"""Two costs agree if they differ by no more than this share."""
WINDOW_STEPS = 600
"""A predicted gain may refer to all steps with the fault, or to this many of the last ones."""
FIGURES = re.compile(r"[\d.,+%-]+")
RECOVERS = re.compile(r"keeps? up again|recovered")
ABOUT_RANKS = re.compile(r"\branks?\b|\bhost|slow")


@dataclass
class Score:
    """The scores of one run. None means that there is nothing to measure, or that ddpmon showed nothing to measure."""

    name: str
    seed: int
    hours: float
    cost_share: float = 0.0
    """The share of the run's time that the fault costs."""
    size: float = 0.0
    fault: bool = False
    counts: bool = False
    """True if the fault costs enough to be reported, or is a change that must not be mistaken for a fault."""
    right: bool = False
    """True if ranks, phase and pattern are right, no other rank is accused, and no wrong cause is named."""
    who: bool = False
    phase: bool = False
    pattern: bool = False
    since_off: int | None = None
    """Steps by which the beginning is off, at the last live moment or in the report, whichever is worse; 0 inside an
    interval that the finding shows."""
    gain_off: float | None = None
    """The larger error of the last live moment and the report."""
    told_after: int | None = None
    """Number of steps from the first step of the fault until its ranks are named."""
    agree: list[str] = field(default_factory=list)
    """Differences between the last live moment, the dashboard of the ended run, and the report; empty: none."""
    recoveries: int = 0
    """Events that say that a rank recovered although it did not."""
    false: int = 0
    """Events above info that accuse a rank without a fault, or repeat an earlier event."""
    lines: int = 0
    """Number of all events, right or wrong."""
    moments: int = 0
    changes: int = 0
    """Changes of the sentence on screen, except its figures, from one moment to the next, in a run without a fault."""
    last_live: str = ""
    reported: str = ""
    accusations: list[str] = field(default_factory=list)
    """The sentences that are false."""


def pattern_of(shown: Shown) -> str | None:
    """Return the pattern of a finding; None if the finding does not say which rank is slow."""
    pattern = PATTERNS.get(str(shown.evidence.get("pattern", shown.kind)), PATTERNS.get(shown.kind))
    return STRETCH if pattern == CONSTANT and shown.until is not None else pattern


def accuses(shown: Shown) -> bool:
    """Return whether a finding says that a rank is or was slow, as a reason to act."""
    return pattern_of(shown) is not None and (shown.severity != "info" or shown.until is not None)


def goes_on(findings: Iterable[Shown]) -> list[Shown]:
    """Return the findings that accuse a rank and have not ended."""
    return [shown for shown in findings if accuses(shown) and shown.until is None]


def score(name: str, seed: int, played: Played, truth: Truth, well_step_ms: Floats, *, takes_turns: bool) -> Score:
    """Score a run.

    Args:
        name: The scenario's name.
        seed: The seed of the run.
        played: What ddpmon showed.
        truth: The fault.
        well_step_ms: [S] length of each step without the fault.
        takes_turns: The noise makes ranks take turns.
    """
    total = float(played.step_ms.sum())
    made = Score(name, seed, played.hours, 1 - float(well_step_ms.sum()) / total, truth.size)
    made.moments, made.lines = len(played.moments), len(played.events)
    made.last_live, made.reported = played.moments[-1].verdict, played.report["verdict"]
    made.fault = bool(truth.pattern or truth.innocent_gain)
    made.counts = bool(truth.innocent_gain) or (made.fault and made.cost_share >= WORTH)
    takes_turns = takes_turns or truth.hidden_from is not None
    _count_events(made, played, truth, takes_turns=takes_turns)
    made.agree = disagreements(played)
    if not truth.pattern:
        sentences = [FIGURES.sub("#", moment.verdict) for moment in played.moments]
        made.changes = sum(a != b for a, b in pairwise(sentences))
        made.right = not made.false
    elif truth.said:
        made.who = made.phase = made.pattern = made.right = all(
            re.search(truth.said, words) is not None for words in (made.last_live, made.reported)
        )
    else:
        _judge(made, played, truth, well_step_ms, takes_turns=takes_turns)
    return made


def _judge(made: Score, played: Played, truth: Truth, well_step_ms: Floats, *, takes_turns: bool) -> None:
    """Score how ddpmon reported the fault."""
    steps = len(played.step_ms)
    last = min(truth.until or steps, truth.hidden_from or steps)
    live = [moment for moment in played.moments if moment.step <= last]
    shown = _counted(goes_on(live[-1].findings if live else ()), truth, takes_turns=takes_turns)
    told = _counted([f for f in played.reported if accuses(f)], truth, takes_turns=takes_turns)
    lasting = [f for f in told if f.until is None] or told
    # Earlier sentences about the fault did not have their final form.
    if truth.until is None and truth.hidden_from is None:
        told = lasting
    ranks, world = set(truth.ranks), played.report["run"]["world_size"]
    made.who = all(_ranks(part, truth, world) == ranks and part for part in (shown, told))
    made.phase = made.who and all(truth.phase is None or f.phase == truth.phase for f in (*shown, *told))
    wanted = {truth.pattern, CONSTANT} if truth.pattern == STRETCH else {truth.pattern}
    made.pattern = made.who and all(pattern_of(f) in wanted for f in shown)
    if truth.hidden_from is None:  # Otherwise the report may say that the beginning is unknown.
        made.pattern = made.pattern and all(pattern_of(f) == truth.pattern for f in told)
    excuses = truth.not_said and any(re.search(truth.not_said, f.text + f.advice) for f in (*shown, *told))
    made.right = made.who and made.phase and made.pattern and not made.recoveries and not excuses
    for moment in played.moments:
        if truth.since <= moment.step <= last + SINCE_STEPS:
            named = _counted(goes_on(moment.findings), truth, takes_turns=takes_turns)
            named = [f for f in named if not truth.changed or f.phase == truth.phase]
            if named and _ranks(named, truth, world) == ranks:
                made.told_after = moment.step - truth.since + 1
                break
    if not made.who:
        return
    since = [off for f in (*shown, *told) if (off := _since_off(f, truth)) is not None]
    made.since_off = max(since, default=None)
    gains = [f.gain for f in (*shown, *told) if f.gain is not None]
    made.gain_off = max((_gain_off(gain, truth, played.step_ms, well_step_ms) for gain in gains), default=None)


def _counted(findings: Sequence[Shown], truth: Truth, *, takes_turns: bool) -> list[Shown]:
    """Leave out findings about ranks taking turns where the noise makes ranks take turns."""
    skips = takes_turns and truth.pattern != ROTATING
    return [f for f in findings if not (skips and pattern_of(f) == ROTATING)]


def _ranks(findings: Sequence[Shown], truth: Truth, world: int) -> set[int]:
    """Return all ranks that these findings accuse; world is the number of ranks in the run."""
    if truth.pattern == ROTATING and all(pattern_of(f) == ROTATING for f in findings):
        return set()
    named = {rank for f in findings for rank in f.ranks}
    return named | set(range(world)) if any(f.kind == SLOWED for f in findings) else named


def _since_off(shown: Shown, truth: Truth) -> int | None:
    interval = shown.evidence.get("since_interval")
    if interval and interval[0] <= truth.since <= interval[1]:
        return 0
    return None if shown.since is None else abs(shown.since - truth.since)


def _gain_off(predicted: float, truth: Truth, step_ms: Floats, well_step_ms: Floats) -> float:
    """Return the error of a predicted gain, relative to the real gain over all steps with the fault or over the last
    ones, whichever is nearer.
    """
    first, last = truth.since - 1, truth.until or len(step_ms)
    spans = {(first, last), (max(first, last - WINDOW_STEPS), last), (first, truth.hidden_from or last)}
    real = [float(step_ms[slice(*span)].sum() / well_step_ms[slice(*span)].sum()) for span in spans]
    return min(abs(predicted / gain - 1) for gain in real)


def _count_events(made: Score, played: Played, truth: Truth, *, takes_turns: bool) -> None:
    guilty = set(truth.ranks) | set(truth.innocent_gain)
    all_slowed = bool(guilty) and guilty == set(range(played.report["run"]["world_size"]))
    seen = set()
    for event in played.events:
        last = truth.until or len(played.step_ms) + 1
        lasts = truth.pattern not in {NOTHING, BURSTS}  # Between bursts the rank is not slow, so a recovery is true.
        if lasts and RECOVERS.search(event.text) and truth.since + 10 < event.step < last:
            made.recoveries += 1
        finding = event.finding
        if event.severity == "info" or event.text.startswith("done"):
            continue
        if finding is None:
            if not ABOUT_RANKS.search(event.text):
                continue
        elif pattern_of(finding) is None:
            continue
        said = FIGURES.sub("#", event.text.split(":")[0]), finding and (finding.kind, finding.ranks)
        again, began = said in seen, bool(truth.pattern) and (truth.changed or event.step >= truth.since)
        seen.add(said)
        rotating = finding is not None and pattern_of(finding) == ROTATING
        if rotating and (takes_turns or truth.pattern == ROTATING) and not again:
            continue
        whole = finding is not None and finding.kind == SLOWED and all_slowed
        named = finding is not None and bool(finding.ranks) and set(finding.ranks) <= guilty
        if again or not (whole or named or rotating) or not (began or truth.innocent_gain):
            made.false += 1
            made.accusations.append(f"step {event.step} {event.severity} {event.text}")


def disagreements(played: Played) -> list[str]:
    """Return which of "who", "phase", "pattern", "since", "cost" and "verdict" differ between displays that must agree.

    What lasts at the last live moment must be in the report and on the ended dashboard, and be everything that lasts
    there. Their statements on ended stretches must be the same, and must have been shown during the run.
    """
    differs: list[str] = []
    ended, reported = played.ended, Moment(0, 0.0, "", played.report["verdict"], played.reported)
    if ended.verdict != reported.verdict:
        differs.append("verdict")
    live = goes_on(played.moments[-1].findings)
    for there in (goes_on(ended.findings), goes_on(reported.findings)):
        differs += _differences(live, there)
    past = [[f for f in moment.findings if accuses(f) and f.until is not None] for moment in (ended, reported)]
    differs += _differences(*past)
    ever = {(_named(f), f.phase) for moment in played.moments for f in moment.findings if accuses(f)}
    if any((_named(f), f.phase) not in ever for f in past[1]):
        differs.append("who")
    return sorted(set(differs))


def _named(shown: Shown) -> tuple[int, ...]:
    """Return the ranks that a finding names; none for a rotating pattern, because its ranks change."""
    return () if pattern_of(shown) == ROTATING else shown.ranks


def _differences(these: Sequence[Shown], those: Sequence[Shown]) -> list[str]:
    if sorted(map(_named, these)) != sorted(map(_named, those)):
        return ["who"]
    differs = []
    left = list(those)
    for one in these:
        same_ranks = [f for f in left if _named(f) == _named(one)]
        other = min(same_ranks, key=lambda f: (f.kind != one.kind, f.phase != one.phase, f.since != one.since))
        left.remove(other)
        differs += ["phase"] * (one.phase != other.phase) + ["pattern"] * (pattern_of(one) != pattern_of(other))
        differs += ["since"] * (one.since != other.since)
        costs = one.cost_ms or 0.0, other.cost_ms or 0.0
        differs += ["cost"] * (abs(costs[0] - costs[1]) > COST_OFF * max(costs))
    return differs


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the quantile, or None if there are no values."""
    return float(np.quantile(values, share)) if values else None
