"""Words that name the reason why a rank gets no core: other programs, or its container's CPU quota."""

from __future__ import annotations

from typing import Any, NamedTuple

from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.messages import CpuRivals

LISTED_PROGRAMS = 3
"""Maximum number of programs that a sentence names. Further programs use less of the cores."""
NAMED_CORES = 0.25
"""Minimum number of cores that a program uses if a sentence names it beside the busiest one."""


class Rival(NamedTuple):
    """Words that name the reason why a rank gets no core; all are empty if it is unknown."""

    by: str = ""
    """Words that follow the share of the time in a sentence: " by tar"."""
    where: str = ""
    """Words that follow the whole sentence: " beside tar"."""
    advice: str = ""
    """The next step, as a sentence without its full stop, which the caller adds."""
    is_quota: bool = False


def rival_of(rivals: CpuRivals, starved_share: float, cores: int | None = None) -> Rival:
    """Return the words for the reason of at least half of the time in which a rank gets no core.

    Args:
        rivals: What takes the rank's cores.
        starved_share: Share of the time in which the rank gets no core.
        cores: Number of cores on which the rank may run; None: unknown.

    """
    if rivals.throttled_share >= EXPLAINS.enter * starved_share:
        quota = f"a CPU quota of {rivals.quota_cores:g} cores"
        used = f"which is used up {rivals.throttled_share:.0%} of the time"
        return Rival(" by its CPU quota", f" under {quota}", f"Its container has {quota}, {used}: {MORE_QUOTA}", True)
    if not rivals.programs or rivals.used_cores < EXPLAINS.enter * starved_share:
        return Rival()
    busiest, *programs = rivals.programs
    listed = [busiest, *(one for one in programs if one.cores >= NAMED_CORES)][:LISTED_PROGRAMS]
    name, titles = busiest.name, [program.title for program in listed]
    title = " and ".join(filter(None, (", ".join(titles[:-1]), titles[-1])))
    advice = f"{title[:1].upper()}{title[1:]} {'run' if len(listed) > 1 else 'runs'} on the same cores"
    if programs:
        total = sum(one.cores for one in rivals.programs)
        advice += f". Together, other programs use at least {total:.1f}{f' of {cores}' if cores else ''} cores"
    return Rival(f" by {name}", f" beside {name}", f"{advice}: end or move what is not needed there")


MORE_QUOTA = "raise the limit (cpu.max of its cgroup), or start fewer ranks and threads"


def rivals_facts(rivals: CpuRivals) -> dict[str, Any]:
    """Return the programs and the CPU quota that take a rank's cores, as facts for a report."""
    facts: dict[str, Any] = {"programs": [program.title for program in rivals.programs]} if rivals.programs else {}
    if rivals.quota_cores:
        facts |= {"quota_cores": rivals.quota_cores, "throttled_share": rivals.throttled_share}
    return facts
