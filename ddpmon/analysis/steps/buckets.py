"""The time of each DDP bucket's all-reduce and its bandwidth, in steps for which buckets were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ddpmon.messages import BucketView, Layout, Step

Layouts: TypeAlias = Mapping[int, Mapping[int, Layout]]
"""Layouts of buckets by rank, then by layout number."""


@dataclass
class _Means:
    layout: Layout
    count: int = 0
    launch_us: int = 0
    end_us: int = 0
    steps: int = 0
    shortest_us: int = 0


@dataclass
class BucketTimes:
    """Mean times of DDP's buckets over some steps."""

    buckets: list[BucketView] = field(default_factory=list)
    """The buckets in the order in which DDP hands them over, model by model."""
    bus_bandwidth_gb_s: float | None = None
    """Bus bandwidth as nccl-tests defines it: bytes / time x 2(n-1)/n. The time is that of the last rank to arrive."""


def bucket_times(rows: Iterable[Mapping[int, Step]], layouts: Layouts) -> BucketTimes:
    """Return the mean times of the buckets over all ranks and steps.

    Args:
        rows: Steps by rank. Steps without buckets are left out.
        layouts: Layout of each bucket.

    """
    means: dict[tuple[int, int], _Means] = {}
    total_bytes = total_us = 0
    ranks = 0
    for row in rows:
        if not all(step.buckets for step in row.values()):
            continue
        ranks = len(row)
        _add(means, row, layouts)
        payload, span_us = _whole(row, layouts)
        total_bytes += payload
        total_us += span_us
    views = [_view(means[key]) for key in sorted(means)]
    bandwidth = None
    if ranks > 1 and total_us:
        bandwidth = total_bytes / (total_us * 1e-6) * 2 * (ranks - 1) / ranks / 1e9
    return BucketTimes(views, bandwidth)


def _add(means: dict[tuple[int, int], _Means], row: Mapping[int, Step], layouts: Layouts) -> None:
    shortest: dict[tuple[int, int], int] = {}
    for rank, step in row.items():
        for bucket in step.buckets:
            layout = layouts.get(rank, {}).get(bucket.layout)
            if layout is None:
                continue  # The message with the layout was lost.
            key = (layout.model, layout.index)
            total = means.get(key)
            if total is None or total.layout.parameters != layout.parameters:
                total = means[key] = _Means(layout)  # Start anew: DDP has rebuilt its buckets.
            total.count += 1
            total.launch_us += bucket.launch_us
            total.end_us += bucket.end_us
            took = bucket.end_us - bucket.launch_us
            shortest[key] = min(took, shortest.get(key, took))
    for key, took in shortest.items():
        means[key].steps += 1
        means[key].shortest_us += took


def _whole(row: Mapping[int, Step], layouts: Layouts) -> tuple[int, int]:
    """Return the bytes of a step's all-reduce, and its duration in µs on the rank that was the last to hand over its
    last bucket.

    A step ends at the same moment on all ranks, so times until this moment can be compared although clocks differ.
    """
    rank, step = max(row.items(), key=lambda item: max(b.launch_us for b in item[1].buckets) - item[1].length_us)
    of_rank = layouts.get(rank, {})
    payload = sum(of_rank[bucket.layout].payload_bytes for bucket in step.buckets if bucket.layout in of_rank)
    first = min(bucket.launch_us for bucket in step.buckets)
    return payload, max(bucket.end_us for bucket in step.buckets) - first


def _view(means: _Means) -> BucketView:
    layout = means.layout
    return BucketView(
        model=layout.model,
        index=layout.index,
        payload_bytes=layout.payload_bytes,
        launch_ms=means.launch_us / means.count / 1e3,
        end_ms=means.end_us / means.count / 1e3,
        transfer_ms=means.shortest_us / max(means.steps, 1) / 1e3,
        parameters=layout.parameters,
    )
