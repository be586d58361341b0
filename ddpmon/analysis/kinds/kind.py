"""A kind of finding: how it is detected, how it is worded, and what follows from it. The same for every run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.steps.world import World
from ddpmon.messages import DeviceMark, Finding

Subject: TypeAlias = Literal["rank", "host", "activity", "world"]
"""rank: each rank has a finding of its own; host, activity: so has each one that `Finding.subject` names; world: there
is one finding, whose ranks may come and go.
"""


@dataclass(frozen=True)
class Words:
    """What people read of a finding."""

    text: str
    advice: str | None = None
    brief: str = ""
    """The text in fewer words."""
    lead: str = ""
    """The beginning of the text that says who or what; "": all of it does."""


@dataclass
class Moment:
    """All that kinds are detected from, at one moment."""

    evidence: Evidence
    steps: World | None
    before: Sequence[Finding] = ()
    """The findings of the judgement before this one."""
    longer: World | None = None
    """The same world with more steps before it, for what comes every so many steps."""

    @property
    def world(self) -> World:
        """The steps, for kinds with `fewest_steps`: those are only asked where there are as many."""
        if self.steps is None:
            raise ValueError("a kind that needs steps says how many")
        return self.steps

    @cached_property
    def conditions(self) -> dict[int, Conditions]:
        """By rank."""
        return {one.rank: one for one in self.evidence.conditions}

    def held(self, kind: Kind) -> list[Finding]:
        """Findings of a kind of last time: each stays until it is clearly below its threshold."""
        return [finding for finding in self.before if finding.kind == kind.name]

    def held_one(self, kind: Kind) -> Finding | None:
        """The same of a kind of which there is at most one."""
        return next(iter(self.held(kind)), None)

    def since(self, kind: Kind, world: World, begin: int = 0) -> int:
        """Return the first step of a finding of which there is at most one.

        Args:
            kind: Of the finding.
            world: The steps in which it was looked for.
            begin: The first of them that shows it. If that is the first one of all, the step reported before holds.

        """
        before = self.held_one(kind)
        return before.since_step if before and before.since_step and not begin else int(world.step[begin])


def covers_what_goes_on(whole: Finding, part: Finding) -> bool:
    """Whether `part` need not be reported beside `whole`: `whole` is a reason to act, and `part` still goes on."""
    return whole.severity != "info" and part.lasts


@dataclass(frozen=True)
class Kind:
    """A kind of finding. Code that treats kinds differently asks for one of these fields, never for the name."""

    name: str
    """In messages and reports."""
    subject: Subject = "world"
    gone: str = ""
    """The event at its end, with its {ranks} or with {who} it is about, a host or ranks, and the verb {has}; "": none,
    because something else reports that or it means nothing.
    """
    detect: Callable[[Moment], Iterable[Finding]] | None = None
    """None: another kind of the family detects it."""
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
    """Whether a finding of this kind (the first argument) leaves out one of those (the second)."""
    is_announced: bool = True
    """Whether its beginning is an event; False: whatever noticed it first has made one already."""
    stays_told: bool = True
    """Whether it remains among the findings once it has ended; False: it is about what is to come, or might have."""
    changes_level: bool = False
    """Whether steps take another time from its first step on: a mean across that step describes neither side."""
    is_one_of_several: Callable[[Finding], bool] = lambda _: False
    """Whether its ranks are late with others: reports say what mending all of them gains."""
    slows: str = ""
    """Why a run is slower than another, with {rank} and {phase}; "": this kind is no such reason."""
    explains: Literal["", "failed", "stalled"] = ""
    """The state of the run that it explains."""
    device: DeviceMark | None = None
    """What Devices shows beside its ranks."""
    meaning: str = ""
    """What it means, in the docs; "": its file says it."""
    quantities: tuple[str, ...] = ()
    """Names in QUANTITIES: their means over the last seconds of training become evidence of every such finding."""

    def identity(self, finding: Finding) -> tuple[str, tuple[int | str, ...]]:
        """What a finding of this kind is about. Equal identities: the same finding at two moments."""
        about: dict[str, tuple[int | str, ...]] = {"rank": tuple(finding.ranks), "world": ()}
        subject = "rank" if self.family else self.subject
        return self.family or self.name, about.get(subject, (finding.subject,))

    def topic(self, finding: Finding) -> list[str]:
        """What the words of a finding are about. Equal topics: nothing but figures differs."""
        return [self.name, *map(str, self.identity(finding)[1]), finding.phase or ""]

    def difference(self, finding: Finding) -> Hashable:
        """What a finding is about when two runs are compared: their machines may differ."""
        return self.name, *((finding.phase, *finding.ranks) if self.subject == "rank" else ())

    def leaves_out(self, whole: Finding, part: Finding) -> bool:
        """Whether a finding of this kind, `whole`, is why another one is not reported."""
        return part.kind in self.outdoes and self.covers(whole, part)

    def finding(
        self,
        severity: Literal["info", "warn", "critical"],
        words: Words,
        ranks: Sequence[int] = (),
        phase: str | None = None,
        *,
        evidence: Mapping[str, Any],
        beside: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Finding:
        """Make a finding, with what all of this kind have in common.

        Args:
            severity: "warn" and above: a reason to act.
            words: Text and advice.
            ranks: Its ranks.
            phase: The phase of a step that it is about.
            evidence: What every finding of the kind has.
            beside: Evidence that not every finding of the kind has: None where this one has not.
            more: Further fields of `Finding`.

        """
        known = {name: value for name, value in (beside or {}).items() if value is not None}
        return Finding(
            self.name,
            severity,
            words.text,
            list(ranks),
            phase,
            evidence=plain({**evidence, **known}),
            advice=words.advice,
            brief=words.brief,
            explains=self.explains,
            device=self.device,
            lead=len(words.lead),
            **plain(more),
        )


def plain(value: Any) -> Any:
    """The same without numpy's numbers and arrays, which neither a message nor a report can hold."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
