"""The definition of a kind of finding: its detection, texts and properties. Every run uses the same kinds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.statistics.arrays import Bools, last_run
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fit_parts, named_ranks
from ddpmon.messages import DeviceMark, Finding

Severity: TypeAlias = Literal["info", "warn", "critical"]
"""The severity of a finding. info: a hint. warn and critical: a reason to act."""
Subject: TypeAlias = Literal["rank", "host", "activity", "world"]
"""What a kind's findings are about. rank: each rank has its own finding. host, activity: each host or activity that
`Finding.subject` names has its own finding. world: there is one finding, whose ranks may change."""

LASTING_STEPS = Threshold(
    20,
    of="number of consecutive steps in a state that a script may want for a short time, such as a learning rate of 0",
    why="A judgement call: a few such steps are normal. A warm-up of the learning rate starts at 0, and a "
    "schedule may end at 0. An"
    " adversarial attack runs some steps in evaluation mode. Ranks may step their schedulers a few steps apart.",
)
USED_UP_SHARE = Threshold(
    0.9,
    of="used-up share of a timeout or of a rank's batches; or share of skipped updates among the latest ones with a "
    "GradScaler",
    why="A judgement call: above this share, little time is left to act, or the model hardly learns.",
)


class Words(NamedTuple):
    """The words of a finding that people read."""

    text: str
    advice: str | None = None
    brief: str = ""
    """A shorter form of the text."""
    lead: str = ""
    """The beginning of the text, which names the subject; "": the text has no such beginning."""


class StepCost(NamedTuple):
    """The cost of a problem in the steps of the window."""

    step_ms: float
    """Mean length of a step in ms."""
    cost_ms: float
    """Time in ms that the problem takes in a mean step."""
    share: float
    gain: float
    """Speed without the problem, as a multiple of the present speed."""
    since: int
    """The first step of the problem, as reported before; for a new problem, the first step of the window."""


class Streak(NamedTuple):
    """The latest consecutive steps in which a condition has held, up to the last step."""

    since: int
    """Number of the first of these steps; if it has left the window, the number that was reported before."""
    steps: int


@dataclass
class Moment:
    """The data from which the kinds are detected in one judgement. Its methods make the findings."""

    evidence: Evidence
    steps: World | None
    before: Sequence[Finding] = ()
    """The findings of the previous judgement."""
    longer: World | None = None
    """The same world with more steps before it, for problems that recur at long intervals of steps."""
    asked: Kind | None = None
    """The kind that is being detected."""

    @property
    def kind(self) -> Kind:
        """Return the kind that is being detected."""
        if self.asked is None:
            raise ValueError("no kind is being detected")
        return self.asked

    @property
    def world(self) -> World:
        """Return the steps of the window, for kinds that set `fewest_steps`."""
        if self.steps is None:
            raise ValueError("a kind that needs steps says how many")
        return self.steps

    @property
    def previous_findings(self) -> list[Finding]:
        """Return the findings of this kind in the previous judgement."""
        return [finding for finding in self.before if finding.kind == self.kind.name]

    @property
    def previous_finding(self) -> Finding | None:
        """Return the finding of the previous judgement, for a kind with at most one finding."""
        return next(iter(self.previous_findings), None)

    def first_step(self, world: World, begin: int = 0) -> int:
        """Return the first step of a finding, for a kind with at most one finding.

        Args:
            world: The steps in which the problem was detected.
            begin: Index of the first step that shows the problem. If it is 0, keep the first step that was reported
                before.

        """
        before = self.previous_finding
        return before.since_step if before and before.since_step and not begin else int(world.step[begin])

    def streak(self, world: World, holds: Bools, least: float | None = None) -> Streak | None:
        """Return the latest consecutive steps in which a condition holds, up to the last step. Return None if they are
        too few.

        Args:
            world: The last S steps of the run.
            holds: [S] True for each step in which the condition holds.
            least: Minimum number of these steps; None: LASTING_STEPS.

        """
        begin = last_run(holds)
        if len(world) - begin < (LASTING_STEPS.enter if least is None else least):
            return None
        since = self.first_step(world, begin)
        return Streak(since, int(world.step[-1]) - since + 1)

    def finding(
        self,
        facts: Mapping[str, Any],
        ranks: Sequence[int] = (),
        phase: str | None = None,
        *,
        kind: Kind | None = None,
        severity: Severity | None = None,
        headline: str | None = None,
        advice: str | None = None,
        words: Words | None = None,
        beside: Mapping[str, Any] | None = None,
        cost: StepCost | None = None,
        **more: Any,
    ) -> Finding:
        """Make a finding of a kind.

        Args:
            facts: Evidence of the finding; values that are None are left out. Templates may contain them.
            ranks: Ranks of the finding. Templates name them as {who}, with {have}, {are}, {do}, {their} or {s}.
            phase: The phase of a step that the finding is about.
            kind: Another kind of the same family; None: the kind that is being detected.
            severity: Severity of the finding; None: that of the kind.
            headline: Template as in `Kind`; None: that of the kind.
            advice: Template as in `Kind`; None: that of the kind.
            words: Finished words, which replace headline and advice.
            beside: Values that templates need but evidence does not contain.
            cost: Cost and first step of the finding, with the share and the gain for the evidence.
            more: Further fields of `Finding`.

        """
        kind = kind or self.kind
        severity = severity or kind.severity
        if cost is not None:
            facts = {**facts, "share": cost.share, "gain": cost.gain}
            more = {"since_step": cost.since, "cost_ms": None if severity == "info" else cost.cost_ms, **more}
        named = {**facts, **named_as(ranks, self.evidence.world_size), **(beside or {})}
        words = words or worded(headline or kind.headline, advice or kind.advice, named)
        known = {name: value for name, value in facts.items() if value is not None}
        return Finding(
            kind.name, severity, words.text, list(ranks), phase, evidence=without_numpy(known), advice=words.advice,
            brief=words.brief, explains=kind.explains, device=kind.device, lead=len(words.lead), **without_numpy(more),
        )  # fmt: skip


def worded(headline: str, advice: str, facts: Mapping[str, Any]) -> Words:
    """Return the words of a finding, made from templates like those of `Kind` and the values in `facts`."""
    lead, *parts = (part.format_map(facts) for part in headline.split("|"))
    text = fit_parts(lead + "".join(parts[:1]), *parts[1:])
    return Words(text, advice.format_map(facts) or None, lead=lead if parts else "")


def named_as(ranks: Sequence[int], world_size: int) -> dict[str, Any]:
    """Return the values with which templates name ranks, with matching verbs and pronouns: {who}, {have} and others."""
    one, many = ("has", "is", "does", "s", "its"), ("have", "are", "do", "", "their")
    verbs = zip(("have", "are", "do", "s", "their"), one if len(ranks) == 1 else many, strict=True)
    return {"who": named_ranks(ranks, world_size), **dict(verbs)}


def covers_what_goes_on(whole: Finding, part: Finding) -> bool:
    """Return whether `whole` replaces `part`: `whole` is a reason to act, and `part` still lasts."""
    return whole.severity != "info" and part.is_lasting


@dataclass(frozen=True)
class Kind:
    """A kind of finding. Code that treats kinds differently must use one of these fields, never the name."""

    severity: Severity = "warn"
    """The severity of findings, unless `detect` chooses another. `detect` may also replace the next two fields."""
    headline: str = ""
    """A template of the text, in parts that are separated by bars: the lead, which names the subject; the rest; and
    further parts, which are added while they fit. With a single part, or a bar at the beginning, there is no lead."""
    advice: str = ""
    """A template of what to do."""
    _: KW_ONLY
    name: str = ""
    """The name in messages and reports, which is the name of the function `detect`."""
    detect: Callable[[Moment], Iterable[Finding]] | None = None
    """The function that detects findings; the docs show its docstring. None: another kind of the family detects it."""
    subject: Subject = "world"
    gone: str = ""
    """A template of the event at the end of a finding, with {ranks}, or {who} (host or ranks) and {has}; "": no
    event."""
    fewest_steps: int = 0
    """Minimum number of steps in the window for `detect` to be called."""
    family: str = ""
    """Name of a family. Kinds of a family are one problem of the same ranks under several names: if one becomes
    another, this is neither a beginning nor an end."""
    by_cost: bool = False
    """True if findings are sorted by cost, the costliest first, together with findings of neighbouring kinds in
    KINDS."""
    outdoes: tuple[str, ...] = ()
    """Names of kinds whose findings are left out if this kind explains them, so that one cause is reported once."""
    covers: Callable[[Finding, Finding], bool] = covers_what_goes_on
    """Returns whether a finding of this kind (first argument) replaces a finding of a kind in `outdoes` (second
    argument)."""
    is_announced: bool = True
    """True if the beginning is announced as an event; False if another part of ddpmon already announces it."""
    stays_told: bool = True
    """True if findings are still listed after their end; False if ended ones no longer matter, as for a forecast."""
    changes_level: bool = False
    """True if the length of steps changes at its first step, so that a mean over steps before and after it is
    misleading."""
    names_line: bool = False
    """True if stack samples of its ranks are taken while it lasts, to name the line of code behind it."""
    is_one_of_several: Callable[[Finding], bool] = lambda _: False
    """Returns whether other ranks are slow as well; reports then show the gain of fixing all of them."""
    slows: str = ""
    """A template of the reason, in a comparison of runs, why a run is slower, with {rank} and {phase}; "": none."""
    explains: Literal["", "failed", "stalled"] = ""
    """The state of the run that a finding of this kind explains; "": none."""
    device: DeviceMark | None = None
    """The mark that the Devices screen shows beside its ranks."""
    quantities: tuple[str, ...] = ()
    """Names in QUANTITIES. Their means over the last seconds of training become evidence of every such finding."""
    meaning: str = ""
    """The meaning of the kind in the docs; "": the docstring of `detect` is used."""
    remedy: str = ""
    """The advice in the docs, which cannot refer to a run; "": `advice` is used."""

    def __call__(self, detect: Callable[[Moment], Iterable[Finding]]) -> Kind:
        """Return the kind that a function detects, with the function's name; this makes a kind a decorator."""
        return replace(self, name=detect.__name__, detect=detect)

    def findings(self, moment: Moment) -> Iterable[Finding]:
        """Return the findings of this kind, or of its family, at a moment."""
        steps = 0 if moment.steps is None else len(moment.steps)
        if self.detect is None or steps < self.fewest_steps:
            return ()
        moment.asked = self
        return list(self.detect(moment))

    def identity(self, finding: Finding) -> tuple[str, tuple[int | str, ...]]:
        """Return the identity of a finding. Findings of two judgements with equal identities are the same finding."""
        about: dict[str, tuple[int | str, ...]] = {"rank": tuple(finding.ranks), "world": ()}
        subject = "rank" if self.family else self.subject
        return self.family or self.name, about.get(subject, (finding.subject,))

    def topic(self, finding: Finding) -> list[str]:
        """Return the topic of a finding's words. Words with the same topic differ only in their numbers."""
        return [self.name, *map(str, self.identity(finding)[1]), finding.phase or ""]

    def difference(self, finding: Finding) -> Hashable:
        """Return the identity of a finding in a comparison of two runs, whose machines may differ."""
        return self.name, *((finding.phase, *finding.ranks) if self.subject == "rank" else ())

    def leaves_out(self, whole: Finding, part: Finding) -> bool:
        """Return whether `part` is not reported, because `whole`, a finding of this kind, explains it."""
        return part.kind in self.outdoes and self.covers(whole, part)


def without_numpy(value: Any) -> Any:
    """Return a value with NumPy numbers and arrays converted to Python's, because messages cannot contain them."""
    if isinstance(value, dict):
        return {key: without_numpy(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_numpy(inner) for inner in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
