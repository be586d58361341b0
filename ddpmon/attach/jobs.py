"""Finds the jobs that train on this machine: their ranks, which ranks belong together, and what started them.

This module reads only /proc and is fast, because every `ddpmon ls` uses it. A process is a rank if it has the threads
of a process group, whatever started it. A rank of torchrun also has RANK in its environment, even before it has these
threads. DataLoader workers inherit the environment of their rank, but have none of its threads. Standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from ddpmon import command_lines, proc, tasks
from ddpmon.proc import Stat
from ddpmon.runs import Process, Run

_GROUP_THREADS = ("pt_gloo_runloop", "pt_nccl_")
"""Prefixes of the names of threads that torch starts once a process group is connected.

A debugger must not stop a process before these threads exist: gloo would wait forever for connections of other ranks.
"""
_TORCH = b"/libtorch_python.so"
_MPI = ("mpirun", "mpiexec", "orterun", "prterun", "prted", "orted", "hydra_pmi_proxy")
"""Prefixes of the names of MPI programs that start ranks and forward signals to them."""
_ELASTIC = "TORCHELASTIC_RUN_ID"
"""Variable that torchrun sets for its ranks. Launchers that imitate torchrun set it too: Accelerate, Ray Train."""
_TORCHRUN = ("torchrun", "torch.distributed.")
"""Words in the command line of torchrun."""
_INIT = 1
"""Pid of the init process, which adopts ranks whose launcher died. In a container this may be torchrun itself."""
_DEEPSPEED = "deepspeed.launcher.launch"
_SPAWNED = "--multiprocessing-fork"
_WATCHED = "DDPMON_RUN_ID"


@dataclass(frozen=True)
class RankProcess:
    """A process that trains, as far as /proc and its launcher's environment variables describe it."""

    process: Process
    parent: int
    words: tuple[str, ...]
    """Words of the process's command line."""
    task: tasks.Task | None
    """Rank and size of the job, where the environment has them."""
    has_launcher: bool
    """True if the parent is a launcher, which forwards signals to its ranks or ends them. A shell is not a launcher."""
    has_group: bool
    """True if the process has created a process group. A process without one is still starting, and is not counted as
    a rank."""
    watched: bool = False
    """True if ddpmon started the process or has attached to it."""

    @property
    def rank(self) -> int | None:
        """Return the process's rank, where the environment has it."""
        return self.task.rank if self.task else None


@dataclass(frozen=True)
class TrainingJob:
    """Ranks on this machine that train together."""

    ranks: tuple[RankProcess, ...]
    """Ordered by rank where it is known, else by start time."""
    launcher: Process | None
    """The process that started the ranks and forwards signals to them; None if a shell or a scheduler did."""
    words: tuple[str, ...]
    """Command line of the launcher, or of the first rank where there is no launcher."""
    started_at: float = field(compare=False)
    """Start time in Unix seconds."""

    @property
    def watched(self) -> bool:
        """Return whether ddpmon already watches the job."""
        return any(rank.watched for rank in self.ranks)

    @property
    def pid(self) -> int:
        """Return the pid by which users name the job: the launcher's, or without a launcher the first rank's."""
        return self.launcher.pid if self.launcher else self.ranks[0].process.pid

    @property
    def world_size(self) -> int:
        """Return the number of ranks on all machines if the environment has it, else of those on this machine."""
        sizes = [rank.task.size for rank in self.ranks if rank.task]
        return max([*sizes, len(self.ranks)])

    @property
    def command(self) -> tuple[str, ...]:
        """Return the script or module with its arguments, as the first rank runs it, or else the whole command line."""
        first = self.ranks[0].words
        return _script(self.words if _SPAWNED in first else first)


def find_all(watched: AbstractSet[Process] = frozenset()) -> list[TrainingJob]:
    """Return every job of this user on this machine, the oldest first. watched: the result of `attached_processes`."""
    stats = proc.stats()
    ranks = _ranks(stats, watched)
    groups = _grouped(ranks, stats)
    jobs = [_job(group, stats) for group in groups]
    return sorted(jobs, key=lambda job: job.started_at)


def unwatched(runs: Iterable[Run]) -> list[TrainingJob]:
    """Return the jobs of this user that train here without ddpmon, the oldest first. runs: all runs of this user."""
    return [
        job
        for job in find_all(attached_processes(runs))
        if not job.watched and all(rank.has_group for rank in job.ranks)
    ]


def attached_processes(runs: Iterable[Run]) -> frozenset[Process]:
    """Return the ranks of the jobs that ddpmon is attached to, and their launchers, which may start new ranks."""
    attached = [run for run in runs if run.attached and not run.ended]
    launchers = {run.agent for run in attached if run.agent}
    return frozenset(launchers | {each.process for run in attached for each in run.attached})


def of_process(pid: int, jobs: Iterable[TrainingJob]) -> list[TrainingJob]:
    """Return the job that a process belongs to: as launcher, as rank, or as a descendant of either.

    Returns all jobs with ranks below the process if it belongs to none.
    """
    jobs = list(jobs)
    by_pid = {rank.process.pid: job for job in jobs for rank in job.ranks}
    by_pid |= {job.launcher.pid: job for job in jobs if job.launcher}
    stats = proc.stats()
    above = [pid, *_above(pid, stats)]
    if mine := next((by_pid[each] for each in above if each in by_pid), None):
        return [mine]
    return [job for job in jobs if any(pid in _above(rank.process.pid, stats) for rank in job.ranks)]


