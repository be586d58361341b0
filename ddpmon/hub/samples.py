"""What the samples of a rank say, in the words of the analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ddpmon.analysis.conditions import Conditions
from ddpmon.analysis.memory import Memory
from ddpmon.hub.processes import SAMPLE_US, RankProcess


def conditions(process: RankProcess) -> Conditions:
    """Means of the latest seconds of training."""
    since = process.trains_since_us
    told = [] if since is None else [s for s in process.samples if s.time_us > since + SAMPLE_US]
    reasons = Counter(s.gpu_throttled for s in told if s.gpu_throttled)
    most = reasons.most_common(1)
    return Conditions(
        process.rank,
        process.hello.host,
        major_faults_per_s=_mean([s.major_faults_per_s for s in told]),
        read_bytes_per_s=_mean([s.read_bytes_per_s for s in told]),
        gpu_clock_mhz=_mean([s.gpu_clock_mhz for s in told]),
        gpu_temperature_c=_mean([s.gpu_temperature_c for s in told]),
        gpu_throttled=most[0][0] or "" if most and 2 * most[0][1] >= len(told) else "",
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def memory(process: RankProcess) -> Memory:
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
