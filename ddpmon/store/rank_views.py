"""The rows of a snapshot: each rank's means over the window, its latest samples, and how it ended."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

import msgspec

from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.steps.summary import Summary
from ddpmon.messages import END_STATES, SAMPLED, STAGES, Environment, Exit, RankView, Sample
from ddpmon.store.store import Store

_RECENT_MEANS = tuple((row.field, attrgetter(row.field)) for row in SAMPLED if row.mean)
"""Fields of a sample of which viewers see the mean of the last seconds, and how each is read."""
_MEANS = (
    *("step_ms", "own_ms", "over_median", "phases_ms", "late_ms", "critical_share", "loss", "samples_per_s"),
    *("tokens_per_s", "gc_ms"),
)
"""Means that a rank's row has under the name that they have in a `Summary`."""
_MAY_BE_UNKNOWN = ("late_ms", "critical_share", "samples_per_s", "tokens_per_s")
"""Those that are NaN where nothing was measured."""
_read_environment = attrgetter(*(name for name in Environment.__struct_fields__ if name != "loader_workers"))


def rank_views(store: Store, summary: Summary | None, now: float) -> list[RankView]:
    """A row for each rank of the world, also for those that never connected."""
    seats = store.registry.seats
    means = dict(zip(summary.ranks, _means(summary), strict=True)) if summary else {}
    for rank, earlier, column in store.departed:
        means[rank] = _means(earlier)[column] | {"window": earlier.window}
    named = store.named_ms()
    exits = _exits(store)
    standing = store.state == "stalled" or store.state in END_STATES
    views = []
    for rank in range(store.registry.world_size or store.run.world_size):
        process = seats.get(rank)
        mean = means.get(rank, {})
        if process is None:
            views.append(RankView(rank, exit=exits.get(rank), **mean))
            continue
        hello, sample = process.hello, process.sample
        views.append(
            RankView(
                rank,
                host=hello.host,
                local_rank=hello.local_rank,
                node_rank=hello.node_rank,
                pid=hello.pid,
                device=hello.device,
                stage=STAGES[process.stage],
                health=process.health(now),
                steps=process.steps,
                exit=exits.get(rank),
                learning_rate=process.learning_rate,
                stack=process.stack if standing else None,
                environment=Environment(*_read_environment(hello), *([sample.loader_workers] if sample else [])),
                named_ms=named.get(rank, {}),
                unmeasured=hello.unmeasured,
                gpu_users=store.registry.gpu_users(process),
                sample=_sampled(sample, store.recent_samples.of(process).conditions) if sample else None,
                **mean,
            )
        )
    return views


def _means(summary: Summary) -> list[dict[str, Any]]:
    """Each rank's means, as RankView names them."""
    columns: dict[str, list[Any]] = {name: getattr(summary, name).tolist() for name in _MEANS}
    for name in _MAY_BE_UNKNOWN:
        columns[name] = [None if math.isnan(value) else value for value in columns[name]]
    columns["loss"] = [loss if has else None for loss, has in zip(columns["loss"], summary.has_loss, strict=True)]
    columns["phases_ms"] = list(map(tuple, columns["phases_ms"]))
    return [dict(zip(_MEANS, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _sampled(sample: Sample, conditions: Conditions) -> Sample:
    """Return a rank's latest sample as viewers see it."""
    return msgspec.structs.replace(sample, time_us=0, **{field: read(conditions) for field, read in _RECENT_MEANS})


def _exits(store: Store) -> dict[int, Exit]:
    """Return how ranks ended, as far as torchrun, the ranks themselves or the run's success say."""
    seats = store.registry.seats
    exits: dict[int, Exit] = {}
    if store.state == "done":  # torchrun ends with 0 only if every rank did
        exits = {rank: Exit(0) for rank, process in seats.items() if process.left}
    for failure in filter(store.counts, store.failures):
        process = seats.get(failure.rank)
        if process is None or process.hello.pid == failure.pid:
            exits[failure.rank] = Exit(None, None, failure.error, failure.traceback)
    lines = store.ending.last_lines or {}
    for row in store.ending.rows:
        earlier = exits.get(row.rank)
        error = earlier.error if earlier else None
        exits[row.rank] = Exit(
            row.code,
            row.signal,
            error or (lines.get(row.rank) if row.code else None),
            earlier.traceback if earlier else None,
        )
    return exits
