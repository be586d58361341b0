"""What is known of a kind of finding whichever run it is found in: how it is found, told, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.steps.world import World
from ddpmon.messages import DeviceMark, Finding

Facts = TypeVar("Facts")
"""A frozen dataclass. Its fields are a finding's evidence, but for those of `for_words` and those at their default."""
Subject: TypeAlias = Literal["rank", "host", "activity", "world"]
"""rank: each rank has a finding of its own; host, activity: so has each one that `Finding.subject` names; world: there
is one finding, whose ranks may come and go.
"""


def for_words(default: Any = MISSING) -> Any:
    """A field of facts that sentences need and evidence has elsewhere."""
    return field(default=default, metadata={"for_words": True})


@dataclass(frozen=True)
class Words:
    """What people read of a finding."""

    text: str
    advice: str | None = None
    brief: str = ""
    """The text in fewer words."""
    lead: str = ""
    """The beginning of the text that says who or what; "": all of it does."""


@dataclass(frozen=True)
class Found(Generic[Facts]):
    """What was found, in numbers; the fields are those of a finding."""

    kind: Kind[Facts]
    severity: Literal["info", "warn", "critical"]
    facts: Facts
    ranks: Sequence[int] = ()
    phase: str | None = None
    since_step: int | None = None
    until_step: int | None = None
    cost_ms: float | None = None
    subject: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)
    """Evidence that not every finding of the kind has."""


@dataclass
class Moment:
    """All that kinds are detected from, at one moment."""

    evidence: Evidence
    steps: World | None
    before: Sequence[Finding] = ()
    """What was found last time."""
    longer: World | None = None
    """The same world with more steps before it, for what comes every so many steps."""
    found: list[Finding] = field(default_factory=list)
    """By kinds that come earlier in KINDS."""
    numbers: list[Found[Any]] = field(default_factory=list)
    """Of the same, what is found now, in numbers; without what is told once more as it was."""
    rhythmic: list[int] = field(default_factory=list)
    """Columns of ranks that are late in a rhythm, told or not: that is no lateness of any other kind."""

    @property
    def world(self) -> World:
        """The steps, for kinds with `fewest_steps`: they are asked only where there are as many."""
        if self.steps is None:
            raise ValueError("a kind that needs steps says how many")
        return self.steps

    @cached_property
    def conditions(self) -> dict[int, Conditions]:
        """By rank."""
        return {one.rank: one for one in self.evidence.conditions}

    def held(self, *kinds: Kind[Any]) -> list[Finding]:
        """What was found of some kinds last time: it stays until clearly less than asked for is left."""
        names = {kind.name for kind in kinds}
        return [finding for finding in self.before if finding.kind in names]

    def held_one(self, kind: Kind[Any]) -> Finding | None:
        """The one of a kind of which there is at most one."""
        return next(iter(self.held(kind)), None)


def covers_what_goes_on(whole: Finding, part: Finding) -> bool:
    """Whether one finding leaves another out as a part of it: it is a reason to act, and the other is not over."""
    return whole.severity != "info" and part.until_step is None


@dataclass(frozen=True)
class Kind(Generic[Facts]):
    """A kind of finding. Whoever treats kinds differently asks for one of these fields, never for the name."""

    name: str
    """In messages and reports."""
    subject: Subject
    gone: str
    """What is told when it is over, with its {ranks}; "": nothing, because that is told otherwise or means nothing."""
    words: Callable[[Found[Facts]], Words]
    detect: Callable[[Moment], Iterable[Found[Any] | Finding]] | None = None
    """A finding: of last time, and still to be told as it is. None: another kind of the family detects it."""
    fewest_steps: int = 0
    """Of the window, for it to be looked for."""
    family: str = ""
    """Kinds of one family are one thing that goes by several names: it becomes another, and neither began nor ended."""
    by_cost: bool = False
    """Neighbours in KINDS that share this are listed together, the costliest first."""
    outdoes: tuple[str, ...] = ()
    """Kinds whose findings may be parts of this one and are then left out: one cause is told once."""
    covers: Callable[[Finding, Finding], bool] = covers_what_goes_on
    """Whether a finding of this kind leaves out one of those, given as the second."""
    is_announced: bool = True
    """It is an event when it comes; False: whoever hears of it first tells it."""
    changes_level: bool = False
    """Steps take another time from its first step on: a mean over steps on both sides of it tells of neither."""
    slows: str = ""
    """What a run loses time with, of {rank} and {phase}, as the reason why it is slower than another; "": no reason."""
    explains: Literal["", "failed", "stalled"] = ""
    """The state of a run that it is the reason of."""
    device: DeviceMark | None = None
    """What it says of the machines of its ranks."""
    quantities: tuple[str, ...] = ()
    """Of QUANTITIES, those whose means over the last seconds of training are evidence of every one of them."""

    def identity(self, finding: Finding) -> tuple[str, tuple[int | str, ...]]:
        """What a finding of this kind is about; equal: one finding at two moments."""
        about: dict[str, tuple[int | str, ...]] = {"rank": tuple(finding.ranks), "world": ()}
        return self.family or self.name, about.get(self.subject, (finding.subject,))

    def topic(self, finding: Finding) -> list[str]:
        """What the words of a finding of this kind tell, without figures."""
        return [self.name, *map(str, self.identity(finding)[1]), finding.phase or ""]

    def difference(self, finding: Finding) -> Hashable:
        """What a finding of this kind is about when two runs are compared, on whatever machines they ran."""
        return self.name, *((finding.phase, *finding.ranks) if self.subject == "rank" else ())

    def finding(self, found: Found[Facts]) -> Finding:
        """What was found, with its words and with what all findings of this kind say of states and machines."""
        words = self.words(found)
        return Finding(
            self.name,
            found.severity,
            words.text,
            list(found.ranks),
            found.phase,
            found.since_step,
            found.until_step,
            plain(found.cost_ms),
            evidence(found.facts) | plain(dict(found.beside)),
            words.advice,
            found.subject,
            words.brief,
            self.explains,
            self.device,
            len(words.lead),
        )


def evidence(facts: Any) -> dict[str, Any]:
    """Facts as plain values by name; optional ones that are not known, or not the case, are left out."""
    values = {one.name: (getattr(facts, one.name), one.default) for one in fields(facts) if not one.metadata}
    return {name: plain(value) for name, (value, default) in values.items() if default is MISSING or value != default}


def plain(value: Any) -> Any:
    """The same without numpy's numbers and arrays, which neither a message nor a report can hold."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
