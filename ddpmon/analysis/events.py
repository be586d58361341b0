"""Events of findings: a finding begins, clearly worsens, gets its line of code, or ends with its total cost."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ddpmon.analysis.episodes import GRAVEST_FIRST, RETURN_S
from ddpmon.analysis.kinds import identity_of, kind_of
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import lost_time, named_ranks, rank_list
from ddpmon.messages import Finding

WORSE = Threshold(
    2.0,
    of="cost at which ddpmon announces a finding again, as a multiple of its cost at the last announcement",
    why="A judgement call: a user who ignored the earlier cost may act on twice the cost. Noise alone does not double a"
    " cost.",
)


@dataclass(frozen=True)
class Announcement:
    """An event of a finding."""

    severity: str
    text: str
    finding: Finding | None = None
    """The finding that the event announces, if it lasts."""


class Announcer:
    """Announces the beginning of each finding, a clear worsening, the line of code behind it, and its end.

    Findings of equal identity (`Kind.identity`) are the same finding. A finding has ended if it has a last step, or is
    no longer detected.
    """

    def __init__(self) -> None:
        self._announced: dict[Hashable, tuple[Finding, float]] = {}
        """By identity: the finding as last announced, with its cost updated until the cost is stable; and the time in
        seconds."""
        self._gone: dict[Hashable, tuple[str, float, Finding]] = {}
        """By identity, ends that are not announced yet: the sentence ("": no announcement), the moment in seconds, and
        the last state of the finding."""

    def announce(self, before: Sequence[Finding], now: Sequence[Finding], seconds: float) -> list[Announcement]:
        """Return an announcement for each change, worst first.

        Args:
            before: Findings at the previous moment.
            now: Findings at this moment.
            seconds: Time of the run at its last step; infinite once the run has ended, when nothing can return.

        """
        lasting = _lasting(now)
        events = [event for key, finding in lasting.items() for event in self._announce_lasting(key, finding, seconds)]
        events += [
            Announcement(f.severity, f.text)
            for f in now
            if f.until_step is not None and not _was_there(f, before) and identity_of(f) not in self._gone
        ]
        events.sort(key=lambda event: GRAVEST_FIRST.index(event.severity))
        for key, finding in _lasting(before).items():
            if key not in lasting:
                ended = [f for f in now if not f.is_lasting and identity_of(f) == key]
                sentence = _words_of_end(max(ended, key=_end, default=finding), finding)
                if any(kind_of(whole).leaves_out(whole, finding) for whole in lasting.values()):
                    sentence = ""  # The finding may continue as a part of the other one.
                self._gone[key] = sentence, seconds, finding
        for key, (sentence, since, was) in list(self._gone.items()):
            if any(_goes_on_as(finding, was) for finding in lasting.values()):
                del self._gone[key]
            elif not 0 <= seconds - since < RETURN_S.enter:
                del self._gone[key]
                for other, (finding, _) in list(self._announced.items()):
                    if other == key or _goes_on_as(finding, was):
                        del self._announced[other]
                if sentence:
                    events.append(Announcement("info", sentence))
        return events

    def _announce_lasting(self, key: Hashable, finding: Finding, seconds: float) -> list[Announcement]:
        back = self._gone.pop(key, None)
        last, at = self._announced.get(key, (None, seconds))
        text, cost = finding.text, finding.cost_ms or 0.0
        if back and last and last.phase != finding.phase:
            last = None  # Another phase is slow, so this is a new problem.
        if last is not None and GRAVEST_FIRST.index(finding.severity) >= GRAVEST_FIRST.index(last.severity):
            line = finding.evidence.get("line")
            if line and "line" not in last.evidence:
                self._announced[key] = replace(last, evidence={**last.evidence, "line": line}), at
                who = finding.subject or named_ranks(finding.ranks, 0)
                return [Announcement("info", f"the line that slows {who} down is in {line}", finding)]
            was = last.cost_ms or 0.0
            if not seconds - at >= RETURN_S.enter:  # The cost of the first steps still varies.
                self._announced[key] = replace(last, cost_ms=max(was, cost)), at
                return []
            if finding.severity == "info" or not was or not WORSE.is_reached(cost / was):
                return []
            text = f"worse: {text}"
        self._announced[key] = finding, seconds
        return [Announcement(finding.severity, text, finding)] if kind_of(finding).is_announced else []


def _was_there(over: Finding, before: Sequence[Finding]) -> bool:
    """Return whether a finding that has ended was already among the previous findings, as lasting or as ended."""
    same = [f for f in before if identity_of(f) == identity_of(over)]
    return any(f.is_lasting or _end(f) >= (over.since_step or 0) for f in same)


def _goes_on_as(finding: Finding, was: Finding) -> bool:
    """Return whether a problem continues as another kind of its family: a slow host instead of a slow rank."""
    family = kind_of(was).family
    return bool(family) and kind_of(finding).family == family and not set(was.ranks).isdisjoint(finding.ranks)


def _end(finding: Finding) -> int:
    return finding.until_step or 0


def _lasting(findings: Sequence[Finding]) -> dict[Hashable, Finding]:
    """Return the findings that have not ended, by identity (`Kind.identity`)."""
    return {identity_of(finding): finding for finding in findings if finding.is_lasting}


def _words_of_end(ended: Finding, was: Finding) -> str:
    """Return words for the end and the cost: "rank 3 has recovered; it cost 12.3 s"; "" if no end is announced."""
    ranks, many = rank_list(was.ranks, 0), len(was.ranks) > 1 and not was.subject
    who = was.subject or named_ranks(was.ranks, 0)
    sentence = kind_of(was).gone.format(ranks=ranks, who=who, has="have" if many else "has")
    seconds = ended.episodes[-1].cost_s if ended.episodes else ended.cost_s
    if not sentence or seconds is None:
        return sentence
    return f"{sentence}; it cost {lost_time(seconds)}"
