"""What is known of a kind of finding whichever run it is found in: who it is about, and what follows from it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec.structs import replace

from ddpmon.messages import DeviceMark, Finding

Subject: TypeAlias = Literal["rank", "host", "activity", "world"]
"""rank: each rank has a finding of its own; host, activity: so has each one that `Finding.subject` names; world: there
is one finding, whose ranks may come and go.
"""


@dataclass(frozen=True)
class Kind:
    """A kind of finding. Whoever treats kinds differently asks for one of these fields, never for the name."""

    name: str
    """In messages and reports."""
    subject: Subject
    gone: str
    """What is told when it is over, with its {ranks}; "": nothing, because that is told otherwise or means nothing."""
    family: str = ""
    """Kinds of one family are one thing that goes by several names: it becomes another, and neither began nor ended."""
    by_cost: bool = False
    """Neighbours in KINDS that share this are listed together, the costliest first."""
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

    def identity(self, finding: Finding) -> Hashable:
        """What a finding of this kind is about; equal: one finding at two moments."""
        about = {"rank": tuple(finding.ranks), "world": ()}.get(self.subject, (finding.subject,))
        return self.family or self.name, about

    def difference(self, finding: Finding) -> Hashable:
        """What a finding of this kind is about when two runs are compared, on whatever machines they ran."""
        return self.name, *((finding.phase, *finding.ranks) if self.subject == "rank" else ())

    def complete(self, finding: Finding) -> Finding:
        """The finding with what all findings of this kind say of a run's state and of machines."""
        return replace(finding, explains=self.explains, device=self.device)
