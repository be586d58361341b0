"""Words that name the reason why a rank gets no core: other programs, or its container's CPU quota."""

from __future__ import annotations

from typing import Any, NamedTuple

from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.messages import CpuRivals

LISTED_PROGRAMS = 3
"""Maximum number of programs that a sentence names. Further programs use less of the cores."""


class Rival(NamedTuple):
    """Words that name the reason why a rank gets no core; all are empty if it is unknown."""

    by: str = ""
    """Words that follow the share of the time in a sentence: " by tar"."""
    where: str = ""
    """Words that follow the whole sentence: " beside tar"."""
    advice: str = ""
    """The next step, as a sentence without its full stop, which the caller adds."""
    is_quota: bool = False


def rival_of(rivals: CpuRivals, starved_share: float) -> Rival:
    """Return the words for the reason of at least half of the time in which a rank gets no core."""
    if rivals.throttled_share >= EXPLAINS.enter * starved_share:
        quota = f"a CPU quota of {rivals.quota_cores:g} cores"
        used = f"which is used up {rivals.throttled_share:.0%} of the time"
        return Rival(" by its CPU quota", f" under {quota}", f"Its container has {quota}, {used}: {MORE_QUOTA}", True)
    if not rivals.programs or rivals.used_cores < EXPLAINS.enter * starved_share:
        return Rival()
    name, many = rivals.programs[0].name, len(rivals.programs) > 1
    *others, last = (program.title for program in rivals.programs[:LISTED_PROGRAMS])
    titles = f"{', '.join(others)} and {last}" if others else last
    advice = f"{titles[:1].upper()}{titles[1:]} {'run' if many else 'runs'} on the same cores"
    return Rival(f" by {name}", f" beside {name}", f"{advice}: end or move what is not needed there")


MORE_QUOTA = "raise the limit (cpu.max of its cgroup), or start fewer ranks and threads"


def rivals_facts(rivals: CpuRivals) -> dict[str, Any]:
    """Return the programs and the CPU quota that take a rank's cores, as facts for a report."""
    facts: dict[str, Any] = {"programs": [program.title for program in rivals.programs]} if rivals.programs else {}
    if rivals.quota_cores:
        facts |= {"quota_cores": rivals.quota_cores, "throttled_share": rivals.throttled_share}
    return facts
