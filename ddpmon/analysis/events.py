"""What happened to the findings between two moments: found, gone, and what they had cost by then."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ddpmon.analysis.costs import cost_s
from ddpmon.analysis.kinds import kind_of
from ddpmon.messages import Finding


def changes(before: Sequence[Finding], now: Sequence[Finding], last_step: int | None = None) -> list[tuple[str, str]]:
    """Severity and sentence of each change, worst first.

    A finding is the same as long as its kind says that it is about the same. It is over when it has a last step, or is
    found no more. What was no reason to act and has become one is told again. last_step: of the window, to tell how
    many steps it took.
    """
    was, there = _lasting(before), _lasting(now)
    events = [
        (finding.severity, finding.text)
        for key, finding in there.items()
        if kind_of(finding).is_announced
        and (key not in was or (was[key].severity, finding.severity) == ("info", "warn"))
    ]
    events += [(f.severity, f.text) for f in now if f.until_step is not None and not _was_there(f, before)]
    events.sort(key=lambda event: ("critical", "warn", "info").index(event[0]))
    for key, finding in was.items():
        gone = kind_of(finding).gone
        if key not in there and gone:
            ended = [f for f in now if f.until_step is not None and _identity(f) == key]
            sentence = gone.format(ranks=" ".join(map(str, finding.ranks)))
            events.append(("info", sentence + _cost(max(ended, key=_end, default=finding), last_step)))
    return events


def _identity(finding: Finding) -> Hashable:
    return kind_of(finding).identity(finding)


def _was_there(over: Finding, before: Sequence[Finding]) -> bool:
    """Whether a stretch that is over was found before, while it lasted or after."""
    same = [f for f in before if _identity(f) == _identity(over)]
    return any(f.until_step is None or _end(f) >= (over.since_step or 0) for f in same)


def _end(finding: Finding) -> int:
    return finding.until_step or 0


def _lasting(findings: Sequence[Finding]) -> dict[Hashable, Finding]:
    """Those that are not over, by what they are about."""
    return {_identity(finding): finding for finding in findings if finding.until_step is None}


def _cost(finding: Finding, last_step: int | None) -> str:
    """In words: "; it cost 12.3 s"."""
    seconds = cost_s(finding, last_step)
    if seconds is None:
        return ""
    return f"; it cost {seconds:.1f} s" if seconds < 100 else f"; it cost {seconds / 60:.0f} min"
