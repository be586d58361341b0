"""Finds the jobs that train on this machine: their ranks, which of these belong together, and who started them.

By /proc alone, and at once: `ddpmon ls` asks it each time. A rank has the threads of a process group, whatever started
it, and one of torchrun's has RANK in its environment too. DataLoader workers inherit the environment of their rank, but
have none of its threads. Standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from ddpmon import tasks
from ddpmon.runs import Process, Run, proc
from ddpmon.runs.proc import Stat

_GROUP_THREADS = ("pt_gloo_runloop", "pt_nccl_")
"""Beginnings of the names of threads that torch starts once a process group is connected. A process must not be stopped
before: gloo would wait for ever for the others' connections."""
_TORCH = b"/libtorch_python.so"
_MPI = ("mpirun", "mpiexec", "orterun", "prterun", "prted", "orted", "hydra_pmi_proxy")
"""Beginnings of the names of MPI's programs that start ranks, and hand a signal on to them."""
_ELASTIC = "TORCHELASTIC_RUN_ID"
"""Variable that torchrun sets for its ranks, and whoever starts them as torchrun does: Accelerate, Ray Train."""
_DEEPSPEED = b"deepspeed.launcher.launch"
_SPAWNED = "--multiprocessing-fork"
_WATCHED = "DDPMON_RUN_ID"


@dataclass(frozen=True)
class RankProcess:
    """A process that trains, before anything in it is known but what its launcher said."""

    process: Process
    parent: int
    words: tuple[str, ...]
    """Words of its command line."""
    task: tasks.Task | None
    """Its place in the job, where the environment says so."""
    has_launcher: bool
    """Its parent is a launcher, which hands a signal on to it or ends it: no shell, and no program of another purpose.
    """
    has_group: bool
    """It has set up a process group: before, it imports and is no rank yet."""
    watched: bool = False
    """ddpmon started it, or has attached to it."""

    @property
    def rank(self) -> int | None:
        """Its rank, where the environment says so."""
        return self.task.rank if self.task else None


@dataclass(frozen=True)
class TrainingJob:
    """Ranks on this machine that train together."""

    ranks: tuple[RankProcess, ...]
    """By rank where that is known, else in the order in which they started."""
    launcher: Process | None
    """Who started them and passes a signal on; None: a shell, or a scheduler."""
    words: tuple[str, ...]
    """Command line of the launcher, else of the first rank."""
    started_at: float = field(compare=False)
    """Unix seconds."""

    @property
    def watched(self) -> bool:
        """Return whether ddpmon watches it already."""
        return any(rank.watched for rank in self.ranks)

    @property
    def pid(self) -> int:
        """The pid that names it: its launcher's, else its first rank's."""
        return self.launcher.pid if self.launcher else self.ranks[0].process.pid

    @property
    def world_size(self) -> int:
        """Ranks on all machines, as far as the environment says; else those here."""
        sizes = [rank.task.size for rank in self.ranks if rank.task]
        return max([*sizes, len(self.ranks)])

    @property
    def command(self) -> tuple[str, ...]:
        """The script or module with its arguments, as its first rank runs it; else the whole command line."""
        first = self.ranks[0].words
        return _script(self.words if _SPAWNED in first else first)


def find_all(watched: AbstractSet[Process] = frozenset()) -> list[TrainingJob]:
    """Every job of this user on this machine, the oldest first. watched: as `attached_processes` returns it."""
    stats = proc.stats()
    ranks = _ranks(stats, watched)
    groups = _grouped(ranks, stats)
    jobs = [_job(group, stats) for group in groups]
    return sorted(jobs, key=lambda job: job.started_at)


def unwatched(runs: Iterable[Run]) -> list[TrainingJob]:
    """Jobs of this user that train here and that ddpmon does not watch, the oldest first. runs: all of this user."""
    return [
        job
        for job in find_all(attached_processes(runs))
        if not job.watched and all(rank.has_group for rank in job.ranks)
    ]


def attached_processes(runs: Iterable[Run]) -> frozenset[Process]:
    """Ranks of jobs that these runs are attached to, and their launchers, which may start others."""
    attached = [run for run in runs if run.attached and not run.ended]
    launchers = {run.agent for run in attached if run.agent}
    return frozenset(launchers | {each.process for run in attached for each in run.attached})


