"""Summarises a rank's samples for the analysis: mean conditions, and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeVar

from ddpmon.analysis.evidence import Memory
from ddpmon.analysis.kinds import KINDS
from ddpmon.analysis.processes.conditions import SAMPLED_FIELDS, Conditions
from ddpmon.analysis.statistics.trend import Floors
from ddpmon.messages import MAX_US, SAMPLED, Sample
from ddpmon.store.processes import SAMPLE_US, RankProcess

T = TypeVar("T")

AGAIN_US = 5_000_000
"""Time in µs for which a summary of thirty samples is reused: a sixth of the time that it covers."""
FEW = 10
"""Up to this number of samples, each new sample causes a new summary. It is also the smallest number in a
`SampleSpan`."""
FEWEST_AROUND = 3
"""Smallest number of samples for a mean before or after the time at which a rank became late."""
EARLIER_SPANS = 16
"""Largest number of sample spans (`SampleSpan`) to store for a rank. If there are more, every second span is
dropped."""
_SIZES = {
    "rss_bytes": "rss_bytes", "worker_bytes": "worker_memory_bytes", "left_bytes": "memory_left_bytes",
    "gpu_used_bytes": "gpu_memory_used_bytes", "gpu_total_bytes": "gpu_memory_total_bytes",
    "gpu_reserved_bytes": "gpu_reserved_bytes", "gpu_allocated_bytes": "gpu_allocated_bytes",
}  # fmt: skip
"""{field of `Memory`: field of `Sample`}."""
GROWING = ("rss_bytes", "worker_bytes", "gpu_used_bytes", "gpu_reserved_bytes")
"""Fields of `Memory` that are watched for growth."""
_NAMED = {name for kind in KINDS for name in kind.quantities}
_OF_KINDS = tuple((row.name, row.field) for row in SAMPLED if row.name in _NAMED)
"""(quantity, field of `Sample`) for each quantity that findings use as evidence."""
_MEANT = tuple(dict.fromkeys([*SAMPLED_FIELDS, *(field for _, field in _OF_KINDS)]))
"""Fields of `Sample` to average. One call reads all fields, because thousands of ranks may have thirty samples each."""
_read_means: Callable[[Sample], tuple[float | None, ...]] = attrgetter(*_MEANT)


@dataclass(frozen=True)
class SampleSpan:
    """Mean conditions of a rank over a span of time. The times are in µs of the clock of the rank's samples."""

    since_us: int
    until_us: int
    conditions: Conditions


@dataclass(frozen=True)
class Recent:
    """Summary of a rank's latest samples."""

    time_us: int
    """Time of the latest sample."""
    conditions: Conditions
    memory: Memory | None
    """Memory of the rank, or None if there is no sample."""


class RecentSamples:
    """Summaries of each rank's latest samples, renewed every AGAIN_US, because a thousand ranks have thirty each."""

    def __init__(self) -> None:
        self._by_process: dict[int, Recent] = {}
        self._earlier: dict[int, list[SampleSpan]] = {}
        """Earlier spans of each process, the oldest first and without overlap."""
        self._floors: dict[int, tuple[int, dict[str, Floors]]] = {}
        """(time in µs of the last sample in the memory floors, the floors by field), by process."""

    def summary_of(self, process: RankProcess) -> Recent:
        """Return the summary of a rank's latest samples."""
        cached, last = self._by_process.get(process.id), process.sample
        again_us = AGAIN_US if len(process.samples) > FEW else 1
        if cached is None or last is None or not 0 <= last.time_us - cached.time_us < again_us:
            training = _of_training(process)
            earlier = self._earlier.setdefault(process.id, [])
            _append_span(earlier, process, training)
            floors = self._add_floors(process)
            cached = self._by_process[process.id] = _recent(process, training, earlier, floors)
        return cached

    def _add_floors(self, process: RankProcess) -> Mapping[str, Floors]:
        """Add a training rank's new samples to its memory floors (lowest sizes over time), and return the floors."""
        until_us, floors = self._floors.get(process.id, (0, {}))
        if process.trains_since_us is None:
            return floors
        since_us = max(until_us, process.trains_since_us)
        for sample in [one for one in _with_memory(process) if one.time_us > since_us]:
            for name in GROWING:
                if (size := getattr(sample, _SIZES[name])) is not None:
                    if name not in floors:
                        floors[name] = Floors()
                    floors[name].add(sample.time_us / 1e6, size)
            self._floors[process.id] = sample.time_us, floors
        return floors


