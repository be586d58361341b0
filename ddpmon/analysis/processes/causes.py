"""Find the cause of a late rank: a measurement of its process or devices that differs from those of its peers.

A cause is named only if it distinguishes the rank from its peers, can account for half of the rank's lateness, and
began when the rank became late. A difference that began at another time is mentioned, but not named as the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

from ddpmon import numbers
from ddpmon.analysis.processes.conditions import Conditions, median_of, typical_conditions
from ddpmon.analysis.processes.core_rivals import MORE_QUOTA, rival_of, rivals_facts
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import format_count, rank_list

SLOWER_CLOCK = Threshold(
    0.07,
    of="share by which the clocks of other GPUs are higher than this GPU's clock",
    why="A judgement call: clocks of identical GPUs differ by less.",
)
FAULT_MS = 8.0
"""Time in ms of a page fault that reads from a hard disk: one seek. Solid-state disks take less."""
READ_BYTES_PER_S = Threshold(
    10e6,
    of="bytes per second that a rank reads from storage, or by which a host's network traffic exceeds other hosts'",
    why="A judgement call: any disk or link moves this amount in a tenth of a second, so traffic below it "
    "cannot be what slows a rank down.",
)
ACTIVITY_RATIO = Threshold(
    2.5,
    of="page faults or reads of a slow rank, or network traffic of its host, as a multiple of the same on other ranks "
    "or hosts",
    why="A judgement call: peers also differ from each other, and a host with twice as many ranks sends twice as much.",
)


SWAPPED_BYTES = Threshold(
    1 << 26,
    of="bytes of a rank in swap, if it also has many more page faults than its peers",
    why="A judgement call: Linux swaps out a few megabytes that nobody uses.",
)


@dataclass(frozen=True)
class Cause:
    """The reason why a rank is late, as far as the evidence supports it."""

    name: str
    short: str
    """Words that follow the phase in a sentence."""
    fact: str
    """The measurement that distinguishes the rank, as the beginning of a sentence."""
    conclusion: str
    """The conclusion from the fact and the next step, as the rest of that sentence."""
    evidence: dict[str, Any] = field(default_factory=dict)
    began: Literal["with", "apart", "unknown"] = "with"
    """"with": the difference began together with the lateness. "apart": it began at another time, so it is mentioned
    but not called the cause. "unknown": its beginning is unknown."""
    ms: float = inf
    """Time per step in ms for which the cause can account; inf: any time."""

    @property
    def advice(self) -> str:
        """Return the sentences about the cause that follow the text of the finding."""
        if self.began == "with":
            return f"{self.fact}: {self.conclusion}."
        when = (
            "but this began at another time than the slowdown"
            if self.began == "apart"
            else "but ddpmon does not know when this began"
        )
        return f"{self.fact}; {when}."


@dataclass(frozen=True)
class Lateness:
    """A slowdown that a cause must account for."""

    rank: int
    phase: str
    over_ms: float
    own_ms: float
    step_ms: float
    host: str = ""
    """The host if all of its ranks are late and must be distinguished from other hosts; "" for a single rank."""
    began_us_ago: tuple[int, int] | None = None
    """The earliest and latest moment at which the lateness may have begun, in µs before the latest step; None: the
    start of the run."""

    @property
    def who(self) -> str:
        """Return the rank, or "A rank of" the host, to begin a sentence."""
        return f"A rank of {self.host}" if self.host else f"Rank {self.rank}"

    @property
    def others(self) -> str:
        """Return the words for the ranks that the late rank is compared with."""
        return "those of other hosts" if self.host else "its peers"

    @property
    def of_others(self) -> str:
        """Return the possessive form of `others`."""
        return "those of other hosts" if self.host else "its peers'"


def find_cause(
    late: Lateness, ranks: Sequence[int], by_rank: Mapping[int, Conditions], peers: Sequence[int]
) -> Cause | None:
    """Return the cause of late ranks, a single rank or all ranks of a host; None if none is known.

    If there are several causes, return the most certain. Return a difference that began at another time only without
    one.

    Args:
        late: The slowdown to explain.
        ranks: The late ranks.
        by_rank: The conditions of each rank.
        peers: The ranks that are not late.

    """
    mine = [by_rank[rank] for rank in ranks if rank in by_rank]
    others = [by_rank[rank] for rank in peers if rank in by_rank]
    if late.began_us_ago is None:
        return next(iter(_sets_apart(late, mine, others)), None)
    mine_before, mine_after = _around(mine, late.began_us_ago)
    others_before, others_after = _around(others, late.began_us_ago)
    later = _sets_apart(late, mine_after or mine, others_after or others)
    if not (mine_before and others_before):
        return next((replace(one, began="unknown") for one in later), None)
    earlier = {one.name for one in _sets_apart(late, mine_before, others_before)}
    new = next((one for one in later if one.name not in earlier), None)
    return new or next((replace(one, began="apart") for one in later), None)


def _around(them: Sequence[Conditions], us_ago: tuple[int, int]) -> tuple[list[Conditions], list[Conditions]]:
    """Return the conditions of ranks before and after the lateness began, as far as they are known."""
    sides = [one.around(*us_ago) for one in them]
    return [before for before, _ in sides if before], [after for _, after in sides if after]


def _sets_apart(late: Lateness, them: Sequence[Conditions], others: Sequence[Conditions]) -> list[Cause]:
    """Return all causes that distinguish these ranks and can explain half of the lateness, the most certain first."""
    if not them:
        return []
    mine = typical_conditions(them)
    causes = (
        of(late, mine, others)
        for of in (
            *(_slow_gpu, _shared_gpu, _quota, _few_cores, _no_core, _fewer_workers, _page_faults, _reads, _storage),
            _other_gpu,
        )
    )
    return [cause for cause in causes if cause is not None and cause.ms >= EXPLAINS.enter * late.over_ms]


def _slow_gpu(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    if late.phase not in {"forward", "backward", "optimizer"}:
        return None
    reasons = ", ".join(mine.gpu_throttled)
    why = f" ({reasons})" if reasons else ""
    hot = f", at {mine.gpu_temperature_c:.0f} °C" if mine.gpu_temperature_c is not None else ""
    theirs = median_of(one.gpu_clock_mhz for one in others)
    whose = f"{late.host}'s GPUs run" if late.host else f"Rank {late.rank}'s GPU runs"
    alone = f"Only {late.host}'s GPUs throttle" if late.host else f"Only rank {late.rank}'s GPU throttles"
    mending = f"{'their' if late.host else 'its'} cooling and power limit (nvidia-smi -q -d PERFORMANCE)"
    if mine.gpu_clock_mhz and theirs is not None:
        slower = theirs / mine.gpu_clock_mhz - 1
        if slower < SLOWER_CLOCK.enter:
            return None
        return Cause(
            "gpu_clock",
            f", {'GPUs' if late.host else 'GPU'} at {mine.gpu_clock_mhz:,.0f} of {theirs:,.0f} MHz",
            f"{whose} at {mine.gpu_clock_mhz:,.0f} MHz{why}{hot}, {late.of_others} at {theirs:,.0f}",
            f"look at {mending}, or take another {'machine' if late.host else 'GPU'}",
            {"gpu_clock_mhz": mine.gpu_clock_mhz, "peers_gpu_clock_mhz": theirs, "gpu_throttled": reasons},
            ms=slower * late.own_ms,
        )
    if mine.gpu_throttled and others and not any(one.gpu_throttled for one in others):
        return Cause(
            "gpu_throttled",
            f", {'GPUs' if late.host else 'GPU'} throttled: {reasons}",
            f"{alone}{why}{hot}",
            f"look at {mending}",
            {"gpu_throttled": reasons},
        )
    return None


def _shared_gpu(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    if late.phase not in {"forward", "backward", "optimizer"} or not mine.other_program or not others:
        return None
    if any(one.other_program for one in others):
        return None
    return Cause(
        "other_program",
        f", GPU also used by {mine.other_program}",
        f"{late.who} shares its GPU with {mine.other_program}, and {late.others} share theirs with no other program",
        "that program and the training run one after another on the GPU: find out who started it, or use another GPU",
        {"other_program": mine.other_program},
    )


def _few_cores(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    """Compare the cores that a rank, or its DataLoader workers, may run on: many threads or workers need more cores."""
    workers = mine.loader_workers or 0 if late.phase == "data" else 0
    cores = mine.worker_cores if workers else mine.affinity
    theirs = min((len(own) for one in others if (own := one.worker_cores if workers else one.affinity)), default=0)
    if late.host or not 0 < len(cores) < theirs:
        return None
    shared = len(cores) < max(workers, mine.compute_threads)
    starved = mine.starved_share or 0.0
    if not shared and rival_of(mine.cpu_rivals, starved).by:
        return None  # The cause that names the other program says more.
    who = f"{late.who}'s DataLoader workers" if workers else late.who
    more = starved - (median_of(one.starved_share for one in others) or 0.0)
    which = f"core{'s' if len(cores) > 1 else ''} {rank_list(sorted(cores), 0)}"
    return Cause(
        "affinity",
        f", on {which} alone",
        f"{who} may run on {which} alone, and {late.others} on {theirs} cores",
        "give it as many cores. os.sched_setaffinity, taskset, numactl, the launcher or a library has bound it",
        {"bound_to": sorted(cores), "peers_cores": theirs},
        ms=inf if shared else more * late.step_ms,
    )


def _no_core(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    if mine.starved_share is None:
        return None
    theirs, rivals = median_of(one.starved_share for one in others) or 0.0, mine.cpu_rivals
    rival = rival_of(rivals, mine.starved_share)
    bound = f"the cores that {'they are' if late.host else 'the rank is'} bound to"
    look = rival.advice or f"Look for other programs on {mine.host or 'its machine'}, and at {bound}"
    return Cause(
        "cpu_starved",
        f", starved {mine.starved_share:.0%}{rival.by or ' of the time'}",
        f"{'Its ranks are' if late.host else 'It is'} starved of a core {mine.starved_share:.0%} of the time,"
        f" {late.others} {theirs:.0%}",
        f"this alone can explain the delay. {look}",
        {"starved_share": mine.starved_share, "peers_starved_share": theirs} | rivals_facts(rivals),
        ms=(mine.starved_share - theirs) * late.step_ms,
    )


def _quota(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    """Compare the times for which containers had used up their CPU quotas. Such times are no waits for a core."""
    rivals, theirs = mine.cpu_rivals, median_of(one.cpu_rivals.throttled_share for one in others) or 0.0
    if not rivals.throttled_share:
        return None
    limit = f"CPU quota of {rivals.quota_cores:g} cores"
    return Cause(
        "cpu_quota",
        f", {limit}",
        f"{late.who}'s container has used up its {limit} {rivals.throttled_share:.0%} of the time, {late.others}"
        f" {theirs:.0%}",
        MORE_QUOTA,
        rivals_facts(rivals),
        ms=(rivals.throttled_share - theirs) * late.step_ms,
    )


def _fewer_workers(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    theirs = [one.loader_workers for one in others if one.loader_workers is not None]
    if late.phase != "data" or mine.loader_workers is None or not theirs or mine.loader_workers >= min(theirs):
        return None
    return Cause(
        "loader_workers",
        f", {format_count(mine.loader_workers, 'worker')}, peers {min(theirs)}",
        f"{late.who} has {format_count(mine.loader_workers, 'DataLoader worker')}, and {late.others} have {min(theirs)}"
        " or more",
        "give this rank the same number of workers",
        {"loader_workers": mine.loader_workers, "peers_loader_workers": min(theirs)},
    )


def _page_faults(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    faults, theirs = mine.major_faults_per_s, median_of(one.major_faults_per_s for one in others)
    if faults is None or theirs is None or faults < ACTIVITY_RATIO.enter * theirs:
        return None
    return Cause(
        "page_faults",
        f", {faults:,.0f} page faults/s from disk",
        f"{late.who} waits for a disk at {faults:,.0f} page faults a second, and {late.others} at {theirs:,.0f}",
        f"{numbers.size(mine.swapped_bytes)} of its memory are in swap: use less memory, or give it more"
        if mine.swapped_bytes >= SWAPPED_BYTES.enter
        else "its memory is swapped out, or it maps files that are not in the page cache",
        {"major_faults_per_s": faults, "peers_major_faults_per_s": theirs, "swapped_bytes": mine.swapped_bytes or None},
        ms=(faults - theirs) / 1e3 * late.step_ms * FAULT_MS,
    )


def _reads(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    reads = median_of(one.read_bytes_per_s for one in others)
    if late.phase != "data" or mine.read_bytes_per_s is None or reads is None:
        return None
    if mine.read_bytes_per_s < max(READ_BYTES_PER_S.enter, ACTIVITY_RATIO.enter * reads):
        return None
    return Cause(
        "reads",
        f", reads {numbers.size(mine.read_bytes_per_s)}/s from disk",
        f"{late.who} reads {numbers.size(mine.read_bytes_per_s)}/s from storage,"
        f" and {late.others} {numbers.size(reads)}/s",
        "either the other ranks find their files in the page cache, or this rank reads more files. The reads of its "
        "DataLoader workers come on top",
        {"read_bytes_per_s": mine.read_bytes_per_s, "peers_read_bytes_per_s": reads},
    )


def _storage(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    """Compare how long hosts wait for storage, which is measured for all processes of a host together."""
    if not late.host or late.phase not in {"data", "other"} or mine.io_wait_share is None:
        return None
    theirs = median_of(one.io_wait_share for one in others)
    if theirs is None:
        return None
    return Cause(
        "storage",
        f", waits {mine.io_wait_share:.0%} for storage",
        f"Processes of {late.host} wait {mine.io_wait_share:.0%} of the time for storage, and processes of other hosts"
        f" wait {theirs:.0%}",
        "check the disk and the file system mount of that host, and look for other programs that read and write there"
        " (iostat -x, nfsiostat)",
        {"io_wait_share": mine.io_wait_share, "peers_io_wait_share": theirs},
        ms=(mine.io_wait_share - theirs) * late.step_ms,
    )


def _other_gpu(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    names = {one.device_name for one in others}
    if late.phase not in {"forward", "backward", "optimizer"} or not mine.device_name or mine.device_name in names:
        return None
    if len(names) != 1 or not (theirs := names.pop()):
        return None
    return Cause(
        "gpu",
        f", on {mine.device_name}, {'others' if late.host else 'peers'} {theirs}",
        f"{late.who} computes on {mine.device_name}, {late.others} on {theirs}",
        "the same work takes a different time on each. Use equal GPUs, or give the slower GPU smaller batches",
        {"gpu": mine.device_name, "peers_gpu": theirs},
    )
