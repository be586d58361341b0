"""Finds what takes this rank's cores, while it waits for one: other programs, or the CPU quota of its container.

Two readings of /proc/PID/stat of all processes, a second apart, tell what each process used (proc(5)). Nothing of this
is read as long as the training thread gets its cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ddpmon.cgroups import Cgroup, cgroups_of
from ddpmon.messages import CpuProgram, CpuRivals
from ddpmon.messages.cpu_rivals import MAX_CPU_PROGRAMS
from ddpmon.messages.vocabulary import MAX_NAME
from ddpmon.plain import utf8
from ddpmon.probe import counters

STARVED_SHARE = 0.1
"""Share of a second without a core from which on it is asked who has them."""
EVERY_S = 5.0
"""Time between two answers: a reading of a thousand processes takes some 20 ms of the background thread."""
QUOTA_S = 5.0
"""Time between two looks for a quota, where there is none."""
LEAST_CORES = 0.1
"""Use from which on a program is named."""
AT_ONCE = 20
"""Processes that are read before the training thread may have the GIL."""
INTERPRETERS = ("python", "node", "perl", "ruby", "java", "bash", "sh")
"""Beginnings of program names that say less than the script which they run."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Throttling(NamedTuple):
    """A container's CPU quota."""

    quota_cores: float
    throttled_s: float
    """Time so far in which it was used up."""


class RivalSearch:
    """Keeps the last reading of the process table. run_id: of the run whose ranks and workers are no rivals."""

    def __init__(self, run_id: str) -> None:
        self._run_id = os.fsencode(run_id)
        self._before: tuple[float, dict[int, counters.Times]] | None = None
        self._quiet_until = 0.0
        self._throttling: tuple[float, Throttling | None] = -QUOTA_S, None
        """The last reading of the quota, and its moment."""
        self._told = CpuRivals()

    def look(self, starved: float | None, thread: int, now: float, make_way: Callable[[], None]) -> CpuRivals | None:
        """Return what takes the cores; None: nothing new is known.

        Args:
            starved: Share of the last second in which the training thread got no core.
            thread: The training thread, as the kernel counts threads.
            now: Seconds, monotonic.
            make_way: Called now and then, so that the training thread gets the GIL.

        """
        quota, share = self._throttled(now)
        programs = self._programs_now(starved, thread, now, make_way)
        moved = abs(share - self._told.throttled_share) >= STARVED_SHARE
        if programs is None and not moved:
            return None
        self._told = CpuRivals(self._told.programs if programs is None else programs, quota, share)
        return self._told

    def _throttled(self, now: float) -> tuple[float, float]:
        """Return the quota in cores, and the share of the time since the last call in which it was used up.

        A container without a quota is asked again after QUOTA_S: some get one while they run.
        """
        at, before = self._throttling
        if before is None and now - at < QUOTA_S:
            return 0.0, 0.0
        throttling = read_throttling()
        self._throttling = now, throttling
        if throttling is None or before is None or now <= at:
            return 0.0 if throttling is None else round(throttling.quota_cores, 2), 0.0
        share = (throttling.throttled_s - before.throttled_s) / (now - at)
        return round(throttling.quota_cores, 2), round(min(1.0, max(0.0, share)), 3)

    def _programs_now(
        self, starved: float | None, thread: int, now: float, make_way: Callable[[], None]
    ) -> list[CpuProgram] | None:
        """Return the programs that used the cores in the last second; None: this call read none, or the first half."""
        if starved is None or starved < STARVED_SHARE or now < self._quiet_until:
            self._before = None
            return None
        times: dict[int, counters.Times] = {}
        for number, pid in enumerate(counters.pids()):
            if number % AT_ONCE == 0:
                make_way()
            if (read := counters.times(pid)) is not None:
                times[pid] = read
        before, self._before = self._before, (now, times)
        if before is None or now <= before[0]:
            return None
        self._before, self._quiet_until = None, now + EVERY_S
        return self._programs(before[1], times, now - before[0], os.sched_getaffinity(thread))

    def _programs(
        self, before: Mapping[int, counters.Times], after: Mapping[int, counters.Times], took: float, mine: set[int]
    ) -> list[CpuProgram]:
        """Return the programs that used these cores between two readings."""
        used = {
            pid: (times.ticks - before[pid].ticks) * _TICK_S / took
            for pid, times in after.items()
            if pid in before and {times.core, before[pid].core} & mine
        }
        busiest = sorted((pid for pid, cores in used.items() if cores >= LEAST_CORES), key=lambda pid: -used[pid])
        others = [pid for pid in busiest if not self._is_ours(pid, after)]
        return [CpuProgram(pid, _named(pid), round(used[pid], 2)) for pid in others[:MAX_CPU_PROGRAMS]]

    def _is_ours(self, pid: int, times: Mapping[int, counters.Times]) -> bool:
        """Return whether it is a rank, a worker of one, or belongs to ddpmon or to the launcher.

        What a script starts beside its training has the run's variables too, but it is none of these.
        """
        launcher, above = os.getppid(), [pid]
        while above[-1] not in {launcher, 0, 1} and above[-1] in times:
            above.append(times[above[-1]].parent)
        if launcher > 1 and above[-1] == launcher:
            return len(above) <= 2 or _is_worker(pid, times[pid].parent)
        return bool(self._run_id) and counters.environment(pid).get(b"DDPMON_RUN_ID") == self._run_id


def _is_worker(pid: int, parent: int) -> bool:
    """Return whether a process runs its parent's script, or was started by multiprocessing."""
    arguments = counters.arguments(pid)
    return arguments == counters.arguments(parent) or any(b"multiprocessing" in word for word in arguments)


def read_throttling(cgroups: Callable[[], list[Cgroup]] | None = None) -> Throttling | None:
    """Return the CPU quota that allows this process least; None: it has none."""
    found = (_throttling(one) for one in (cgroups() if cgroups else cgroups_of("cpu")))
    return min((one for one in found if one is not None), default=None)


def _throttling(cgroup: Cgroup) -> Throttling | None:
    """Read a cgroup's quota (cgroup-v2.rst: cpu.max, cpu.stat; sched-bwc.rst for version 1)."""
    try:
        if cgroup.version == 2:
            quota, period = (cgroup.folder / "cpu.max").read_text().split()
        else:
            quota, period = ((cgroup.folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if quota.strip() in {"max", "-1"}:
            return None
        stat = dict(line.split() for line in (cgroup.folder / "cpu.stat").read_text().splitlines())
        throttled_s = int(stat.get("throttled_usec", 0)) / 1e6 + int(stat.get("throttled_time", 0)) / 1e9
        return Throttling(int(quota) / int(period), throttled_s)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _named(pid: int) -> str:
    """Return the name of a process's program, with the script where it is an interpreter's."""
    name = counters.program(pid).decode(errors="replace")
    if name.startswith(INTERPRETERS):
        name = f"{name} {_script([word.decode(errors='replace') for word in counters.arguments(pid)[1:]])}".rstrip()
    return utf8(name)[:MAX_NAME] or "?"


def _script(words: list[str]) -> str:
    """Return the script or the module that an interpreter runs: "train.py", "-m http.server"; "-c" for code."""
    for place, word in enumerate(words):
        if word == "-m":
            return " ".join(words[place : place + 2])
        if word == "-c":
            return word
        if word and not word.startswith("-"):
            return Path(word).name
    return ""