def is_above(pid: int, job: TrainingJob) -> bool:
    """Return whether a process is an ancestor of a job, and no part of it."""
    return pid in _above(job.pid, proc.stats())


def _ranks(stats: Mapping[int, Stat], watched: AbstractSet[Process]) -> dict[int, RankProcess]:
    """Return every rank of this user, by pid."""
    mine = os.getuid()
    candidates: dict[int, dict[str, str]] = {}
    grouped = set()
    for pid, stat in stats.items():
        if not stat.alive or proc.owner(pid) != mine or not _runs(pid, ("python", "pypy")):
            continue
        candidates[pid] = proc.environment(pid)
        if any(name.startswith(_GROUP_THREADS) for name in proc.thread_names(pid)):
            grouped.add(pid)
    found = {}
    for pid, variables in candidates.items():
        stat = stats[pid]
        parent = candidates.get(stat.parent, {})
        inherits = "RANK" not in variables or parent.get("RANK") == variables["RANK"]
        if pid not in grouped and (inherits or stat.parent in grouped or _TORCH not in proc.mapped(pid)):
            continue
        words = tuple(proc.arguments(pid))
        if not words:  # The process has ended meanwhile, or may not be read.
            continue
        process = Process(pid, stat.start_ticks)
        is_watched = _WATCHED in variables or not watched.isdisjoint({process, _process(stat.parent, stats)})
        has_launcher = _is_launcher(stat.parent, parent, words, variables)
        task = tasks.task(variables)
        found[pid] = RankProcess(process, stat.parent, words, task, has_launcher, pid in grouped, is_watched)
    return found


def _process(pid: int, stats: Mapping[int, Stat]) -> Process:
    return Process(pid, stats[pid].start_ticks if pid in stats else 0)


def _grouped(ranks: Mapping[int, RankProcess], stats: Mapping[int, Stat]) -> list[list[RankProcess]]:
    """Group ranks into jobs: by the job id in the environment, by common launcher, or by the rank that started them."""
    keys: dict[int, object] = {}

    def key(pid: int) -> object:
        if pid not in keys:
            rank = ranks[pid]
            keys[pid] = pid  # This ends the recursion if parents form a circle.
            if rank.parent in ranks:  # Lightning's first rank starts the other ranks.
                keys[pid] = key(rank.parent)
            elif rank.task and rank.task.job:
                keys[pid] = rank.task.job
            elif rank.has_launcher:
                keys[pid] = _process(rank.parent, stats)
        return keys[pid]

    groups: dict[object, list[RankProcess]] = {}
    for pid, rank in ranks.items():
        groups.setdefault(key(pid), []).append(rank)
    return [
        sorted(group, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.process.start_ticks, rank.process.pid))
        for group in groups.values()
    ]


def _job(group: list[RankProcess], stats: Mapping[int, Stat]) -> TrainingJob:
    members = {rank.process.pid for rank in group}
    parents = {rank.parent for rank in group}
    launcher = None
    if len(parents) == 1 and not parents & members and all(rank.has_launcher for rank in group):
        launcher = _process(parents.pop(), stats)
    words = group[0].words
    if launcher:
        words = tuple(proc.arguments(launcher.pid)) or words
    first = min(rank.process.start_ticks for rank in group)
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - first / os.sysconf("SC_CLK_TCK")
    return TrainingJob(tuple(group), launcher, words, time.time() - age_s)


def _is_launcher(pid: int, variables: Mapping[str, str], child: tuple[str, ...], of_child: Mapping[str, str]) -> bool:
    """Return whether a rank's parent process is its launcher, not a shell or a scheduler.

    Args:
        pid: The possible launcher.
        variables: Environment of the possible launcher.
        child: Command line of the rank.
        of_child: Environment of the rank.

    """
    if pid < 1 or proc.owner(pid) != os.getuid():
        return False
    words = proc.arguments(pid)
    if not words or (pid == _INIT and not any(name in word for word in words for name in _TORCHRUN)):
        return False
    started = _ELASTIC in of_child and _ELASTIC not in variables
    forked = tuple(words) == child
    return started or forked or _SPAWNED in child or _DEEPSPEED in words or _runs(pid, _MPI)


def _runs(pid: int, programs: tuple[str, ...]) -> bool:
    """Return whether a process runs a program whose name begins with one of `programs`."""
    return os.path.basename(proc.executable(pid)).startswith(programs)


def _above(pid: int, stats: Mapping[int, Stat]) -> list[int]:
    """Return the pids of a process's ancestors, the nearest first."""
    above: list[int] = []
    while (stat := stats.get(pid)) is not None and stat.parent not in {0, *above}:
        pid = stat.parent
        above.append(pid)
    return above


def _script(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the script, or the module after -m, with its arguments; all words if the command line has neither."""
    _, rest = command_lines.split(words)
    if not rest or rest[0] == "-c":
        return words
    return tuple(rest[1:] if rest[0] == "-m" else rest) or words