def _recent(
    process: RankProcess, training: Sequence[Sample], earlier: Sequence[SampleSpan], floors: Mapping[str, Floors]
) -> Recent:
    last, around = process.sample, partial(_around, process, training, earlier)
    starved = [sample.starved_share for sample in training if sample.starved_share is not None]
    return Recent(
        last.time_us if last else 0,
        _conditions(process, training, around=around, starved=starved),
        _memory(process, floors) if last else None,
    )


def _of_training(process: RankProcess) -> list[Sample]:
    if process.trains_since_us is None:
        return []
    since = process.trains_since_us + SAMPLE_US
    return [sample for sample in process.samples if sample.time_us > since]


def _append_span(spans: list[SampleSpan], process: RankProcess, training: Sequence[Sample]) -> None:
    """Append a span of the samples since the last span, once there are at least FEW."""
    new = [s for s in training if not spans or s.time_us > spans[-1].until_us]
    if len(new) >= FEW:
        spans.append(SampleSpan(new[0].time_us - SAMPLE_US, new[-1].time_us, _conditions(process, new)))
        if len(spans) > EARLIER_SPANS:
            del spans[1::2]


def _around(
    process: RankProcess, training: Sequence[Sample], earlier: Sequence[SampleSpan], first_us_ago: int, last_us_ago: int
) -> tuple[Conditions | None, Conditions | None]:
    """Return the mean conditions before and after a change.

    The change was between `first_us_ago` and `last_us_ago` before the last step's end. The
    conditions come from the latest samples if these reach back far enough, otherwise from an earlier span.
    """
    first, last = process.last_end_us - first_us_ago, process.last_end_us - last_us_ago
    before = [s for s in training if s.time_us <= first]
    after = [s for s in training if s.time_us - SAMPLE_US > last]
    then = next((span.conditions for span in earlier if span.since_us > last), None)
    return (
        _conditions(process, before)
        if len(before) >= FEWEST_AROUND
        else next((span.conditions for span in reversed(earlier) if span.until_us <= first), None),
        then or (_conditions(process, after) if len(after) >= FEWEST_AROUND else None),
    )


def _conditions(process: RankProcess, samples: Sequence[Sample], **more: Any) -> Conditions:
    """Return the mean conditions over samples. more: further fields of `Conditions`."""
    columns = zip(*map(_read_means, samples), strict=True) if samples else ((),) * len(_MEANT)
    means = {}
    for field, column in zip(_MEANT, columns, strict=True):
        missing = column.count(None)
        if missing < len(column):
            values = [value for value in column if value is not None] if missing else column
            means[field] = sum(values) / len(values)
    fields: dict[str, Any] = {field: means.get(field) for field in SAMPLED_FIELDS}
    rivals, affinity = process.cores_until(samples[-1].time_us if samples else MAX_US)
    held = [s.throttles for s in samples if s.gpu_throttled]
    most = Counter(held).most_common(1) if held else []
    return Conditions(
        process.rank,
        process.hello.host,
        gpu_throttled=most[0][0] if most and 2 * most[0][1] >= len(samples) else (),
        cores=process.hello.cores,
        affinity=affinity,
        swapped_bytes=process.stack_samples.swapped_bytes if process.stack_samples else 0,
        compute_threads=process.hello.compute_threads,
        worker_cores=frozenset(process.hello.setup.worker_cores),
        loader_workers=_most([s.loader_workers for s in samples]),
        loader_pinned=_most([s.loader_pinned for s in samples]),
        device_name=process.hello.device_name,
        other_program=next((user.title for user in process.hello.gpu_users if not user.of_run), ""),
        cpu_rivals=rivals,
        **fields,
        means={name: means[field] for name, field in _OF_KINDS if field in means},
        **more,
    )


def _most(values: Sequence[T | None]) -> T | None:
    """Return the most frequent value that is not None, or None if there is none."""
    measured = [value for value in values if value is not None]
    return max(set(measured), key=measured.count) if measured else None


def _memory(process: RankProcess, floors: Mapping[str, Floors]) -> Memory:
    """Return the memory of a process according to its latest sample before it left. There must be a sample."""
    samples = _with_memory(process) or list(process.samples)
    last, begun = samples[-1], process.trains_since_us
    retries = [s.gpu_alloc_retries for s in samples if s.gpu_alloc_retries is not None]
    return Memory(
        process.rank,
        process.hello.host,
        (last.time_us - begun) / 1e6 if begun is not None else 0.0,
        **{name: getattr(last, field) for name, field in _SIZES.items()},
        trends={name: trend for name in floors if (trend := floors[name].trend()) is not None},
        retry_seconds=sum(after > before for before, after in pairwise(retries)),
    )


def _with_memory(process: RankProcess) -> list[Sample]:
    """Return a rank's samples up to its last step if it has left, because a rank that leaves frees its memory."""
    return [s for s in process.samples if not process.left or s.time_us <= process.last_end_us]
