"""What the samples of a rank say, in the words of the analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from ddpmon.analysis.evidence import Memory, starved_share
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.messages import SAMPLED, Sample
from ddpmon.store.processes import SAMPLE_US, RankProcess

T = TypeVar("T")

AGAIN_US = 3_000_000
FEW = 10
"""Samples, up to which each new one counts."""
_BESIDE = tuple((row.name, attrgetter(row.sample_field)) for row in SAMPLED if row.beside)


@dataclass(frozen=True)
class Recent:
    """What the samples of the latest seconds come to, of a rank."""

    time_us: int
    """Of the latest sample."""
    starved: list[float]
    """Shares of the latest seconds of training in which its training thread got no core."""
    conditions: Conditions
    memory: Memory | None
    """None: there is no sample."""


class Recently:
    """Of all ranks, worked out anew every AGAIN_US: a thousand ranks have thirty samples each."""

    def __init__(self) -> None:
        self._known: dict[int, Recent] = {}

    def of(self, process: RankProcess) -> Recent:
        """Of one."""
        known, last = self._known.get(process.id), process.sample
        if known is None or last is None or not 0 <= last.time_us - known.time_us < self._again_us(process):
            known = self._known[process.id] = _recent(process)
        return known

    def _again_us(self, process: RankProcess) -> int:
        return AGAIN_US if len(process.samples) > FEW else 1


def _recent(process: RankProcess) -> Recent:
    last, since = process.sample, process.trains_since_us
    told = [] if since is None else [s for s in process.samples if s.time_us > since + SAMPLE_US]
    starved = [s.starved_share for s in told if s.starved_share is not None]
    return Recent(
        last.time_us if last else 0, starved, _conditions(process, told, starved), _memory(process) if last else None
    )


def _conditions(process: RankProcess, told: Sequence[Sample], starved: Sequence[float]) -> Conditions:
    """Means of the latest seconds of training."""
    reasons = Counter(s.gpu_throttled for s in told if s.gpu_throttled)
    most = reasons.most_common(1)
    return Conditions(
        process.rank,
        process.hello.host,
        starved_share(starved),
        major_faults_per_s=_mean([s.major_faults_per_s for s in told]),
        read_bytes_per_s=_mean([s.read_bytes_per_s for s in told]),
        gpu_clock_mhz=_mean([s.gpu_clock_mhz for s in told]),
        gpu_temperature_c=_mean([s.gpu_temperature_c for s in told]),
        gpu_throttled=most[0][0] or "" if most and 2 * most[0][1] >= len(told) else "",
        cores=process.hello.cores,
        loader_workers=_most([s.loader_workers for s in told]),
        loader_pinned=_most([s.loader_pinned for s in told]),
        means=dict(_means(told)),
    )


def _means(samples: Sequence[Sample]) -> Iterator[tuple[str, float]]:
    """Of what stands beside findings, as far as it is measured."""
    for name, read in _BESIDE:
        values = [value for value in map(read, samples) if value is not None]
        if values:
            yield name, sum(values) / len(values)


def _most(values: Sequence[T | None]) -> T | None:
    """The value that most samples have."""
    known = [value for value in values if value is not None]
    return max(set(known), key=known.count) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _memory(process: RankProcess) -> Memory:
    """Of the latest seconds; there must be a sample."""
    known = [(s.time_us, s.rss_bytes) for s in process.samples if s.rss_bytes is not None]
    last = process.samples[-1]
    begun = process.trains_since_us
    return Memory(
        process.rank,
        [at / 1e6 for at, _ in known],
        [size for _, size in known],
        (last.time_us - begun) / 1e6 if begun is not None else 0.0,
        last.gpu_memory_used_bytes,
        last.gpu_memory_total_bytes,
    )
