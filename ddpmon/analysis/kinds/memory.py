"""Findings about memory of hosts and GPUs that grows, is nearly full, or is short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ddpmon import numbers
from ddpmon.analysis.evidence import Memory
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.run_state import STARTING_S
from ddpmon.analysis.statistics.trend import Trend
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting_parts, named_ranks, time_range
from ddpmon.messages import DeviceMark, Finding

HARMFUL_PER_HOUR = Threshold(
    1.0,
    of="growth of memory per hour, as a multiple of the memory now in use",
    why="A judgement call: memory that doubles within an hour ends a run before the night is over.",
)
FULL_WITHIN_S = Threshold(
    43_200.0,
    of="seconds until memory is full, if it keeps growing at the present rate",
    why="A judgement call: this is twelve hours. If memory fills up overnight, the run ends.",
    below=True,
)
CERTAIN_ESTIMATE = Threshold(
    3.0,
    of="longest estimate of the time until memory is full, divided by the shortest estimate",
    why="A judgement call: an estimate such as 2 to 6 hours still helps to plan. If estimates differ more, "
    "ddpmon shows no time.",
    below=True,
)
NEARLY_FULL = Threshold(
    0.95,
    of="share of a GPU's memory in use, above which ddpmon gives a hint",
    why="A judgement call: on a GPU with 80 GiB, 4 GiB are left, and a batch that is 10% longer may need more.",
)
FULL = Threshold(
    0.98,
    of="share of a GPU's memory in use, above which ddpmon warns",
    why="A judgement call: on a GPU with 80 GiB, 1.6 GiB are left, and the next batch may not fit.",
)
RETRIES = Threshold(
    3,
    of="number of seconds, among the last 30, in which torch's allocator released its cache to find GPU memory",
    why="A judgement call: one long batch may cause one release. A release every ten seconds is a pattern.",
    stay=2,
)
KEPT_OBJECTS_ADVICE = (
    "Look for objects that the script keeps from step to step: losses summed with their graph (use .item() or"
    " .detach()), lists of outputs"
)
COPIED = (
    "When a worker reads a Python object of the dataset, the reference count changes, and the worker gets its own copy"
    " of that memory (copy-on-write). Store samples in numpy arrays, tensors or Arrow tables instead of lists and"
    " dicts, and look for data that the dataset keeps for each sample; fewer workers make fewer copies"
)


class _Growth(NamedTuple):
    """A memory that grows."""

    memory: Memory
    name: str
    """Name of the field of `Memory` that grows."""
    trend: Trend


def _growing(moment: Moment, *names: str) -> list[_Growth]:
    """Return the memories with these names that grow, the fastest first, without ranks that have just started."""
    found = [
        _Growth(one, name, one.trends[name])
        for one in moment.evidence.memory
        if one.trends and STARTING_S.is_reached(one.trained_s)
        for name in names
        if name in one.trends
    ]
    return sorted(found, key=lambda one: -one.trend.per_s)


@Kind(
    gone="memory no longer grows",
    device=DeviceMark("memory grows", ["rss", "worker_memory"], 1),
    remedy="The script keeps objects that it should release: losses with their graphs, lists in the dataset, or caches."
    " If DataLoader workers grow, store the dataset's items in numpy arrays or tensors, not in lists.",
)
def memory_growth(moment: Moment) -> Iterator[Finding]:
    """Memory of ranks, or of their DataLoader workers, keeps growing.

    The finding covers all ranks whose memory grows. It names the fastest, or that rank's workers.
    """
    if grown := _growing(moment, "rss_bytes", "worker_bytes"):
        host, rank = grown[0].memory.host, grown[0].memory.rank
        there = [one for one in grown if one.memory.host == host]
        left = [one.left_bytes for one in moment.evidence.memory if one.host == host and one.left_bytes]
        lead, advice = f"rank {rank}'s memory grows", f"{KEPT_OBJECTS_ADVICE}, caches of a dataset"
        if grown[0].name == "worker_bytes":
            lead, advice = f"rank {rank}'s DataLoader workers grow", COPIED
        yield _growth(moment, grown, there, min(left, default=None), lead=lead, advice=advice)


@Kind(
    gone="GPU memory no longer grows",
    device=DeviceMark("GPU memory grows", ["gpu_memory", "gpu_reserved"], 2),
    remedy="The script keeps tensors from step to step, such as losses with their graphs or lists of outputs.",
)
def gpu_memory_growth(moment: Moment) -> Iterator[Finding]:
    """GPU memory keeps growing. If torch counts its own memory, ddpmon uses that count."""
    counts = any(one.gpu_reserved_bytes for one in moment.evidence.memory)
    if grown := _growing(moment, "gpu_reserved_bytes" if counts else "gpu_used_bytes"):
        first = grown[0].memory
        left = first.gpu_total_bytes - (first.gpu_used_bytes or 0) if first.gpu_total_bytes else None
        in_tensors, lead = first.gpu_allocated_bytes, f"rank {first.rank}'s GPU memory grows"
        advice = (
            KEPT_OBJECTS_ADVICE
            if in_tensors is None
            else f"{KEPT_OBJECTS_ADVICE}; tensors use {numbers.size(in_tensors)} of that"
        )
        yield _growth(moment, grown, grown[:1], left, lead=lead, advice=advice)


def _growth(
    moment: Moment,
    grown: Sequence[_Growth],
    together: Sequence[_Growth],
    left_bytes: int | None,
    *,
    lead: str,
    advice: str,
) -> Finding:
    """Return the finding about growing memories. It names the fastest, and when the memory will be full.

    Args:
        moment: The moment of the judgement.
        grown: All growing memories, the fastest first.
        together: The growing memories on the same host or GPU as the fastest one.
        left_bytes: Free memory of this host or GPU in bytes; None: unknown.
        lead: The beginning of the text, up to the rate of growth.
        advice: The advice, as a sentence without its full stop.

    """
    first = grown[0]
    size, per_s = int(getattr(first.memory, first.name) or 0), first.trend.per_s
    ranks, times = sorted({one.memory.rank for one in grown}), per_s * 3600 / max(size, 1)
    full, span_s, is_harmful = "", None, HARMFUL_PER_HOUR.is_reached(times)
    if left_bytes is not None:
        paces = zip(*(one.trend for one in together), strict=True)
        mean_s, longest_s, shortest_s = (left_bytes / sum(each) for each in paces)
        is_harmful |= FULL_WITHIN_S.is_reached(mean_s)
        if CERTAIN_ESTIMATE.is_reached(longest_s / max(shortest_s, 1e-9)):
            span_s, full = [round(shortest_s), round(longest_s)], time_range(shortest_s, longest_s)
    text = fitting_parts(
        f"{lead} {numbers.size(per_s * 60)} a minute",
        (1, f", {numbers.size(size)} now"),
        (0, f"; full in {full}" if full else ""),
        (2, f"; grows on {named_ranks(ranks, moment.evidence.world_size)}" if len(ranks) > 1 else ""),
    )
    whole = f" At this pace, the memory is full in {full}." if full else ""
    words = Words(text, f"{advice}. It grows by {numbers.size(per_s * 3600)} an hour.{whole}")
    facts = {"bytes_per_s": per_s, first.name: float(size), "times_per_hour": times, "full_in_s": span_s}
    return moment.finding(facts, ranks, severity="warn" if is_harmful else "info", words=words)


def nearly_full(memory: Iterable[Memory]) -> dict[int, float]:
    """Return the used share of each nearly full GPU, by rank."""
    shares = {one.rank: (one.gpu_used_bytes or 0) / one.gpu_total_bytes for one in memory if one.gpu_total_bytes}
    return {rank: share for rank, share in shares.items() if NEARLY_FULL.is_reached(share)}


@Kind(
    "info",
    "rank {rank}'s GPU memory is {share:.0%} full:| {left} left|{several}",
    "If a batch is longer than all batches so far, it may not fit. Use smaller batches, activation checkpointing or"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. {of_torch}",
    gone="GPU memory is no longer nearly full",
    device=DeviceMark("GPU nearly full", ["gpu_memory"], 3),
)
def gpu_memory(moment: Moment) -> Iterator[Finding]:
    """A GPU is nearly full. The finding covers all such GPUs and names the fullest."""
    shares, gpus = nearly_full(moment.evidence.memory), {one.rank: one for one in moment.evidence.memory}
    if not shares:
        return
    worst, ranks = max(sorted(shares), key=lambda rank: shares[rank]), sorted(shares)
    reserved, in_tensors = gpus[worst].gpu_reserved_bytes, gpus[worst].gpu_allocated_bytes
    left = (gpus[worst].gpu_total_bytes or 0) * (1 - shares[worst])
    of_torch = "ddpmon did not measure how much of this memory is torch's cache."
    if reserved is not None and in_tensors is not None:
        of_torch = (
            f"torch has reserved {numbers.size(reserved)} of that memory, and tensors use {numbers.size(in_tensors)}."
        )
    several = f"; {named_ranks(ranks, moment.evidence.world_size)} above {NEARLY_FULL.enter:.0%}"
    yield moment.finding(
        {"share": shares[worst], "left_bytes": left},
        ranks,
        severity="warn" if FULL.is_reached(shares[worst]) else "info",
        beside={
            "rank": worst,
            "left": numbers.size(left),
            "several": several if len(ranks) > 1 else "",
            "of_torch": of_torch,
        },
    )


@Kind(
    "warn",
    "rank {rank}'s GPU memory is short:| torch released its cache in {seconds} of 30 s|{several}",
    "Each time, the GPU is idle until torch has freed and reallocated memory. torch has reserved {reserved}, and "
    "tensors use {in_tensors} of that. Against fragmentation, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. If "
    "the model needs all of the memory, use smaller batches or activation checkpointing.",
    gone="torch no longer releases its cache to find GPU memory",
    device=DeviceMark("GPU memory short", ["gpu_reserved"], 4),
)
def allocator_retries(moment: Moment) -> Iterator[Finding]:
    """GPU memory allocators release their cache again and again to find memory, and the GPU idles each time.

    The finding covers all ranks with such an allocator, and names the rank with the most releases.
    """
    least = RETRIES.number_to_reach(moment.previous_finding is not None)
    found = {
        one.rank: one
        for one in moment.evidence.memory
        if one.retry_seconds >= least and STARTING_S.is_reached(one.trained_s)
    }
    if found:
        rank, most = max(found.items(), key=lambda pair: pair[1].retry_seconds)
        several = f"; also on {named_ranks(sorted(found), moment.evidence.world_size)}" if len(found) > 1 else ""
        yield moment.finding(
            {"seconds": most.retry_seconds, "reserved_bytes": most.gpu_reserved_bytes},
            sorted(found),
            beside={
                "rank": rank,
                "several": several,
                "reserved": numbers.size(most.gpu_reserved_bytes or 0),
                "in_tensors": numbers.size(most.gpu_allocated_bytes or 0),
            },
        )
