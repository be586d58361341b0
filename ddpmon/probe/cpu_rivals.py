"""Finds what takes this rank's cores while it waits for one: other programs, or the CPU quota of its container.

Two readings of every process's /proc/PID/stat, a second apart, show the CPU time that each process used (proc(5)).
Processes are read only while the training thread waits for a core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ddpmon import command_lines, proc
from ddpmon.cgroups import Cgroup, cgroups_of
from ddpmon.messages import CpuProgram, CpuRivals
from ddpmon.messages.competitors import MAX_CPU_PROGRAMS
from ddpmon.messages.vocabulary import MAX_NAME
from ddpmon.plain import utf8

STARVED_SHARE = 0.1
"""Share of a second that the training thread must wait for a core before other processes are read."""
RIVALS_INTERVAL_S = 5.0
"""Seconds between two results. Reading a thousand processes takes the background thread about 20 ms."""
QUOTA_S = 5.0
"""Seconds between two searches for a CPU quota while there is none."""
LEAST_CORES = 0.1
"""Cores that a program must use to be reported."""
PROCESSES_AT_ONCE = 20
"""Number of processes to read before the training thread is offered the GIL."""
INTERPRETERS = ("python", "node", "perl", "ruby", "java", "bash", "sh")
"""Prefixes of interpreters' names. Such a program is reported with the script that it runs."""
_OWN_PROGRAMS = {"ddpmon", "ddpmon.hub"}
"""Last words of the names of ddpmon's own processes, of any run. They are not reported as rivals."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Throttling(NamedTuple):
    """The CPU quota of this process's container, and the time in which the container had used it up."""

    quota_cores: float
    throttled_s: float
    """Total time so far in which the quota was used up."""


class RivalSearch:
    """Searches for rivals, and stores the last reading of the process table.

    run_id: id of this run, whose ranks and workers are not rivals.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._before: tuple[float, dict[int, proc.Stat]] | None = None
        self._quiet_until = 0.0
        self._throttling: tuple[float, Throttling | None] = -QUOTA_S, None
        """Time of the last reading of the quota, and the reading."""
        self._told = CpuRivals()

    def find_rivals(
        self, starved: float | None, thread: int, now: float, make_way: Callable[[], None]
    ) -> CpuRivals | None:
        """Return the programs or the quota that keep the training thread from its cores; None if nothing new is known.

        Args:
            starved: Share of the last second in which the training thread got no core.
            thread: Kernel id of the training thread.
            now: Monotonic time in seconds.
            make_way: Offers the GIL to the training thread; called often.

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

        Without a quota, this searches again after QUOTA_S, because some containers get one while they run.
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
        """Return the programs that used the cores in the last second; None if there are no two readings yet."""
        if starved is None or starved < STARVED_SHARE or now < self._quiet_until:
            self._before = None
            return None
        times: dict[int, proc.Stat] = {}
        for number, pid in enumerate(proc.pids()):
            if number % PROCESSES_AT_ONCE == 0:
                make_way()
            if (read := proc.stat(pid)) is not None:
                times[pid] = read
        before, self._before = self._before, (now, times)
        if before is None or now <= before[0]:
            return None
        self._before, self._quiet_until = None, now + RIVALS_INTERVAL_S
        return self._programs(before[1], times, now - before[0], os.sched_getaffinity(thread))

    def _programs(
        self, before: Mapping[int, proc.Stat], after: Mapping[int, proc.Stat], took: float, mine: set[int]
    ) -> list[CpuProgram]:
        """Return the programs that used the rank's cores between two readings."""
        used = {
            pid: (times.own_ticks - before[pid].own_ticks) * _TICK_S / took
            for pid, times in after.items()
            if pid in before and {times.core, before[pid].core} & mine
        }
        busiest = sorted((pid for pid, cores in used.items() if cores >= LEAST_CORES), key=lambda pid: -used[pid])
        others = (pid for pid in busiest if not self._is_ours(pid, after))
        programs = (CpuProgram(pid, _named(pid), round(used[pid], 2)) for pid in others)
        rivals = (one for one in programs if one.name.rpartition(" ")[2] not in _OWN_PROGRAMS)
        return list(islice(rivals, MAX_CPU_PROGRAMS))

    def _is_ours(self, pid: int, times: Mapping[int, proc.Stat]) -> bool:
        """Return whether a process is a rank, a worker of a rank, or part of ddpmon or the launcher.

        Other programs that a script starts also inherit the run's variables, but they count as rivals.
        """
        launcher, above = os.getppid(), [pid]
        while above[-1] not in {launcher, 0, 1} and above[-1] in times:
            above.append(times[above[-1]].parent)
        if launcher > 1 and above[-1] == launcher:
            return len(above) <= 2 or _is_worker(pid, times[pid].parent)
        return bool(self._run_id) and proc.environment(pid).get("DDPMON_RUN_ID") == self._run_id


def _is_worker(pid: int, parent: int) -> bool:
    """Return whether a process runs the script of its parent, or multiprocessing started it."""
    arguments = proc.arguments(pid)
    return arguments == proc.arguments(parent) or any("multiprocessing" in word for word in arguments)


def read_throttling(cgroups: Callable[[], list[Cgroup]] | None = None) -> Throttling | None:
    """Return this process's tightest CPU quota; None if it has none."""
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
    """Return the name of a process's program, followed by the script if the program is an interpreter."""
    name = proc.program(pid)
    if name.startswith(INTERPRETERS):
        name = f"{name} {_script(proc.arguments(pid))}".rstrip()
    return utf8(name)[:MAX_NAME] or "?"


def _script(words: list[str]) -> str:
    """Return the script or module that an interpreter runs, such as "train.py" or "-m http.server"; "-c" for code."""
    first, *more = command_lines.split(words)[1] or [""]
    if first == "-m":
        return " ".join([first, *more[:1]])
    return first if first == "-c" else "" if first == "-" else Path(first).name