def of_process(pid: int, jobs: Iterable[TrainingJob]) -> list[TrainingJob]:
    """The job of its launcher, of a rank or of something below one; else those that have ranks below this process."""
    jobs = list(jobs)
    by_pid = {rank.process.pid: job for job in jobs for rank in job.ranks}
    by_pid |= {job.launcher.pid: job for job in jobs if job.launcher}
    stats = proc.stats()
    above = [pid, *_above(pid, stats)]
    if mine := next((by_pid[each] for each in above if each in by_pid), None):
        return [mine]
    return [job for job in jobs if any(pid in _above(rank.process.pid, stats) for rank in job.ranks)]


def _ranks(stats: Mapping[int, Stat], watched: AbstractSet[Process]) -> dict[int, RankProcess]:
    """Every rank of this user, by pid."""
    mine = os.getuid()
    candidates: dict[int, dict[str, str]] = {}
    grouped = set()
    for pid, stat in stats.items():
        if not stat.alive or proc.owner(pid) != mine or not _is_python(pid):
            continue
        try:
            variables = dict(
                word.decode(errors="surrogateescape").split("=", 1) for word in proc.environment(pid) if b"=" in word
            )
        except OSError:  # ended meanwhile, or it may not be read
            continue
        candidates[pid] = variables
        if any(name.startswith(_GROUP_THREADS) for name in proc.thread_names(pid)):
            grouped.add(pid)
    found = {}
    for pid, variables in candidates.items():
        stat = stats[pid]
        parent = candidates.get(stat.parent, {})
        inherits = "RANK" not in variables or parent.get("RANK") == variables["RANK"]
        if pid not in grouped and (inherits or stat.parent in grouped or not _has_torch(pid)):
            continue
        try:
            words = tuple(word.decode(errors="replace") for word in proc.arguments(pid)[:-1])
        except OSError:
            continue
        process = Process(pid, stat.start_ticks)
        is_watched = _WATCHED in variables or not watched.isdisjoint({process, _process(stat.parent, stats)})
        has_launcher = _is_launcher(stat.parent, parent, words, variables)
        task = tasks.task(variables)
        found[pid] = RankProcess(process, stat.parent, words, task, has_launcher, pid in grouped, is_watched)
    return found


def _process(pid: int, stats: Mapping[int, Stat]) -> Process:
    return Process(pid, stats[pid].start_ticks if pid in stats else 0)


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(proc.executable(pid)).startswith(("python", "pypy"))
    except OSError:
        return False


def _has_torch(pid: int) -> bool:
    try:
        return _TORCH in proc.mapped(pid)
    except OSError:
        return False


def _grouped(ranks: Mapping[int, RankProcess], stats: Mapping[int, Stat]) -> list[list[RankProcess]]:
    """Put together what the same job's environment names, what one process started, and what a rank started."""
    keys: dict[int, object] = {}

    def key(pid: int) -> object:
        if pid not in keys:
            rank = ranks[pid]
            keys[pid] = pid  # where a circle of parents would lead
            if rank.parent in ranks:  # Lightning's first rank starts the others
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
        try:
            words = tuple(word.decode(errors="replace") for word in proc.arguments(launcher.pid)[:-1]) or words
        except OSError:
            launcher = None
    first = min(rank.process.start_ticks for rank in group)
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - first / os.sysconf("SC_CLK_TCK")
    return TrainingJob(tuple(group), launcher, words, time.time() - age_s)


def _is_launcher(pid: int, variables: Mapping[str, str], child: tuple[str, ...], of_child: Mapping[str, str]) -> bool:
    """Return whether a process started a rank as a launcher does. variables: its own; child, of_child: the rank's."""
    if pid <= 1 or proc.owner(pid) != os.getuid():
        return False
    try:
        words = proc.arguments(pid)[:-1]
        if os.path.basename(proc.executable(pid)).startswith(_MPI):
            return True
    except OSError:
        return False
    forked = tuple(word.decode(errors="replace") for word in words) == child
    started = _ELASTIC in of_child and _ELASTIC not in variables
    return started or forked or _SPAWNED in child or _DEEPSPEED in words


def _above(pid: int, stats: Mapping[int, Stat]) -> list[int]:
    """The pids of a process's parents, the nearest first."""
    above: list[int] = []
    while (stat := stats.get(pid)) is not None and stat.parent not in {0, *above}:
        pid = stat.parent
        above.append(pid)
    return above


def _script(words: tuple[str, ...]) -> tuple[str, ...]:
    """What an interpreter was given to run: a script, or -m with a module; all words if that is not seen."""
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] not in {"-m", "-c", "-"}:
        place += 2 if words[place] in {"-W", "-X"} else 1
    if place < len(words) and words[place] == "-m":
        return words[place + 1 :] or words
    return words[place:] if place < len(words) and words[place] != "-c" else words
