"""What happened to the findings between two looks: found, gone, and what they had cost by then."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon.analysis.costs import cost_s
from ddpmon.messages import Finding

LATE = frozenset({"straggler", "load_imbalance"})
GONE = {
    "periodic_straggler": "rank {ranks} keeps its rhythm no longer",
    "moving_straggler": "ranks no longer take turns in being late",
    "data_bound": "data keeps up again",
    "communication_bound": "communication no longer holds the step back",
    "slow_link": "rank {ranks} leaves synchronisations with the others again",
    "gpu_throttled": "no GPU holds its clocks down any more",
    "gc_pauses": "garbage collection no longer holds the step back",
    "cpu_starved": "ranks get their cores again",
    "memory_growth": "memory no longer grows",
    "gpu_memory": "GPU memory is no longer nearly full",
    "loss_diverged": "losses of all ranks are alike again",
}


def changes(before: Sequence[Finding], now: Sequence[Finding], last_step: int | None = None) -> list[tuple[str, str]]:
    """Severity and sentence of each change, worst first.

    A late rank is one thing whether it is slow or has more work; it is over when it is told with its last step, or
    not at all. What was no reason to act and has become one is told again. last_step: of the window, to tell how many
    steps it took.
    """
    was, there = _lasting(before), _lasting(now)
    told = [
        (f.severity, f.text)
        for key, f in there.items()
        if f.kind != "rank_failed" and (key not in was or (was[key].severity, f.severity) == ("info", "warn"))
    ]
    known = [f for f in before if f.kind in LATE]
    told += [(f.severity, f.text) for f in now if f.until_step is not None and not _told(f, known)]
    told.sort(key=lambda item: ("critical", "warn", "info").index(item[0]))
    for key, finding in was.items():
        if key in there:
            continue
        if finding.kind in LATE:
            over = [f for f in now if f.kind in LATE and f.ranks == finding.ranks]
            told.append(
                (
                    "info",
                    f"rank {finding.ranks[0]} keeps up again" + _cost(max(over, key=_end, default=finding), last_step),
                )
            )
        elif finding.kind in GONE:
            ranks = " ".join(map(str, finding.ranks))
            told.append(("info", GONE[finding.kind].format(ranks=ranks) + _cost(finding, last_step)))
    return told


def _told(over: Finding, known: Sequence[Finding]) -> bool:
    """Whether a stretch that is over was known before, while it lasted or after."""
    return any(f.ranks == over.ranks and (f.until_step is None or _end(f) >= (over.since_step or 0)) for f in known)


def _end(finding: Finding) -> int:
    return finding.until_step or 0


def _lasting(found: Sequence[Finding]) -> dict[tuple[object, ...], Finding]:
    """Those that are not over, by what they are about. That others join in is no new finding of the whole world."""
    keys = {}
    for f in found:
        if f.until_step is None:
            alone = f.kind in LATE or f.kind == "periodic_straggler"
            kind = "late" if f.kind in LATE else f.kind
            keys[kind, f.evidence.get("host"), *(f.ranks if alone else ())] = f
    return keys


def _cost(finding: Finding, last_step: int | None) -> str:
    """In words: "; it cost 12.3 s"."""
    seconds = cost_s(finding, last_step)
    if seconds is None:
        return ""
    return f"; it cost {seconds:.1f} s" if seconds < 100 else f"; it cost {seconds / 60:.0f} min"
