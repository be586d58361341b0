"""A kind of finding: its detection, its words, and what follows from it. Kinds are the same for every run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.statistics.arrays import Bools, last_run
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import DeviceMark, Finding

Severity: TypeAlias = Literal["info", "warn", "critical"]
"""info: a hint. warn and above: a reason to act."""
Subject: TypeAlias = Literal["rank", "host", "activity", "world"]
"""rank: each rank has a finding of its own; host, activity: so has each one that `Finding.subject` names; world: there
is one finding, whose ranks may come and go.
"""

LASTING = Threshold(
    20,
    of="number of consecutive steps in a state that a script may want for a short time, such as a learning rate of 0",
    why="A judgement call: a few such steps are normal. A warm-up of the learning rate starts at 0, and a "
    "schedule may end at 0. An"
    " adversarial attack runs some steps in evaluation mode. Ranks may step their schedulers a few steps apart.",
)
NEARLY_ALL = Threshold(
    0.9,
    of="share of a timeout or of a rank's batches that is used up, or of the latest updates that GradScaler skipped",
    why="A judgement call: above this share, little time is left to act, or the model hardly learns.",
)


class Words(NamedTuple):
    """The words of a finding that people read."""

    text: str
    advice: str | None = None
    brief: str = ""
    """The text in fewer words."""
    lead: str = ""
    """The beginning of the text that says who or what; "": all of it does."""


class StepCost(NamedTuple):
    """The cost of something in the steps of the window."""

    step_ms: float
    """Length of a step."""
    cost_ms: float
    """Time of a step that it takes."""
    share: float
    gain: float
    """Times as fast without it."""
    since: int
    """Its first step: as reported before, else the first of the window."""


class Streak(NamedTuple):
    """Steps up to the last one in all of which a condition has held."""

    since: int
    """Number of the first of them, as reported before where they have left the window."""
    steps: int


@dataclass
class Moment:
    """All that a kind is detected from, at one moment, and how it makes a finding of that."""

    evidence: Evidence
    steps: World | None
    before: Sequence[Finding] = ()
    """The findings of the judgement before this one."""
    longer: World | None = None
    """The same world with more steps before it, for what comes every so many steps."""
    asked: Kind | None = None
    """The kind that is being detected."""

    @property
    def kind(self) -> Kind:
        """The kind that is being detected."""
        if self.asked is None:
            raise ValueError("no kind is being detected")
        return self.asked

    @property
    def world(self) -> World:
        """The steps, for kinds with `fewest_steps`: those are only asked where there are as many."""
        if self.steps is None:
            raise ValueError("a kind that needs steps says how many")
        return self.steps

    @property
    def held(self) -> list[Finding]:
        """Findings of this kind of last time: each stays until it is clearly below its threshold."""
        return [finding for finding in self.before if finding.kind == self.kind.name]

    @property
    def previous(self) -> Finding | None:
        """Return the finding of last time, of a kind of which there is at most one."""
        return next(iter(self.held), None)

    def since(self, world: World, begin: int = 0) -> int:
        """Return the first step of a finding of which there is at most one.

        Args:
            world: The steps in which it was looked for.
            begin: The first of them that shows it. If that is the first one of all, the step reported before holds.

        """
        before = self.previous
        return before.since_step if before and before.since_step and not begin else int(world.step[begin])

    def streak(self, world: World, holds: Bools, least: float | None = None) -> Streak | None:
        """Return since when, and for how many steps, a condition has held up to the last step.

        Args:
            world: Steps, the last S of the run.
            holds: [S] The condition in each of them.
            least: Steps in which it must have held; None: LASTING.

        """
        begin = last_run(holds)
        if len(world) - begin < (LASTING.enter if least is None else least):
            return None
        since = self.since(world, begin)
        return Streak(since, int(world.step[-1]) - since + 1)

    def finding(
        self,
        facts: Mapping[str, Any],
        ranks: Sequence[int] = (),
        phase: str | None = None,
        *,
        severity: Severity | None = None,
        headline: str | None = None,
        advice: str | None = None,
        words: Words | None = None,
        beside: Mapping[str, Any] | None = None,
        cost: StepCost | None = None,
        **more: Any,
    ) -> Finding:
        """Make a finding of the kind that is being detected.

        Args:
            facts: Its evidence, without values that are None. Words may name them.
            ranks: Its ranks. Words may name them as {who}, with {have}, {are}, {do}, {their}, or {s} behind a verb.
            phase: The phase of a step that it is about.
            severity: None: as the kind says. So are headline and advice.
            headline: As in `Kind`.
            advice: As in `Kind`.
            words: Words that are made already, instead of headline and advice.
            beside: What words need and evidence does not.
            cost: What it costs, with its first step, a share and a gain for the evidence.
            more: Further fields of `Finding`.

        """
        severity = severity or self.kind.severity
        if cost is not None:
            facts = {**facts, "share": cost.share, "gain": cost.gain}
            more = {"since_step": cost.since, "cost_ms": None if severity == "info" else cost.cost_ms, **more}
        named = {**facts, **named_as(ranks, self.evidence.world_size), **(beside or {})}
        headline, advice = headline or self.kind.headline, advice or self.kind.advice
        words = words or worded(headline, advice, named)
        return self.kind.finding(severity, words, ranks, phase, evidence=facts, **more)


def worded(headline: str, advice: str, facts: Mapping[str, Any]) -> Words:
    """Return the words of templates such as those of `Kind` about facts."""
    lead, *parts = (part.format_map(facts) for part in headline.split("|"))
    text = fitting(lead + "".join(parts[:1]), *parts[1:])
    return Words(text, advice.format_map(facts) or None, lead=lead if parts else "")


def named_as(ranks: Sequence[int], world_size: int) -> dict[str, Any]:
    """Return what templates call ranks, and the verbs and pronouns for as many."""
    one, many = ("has", "is", "does", "s", "its"), ("have", "are", "do", "", "their")
    verbs = zip(("have", "are", "do", "s", "their"), one if len(ranks) == 1 else many, strict=True)
    return {"who": named_ranks(ranks, world_size), **dict(verbs)}


def covers_what_goes_on(whole: Finding, part: Finding) -> bool:
    """Return whether `part` is left out beside `whole`: `whole` is a reason to act, and `part` still goes on."""
    return whole.severity != "info" and part.lasts


@dataclass(frozen=True)
class Kind:
    """A kind of finding. Code that treats kinds differently asks for one of these fields, never for the name."""

    severity: Severity = "warn"
    """Unless `detect` knows better; so are the next two."""
    headline: str = ""
    """A template of the text, in parts between bars: the lead, which says who or what, the rest, and what follows as
    far as it fits. A single part has no lead; nor has what begins with a bar."""
    advice: str = ""
    """A template of what to do."""
    _: KW_ONLY
    name: str = ""
    """In messages and reports: the name of `detect`."""
    detect: Callable[[Moment], Iterable[Finding]] | None = None
    """Its docstring says what the kind means. None: another kind of the family detects it."""
    subject: Subject = "world"
    gone: str = ""
    """The event at its end, with its {ranks} or with {who} it is about, a host or ranks, and the verb {has}; "": none,
    because something else reports that or it means nothing.
    """
    fewest_steps: int = 0
    """Steps that the window must have for `detect` to be asked."""
    family: str = ""
    """Kinds of one family are one trouble of the same ranks under several names: that one becomes another is no
    beginning and no end."""
    by_cost: bool = False
    """Neighbours in KINDS that share this are listed together, the costliest first."""
    outdoes: tuple[str, ...] = ()
    """Kinds whose findings may be parts of this one and are then left out: one cause is reported once."""
    covers: Callable[[Finding, Finding], bool] = covers_what_goes_on
    """Returns whether a finding of this kind (the first argument) leaves out one of those (the second)."""
    is_announced: bool = True
    """Its beginning is an event; False: whatever noticed it first has made one already."""
    stays_told: bool = True
    """It remains among the findings once it has ended; False: it is about what is to come, or might have."""
    changes_level: bool = False
    """Steps take another time from its first step on: a mean across that step describes neither side."""
    names_line: bool = False
    """Stack samples of its ranks are taken while it lasts, to name the line of code behind it."""
    is_one_of_several: Callable[[Finding], bool] = lambda _: False
    """Returns whether its ranks are slow with others: reports say what mending all of them gains."""
    slows: str = ""
    """Why a run is slower than another, with {rank} and {phase}; "": this kind is no such reason."""
    explains: Literal["", "failed", "stalled"] = ""
    """The state of the run that it explains."""
    device: DeviceMark | None = None
    """Mark that Devices shows beside its ranks."""
    quantities: tuple[str, ...] = ()
    """Names in QUANTITIES: their means over the last seconds of training become evidence of every such finding."""
    meaning: str = ""
    """Its meaning in the docs; "": the docstring of `detect`."""
    remedy: str = ""
    """The docs' advice for someone who has not seen the run; "": the advice."""

    def __call__(self, detect: Callable[[Moment], Iterable[Finding]]) -> Kind:
        """Return the kind that a function detects, by the name of the function: a kind decorates it."""
        return replace(self, name=detect.__name__, detect=detect)

    def findings(self, moment: Moment) -> Iterable[Finding]:
        """Return the findings of this kind at a moment, or of its family."""
        steps = 0 if moment.steps is None else len(moment.steps)
        if self.detect is None or steps < self.fewest_steps:
            return ()
        moment.asked = self
        return list(self.detect(moment))

    def identity(self, finding: Finding) -> tuple[str, tuple[int | str, ...]]:
        """Return what a finding of this kind is about. Equal identities: the same finding at two moments."""
        about: dict[str, tuple[int | str, ...]] = {"rank": tuple(finding.ranks), "world": ()}
        subject = "rank" if self.family else self.subject
        return self.family or self.name, about.get(subject, (finding.subject,))

    def topic(self, finding: Finding) -> list[str]:
        """Return what the words of a finding are about. Equal topics: nothing but figures differs."""
        return [self.name, *map(str, self.identity(finding)[1]), finding.phase or ""]

    def difference(self, finding: Finding) -> Hashable:
        """Return what a finding is about when two runs are compared: their machines may differ."""
        return self.name, *((finding.phase, *finding.ranks) if self.subject == "rank" else ())

    def leaves_out(self, whole: Finding, part: Finding) -> bool:
        """Return whether a finding of this kind, `whole`, is why another one is not reported."""
        return part.kind in self.outdoes and self.covers(whole, part)

    def finding(
        self,
        severity: Severity,
        words: Words,
        ranks: Sequence[int] = (),
        phase: str | None = None,
        *,
        evidence: Mapping[str, Any],
        **more: Any,
    ) -> Finding:
        """Make a finding of words, with what all of this kind have in common. Evidence that is None is left out."""
        known = {name: value for name, value in evidence.items() if value is not None}
        return Finding(
            self.name, severity, words.text, list(ranks), phase, evidence=plain(known), advice=words.advice,
            brief=words.brief, explains=self.explains, device=self.device, lead=len(words.lead), **plain(more),
        )  # fmt: skip


def plain(value: Any) -> Any:
    """The same without numpy's numbers and arrays, which neither a message nor a report can hold."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
