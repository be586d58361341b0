"""DataLoaders that ranks wait for: how many workers they have, and how many would keep up with training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from ddpmon.analysis.words import format_count, rank_list

if TYPE_CHECKING:
    from ddpmon.analysis.processes.conditions import Conditions  # Imports NumPy, which a dashboard does not need.

IDLE_CORES, BUSY_CORES = 0.05, 0.5
"""Maximum mean number of cores that a waiting worker uses, and minimum that a computing worker uses."""


@dataclass(frozen=True)
class Worker:
    """A DataLoader worker for which a rank waits, described by /proc and by the worker's own stack."""

    pid: int
    cores: float | None = None
    """Mean number of cores that the worker used since it was first examined; None: not yet known."""
    kernel: str = ""
    """The kernel's function in which the worker waits; "": it does not wait in the kernel, or the function is
    unreadable."""
    line: str = ""
    """The worker's current Python line, in the script's own code if possible; "": the worker did not answer."""

    @property
    def place(self) -> str:
        """Return the line and the use of cores, as in "in train.py:12 Images.__getitem__, without using a core"."""
        parts = [f"in {self.line}"] if self.line else []
        if self.cores is not None and self.cores < IDLE_CORES:
            parts.append("without using a core")
        elif self.cores is not None:
            parts.append(f"using {self.cores:.1f} cores")
        return ", ".join(parts) or "the worker does not send the next batch"

    @property
    def advice(self) -> str:
        """Return what the worker may wait for, and how to find out more."""
        more = f" py-spy dump --pid {self.pid} shows where it is." if not self.line else ""
        if self.cores is not None and self.cores >= BUSY_CORES:
            return f"The worker computes: it runs an endless loop, or one sample takes very long.{more}"
        if self.cores is None or self.cores >= IDLE_CORES:
            return f"Find out what the worker does.{more}"
        if "futex" in self.kernel:
            return (
                "The worker waits for a lock or for another thread. If a thread of the rank held a lock at the fork,"
                " the worker waits for that lock for ever. Make locks in the worker, or start workers with"
                f" multiprocessing_context='spawn'.{more}"
            )
        if "signal_stop" in self.kernel:
            return f"The worker is stopped. To continue the worker: kill -CONT {self.pid}"
        where = f" in the kernel ({self.kernel})" if self.kernel else ""
        return f"The worker waits{where}: look at the file, socket or queue that it reads.{more}"


def advice(data_ms: float, step_ms: float, conditions: Sequence[Conditions], *, cause_is_known: bool = False) -> str:
    """Return advice on how to hide the time that all ranks wait for data in each step.

    Without workers, loading a batch takes as long as the wait. If W workers cannot keep up, one batch arrives per step,
    so each worker takes W steps for a batch. A number of workers suffices if it makes as many batches in this time as
    training uses.

    Args:
        data_ms: Time that ranks wait for data in a step.
        step_ms: Length of the step.
        conditions: Conditions of the ranks.
        cause_is_known: True if another sentence says why data is slow.

    """
    unknown = "" if cause_is_known else f" {_UNKNOWN}"
    rest = max(step_ms - data_ms, 1e-3)
    counts = Counter(one.loader_workers for one in conditions if one.loader_workers is not None)
    pinned = _pinning(conditions)
    if not counts:
        return (
            f"Each step waits {data_ms:.1f} ms for a batch. If the DataLoader has no workers,"
            f" num_workers={ceil(data_ms / rest)} would hide this time. If it has W workers, {step_ms / rest:.1f} times"
            f" W would.{unknown}{pinned}"
        )
    workers = counts.most_common(1)[0][0]
    if workers == 0:
        enough = ceil(data_ms / rest)
        has = f"The DataLoader has no workers: training waits {data_ms:.1f} ms for each batch."
    else:
        enough = max(workers + 1, ceil(workers * step_ms / rest))
        has = f"{workers} DataLoader worker{'s' if workers > 1 else ''} a rank cannot keep up with training."
    if bound := bound_workers(conditions):
        return (
            f"The {bound.workers} DataLoader workers on {bound.host or 'the host'} may use only {bound.where} of"
            f" {bound.of}: the script, or a library that it imports, has bound the workers or their ranks. Call"
            f" os.sched_setaffinity(0, range({bound.of})) in worker_init_fn to give the workers all cores."
            f"{unknown}{pinned}"
        )
    return f"{has} num_workers={enough} would hide this time{_cores(enough, conditions)}.{unknown}{pinned}"


_UNKNOWN = "ddpmon did not measure whether disk, decoding or collating takes the time."


def _cores(workers: int, conditions: Sequence[Conditions]) -> str:
    """Return words about the total number of worker processes on the host with the fewest cores per rank."""
    hosts: dict[str, list[Conditions]] = {}
    for one in conditions:
        if one.cores:
            hosts.setdefault(one.host, []).append(one)
    if not hosts:
        return ""
    tightest = max(hosts.values(), key=lambda there: len(there) / min(one.cores for one in there))
    cores, ranks = min(one.cores for one in tightest), len(tightest)
    wanted = ranks * (1 + workers)
    if wanted <= cores:
        return (
            f" (with {ranks} rank{'s' if ranks > 1 else ''} on a host, this makes {wanted} processes on"
            f" {format_count(cores, 'core')})"
        )
    return (
        f" on enough cores: {ranks} rank{'s' if ranks > 1 else ''} and their workers would be {wanted} processes on"
        f" {cores}. If loading uses the CPU, reduce that work (decode in advance, cache) or get more cores"
    )


@dataclass(frozen=True)
class BoundWorkers:
    """Workers of a host that are bound to fewer cores than the host has, and to fewer cores than there are workers."""

    host: str
    workers: int
    where: str
    """The cores of the workers, as in "core 0"."""
    of: int
    """Number of cores of the host."""


def bound_workers(conditions: Sequence[Conditions]) -> BoundWorkers | None:
    """Return the workers of the first host that binds its workers to too few cores; None if there is no such host."""
    hosts: dict[str, list[Conditions]] = {}
    for one in conditions:
        hosts.setdefault(one.host, []).append(one)
    for host, there in hosts.items():
        cores = max(one.cores for one in there)
        workers = sum(one.loader_workers or 0 for one in there)
        bound = sorted(frozenset().union(*(one.worker_cores for one in there)))
        if 0 < len(bound) < min(cores, workers):
            return BoundWorkers(host, workers, f"core{'s' if len(bound) > 1 else ''} {rank_list(bound, 0)}", cores)
    return None


def _pinning(conditions: Sequence[Conditions]) -> str:
    if not any(one.loader_pinned is False for one in conditions):
        return ""
    return (
        " The DataLoader does not pin batches in memory. With pin_memory=True and .to(device, non_blocking=True), the "
        "copy to the GPU also runs in parallel with training."
    )
