"""Builds the snapshot that viewers show: the run, and a row for each rank with its means, samples and exit."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

import msgspec

from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.processes.parallelism import measured_sentence, with_ddp
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.analysis.steps.summary import Summary, loss_trend, summarise
from ddpmon.analysis.steps.what_if import gain_with_even_transfer
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.words import format_count
from ddpmon.messages import (
    END_STATES,
    PAUSES,
    QUANTITIES,
    SAMPLED,
    STAGES,
    SYNC_COLLECTIVE,
    SYNC_GRADIENTS,
    SYNC_KINDS,
    AllReduceView,
    Environment,
    Exit,
    Phase,
    RankView,
    RunView,
    Sample,
    Snapshot,
    TimesView,
    VerdictFacts,
)
from ddpmon.plain import utf8
from ddpmon.store.peers import STRANGER
from ddpmon.store.store import Store

_RECENT_MEANS = tuple((row.field, attrgetter(row.field)) for row in SAMPLED if row.mean)
"""(field, function that reads it) for each field of a sample that viewers show as a mean over the last seconds."""
_MEANS = (
    *("step_ms", "own_ms", "over_median", "phases_ms", "late_ms", "critical_share", "loss", "samples_per_s"),
    *("tokens_per_s", "gc_ms"),
)
"""Means that have the same name in a rank's row as in a `Summary`."""
_MAY_BE_UNKNOWN = ("late_ms", "critical_share", "samples_per_s", "tokens_per_s")
"""Means that are NaN in a `Summary` if they were not measured."""
_read_environment = attrgetter(*(name for name in Environment.__struct_fields__ if name != "loader_workers"))


def rank_views(store: Store, summary: Summary | None, now: float) -> list[RankView]:
    """Return a row for each rank, including ranks that never connected."""
    by_rank = store.registry.process_of_rank
    means = dict(zip(summary.ranks, _means(summary), strict=True)) if summary else {}
    for rank, earlier, column in store.departed:
        means[rank] = _means(earlier)[column] | {"window": earlier.window}
    named = store.named_ms()
    exits = _exits(store)
    standing = store.state == "stalled" or store.state in END_STATES
    views = []
    for rank in range(store.registry.world_size or store.run.world_size):
        process = by_rank.get(rank)
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
                gpu=hello.gpu,
                sample=_sampled(sample, store.recent_samples.summary_of(process).conditions) if sample else None,
                **mean,
            )
        )
    return views


def _means(summary: Summary) -> list[dict[str, Any]]:
    """Return each rank's means under the names of `RankView`."""
    columns: dict[str, list[Any]] = {name: getattr(summary, name).tolist() for name in _MEANS}
    for name in _MAY_BE_UNKNOWN:
        columns[name] = [None if math.isnan(value) else value for value in columns[name]]
    columns["loss"] = [loss if has else None for loss, has in zip(columns["loss"], summary.has_loss, strict=True)]
    columns["phases_ms"] = list(map(tuple, columns["phases_ms"]))
    return [dict(zip(_MEANS, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _sampled(sample: Sample, conditions: Conditions) -> Sample:
    """Return a rank's latest sample for viewers, with means of some fields and without its time."""
    return msgspec.structs.replace(sample, time_us=0, **{field: read(conditions) for field, read in _RECENT_MEANS})


def _exits(store: Store) -> dict[int, Exit]:
    """Return how ranks ended, from torchrun's failure table, their own reports, or the run's success."""
    by_rank = store.registry.process_of_rank
    exits: dict[int, Exit] = {}
    if store.state == "done":  # torchrun exits with 0 only if every rank did.
        exits = {rank: Exit(0) for rank, process in by_rank.items() if process.left}
    for failure in filter(store.is_failure, store.failures):
        process = by_rank.get(failure.rank)
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


def all_reduce_view(store: Store, sums: StepSums, world: World | None) -> AllReduceView | None:
    """Return the cost of gradient synchronisation over some steps, or without DDP the cost of the script's collectives.

    Args:
        store: The run.
        sums: Sums over the steps.
        world: The steps themselves, if there are few enough for a what-if analysis.

    Returns:
        The cost, or None if there is no synchronisation or no other rank to wait for.

    """
    gradients = sums.gradient_bytes > 0
    wait, blocked = (sums.exposed_wait_ms, sums.exposed_ms) if gradients else (sums.wait_ms, sums.blocked_ms)
    counts_collectives = not with_ddp(store.registry.parallelism) and "wait" not in store.registry.unmeasured
    if len(sums.ranks) < 2 or not (gradients or (counts_collectives and blocked > 0)):
        return None
    return AllReduceView(
        payload_bytes=sums.gradient_bytes / sums.steps,
        wait_ms=wait / sums.steps,
        transfer_ms=(blocked - wait) / sums.steps,
        exposed_share=blocked / max(sums.length_ms, 1e-9),
        gain_without_waiting=sums.gain_without_waiting,
        gain_with_even_transfer=None if world is None else gain_with_even_transfer(world),
        beside_ms=max(0.0, sums.blocked_ms - sums.exposed_ms) / sums.steps if gradients else None,
        kind=SYNC_KINDS[SYNC_GRADIENTS if gradients else SYNC_COLLECTIVE],
    )


_STEP_MEANS = ("window", "samples_per_s", "all_reduce", "buckets", "bus_bandwidth_gb_s")
"""Fields of a snapshot that are means over the steps of a window."""
_RANK_STEP_MEANS = (*_MEANS, "named_ms", "window")
"""Fields of a rank's row that are means over the steps of a window."""


def snapshot(store: Store, epoch: str, version: int, now: float, unix: float) -> Snapshot:
    """Build the current snapshot. now: seconds of the hub's clock. unix: the same time in Unix seconds."""
    run, registry = store.run, store.registry
    summary = store.summary if store.first_step is None else summarise(store.first_step)
    loss = store.loss if store.first_step is None else loss_trend(store.first_step)[0]
    ranks = rank_views(store, summary, now)
    total = _total(store)
    training_epoch, training_epochs = _epoch(store)
    rates = [view.samples_per_s for view in ranks if view.samples_per_s is not None and view.window is None]
    loads = [load for view in ranks if (load := QUANTITIES["gpu"].get(view)) is not None]
    buckets = store.bucket_times()
    ended = run.ended_at is not None
    steps_left = total - store.step if total and not ended else None
    step_ms = summary.step_ms_mean if summary else None
    parallelism, unmeasured = store.registry.parallelism, store.registry.unmeasured
    measured_note = measured_sentence(parallelism, unmeasured)
    waits = "wait" not in unmeasured
    return Snapshot(
        epoch=epoch,
        version=version,
        at=unix,
        run=RunView(
            id=run.id,
            name=run.name,
            world_size=registry.world_size or run.world_size,
            nnodes=max(run.nnodes if run.world_size else 1, registry.node_count),
            script=utf8(run.script),
            started_at=run.created_at,
            ended_at=run.ended_at,
            exit_code=run.shell_code,
            attempts=store.earlier_attempts(),
            attached=bool(run.attached),
            kill_at=run.kill_at if store.winding_down(unix) else None,
        ),
        state=store.state,
        verdict=store.verdict.text,
        severity=store.verdict.severity,
        verdict_since=store.verdict_since,
        step=store.step,
        total_steps=total,
        eta_s=max(0, steps_left) * step_ms / 1e3 if steps_left is not None and step_ms is not None else None,
        step_ms_p50=summary.step_ms_p50 if summary else None,
        step_ms_max=summary.step_ms_max if summary else None,
        loss=loss,
        loss_falls=store.loss_falls,
        all_reduce_ms=summary.sums.exposed_ms / summary.sums.steps if summary and summary.sums.gradient_bytes else None,
        wait_share=float(summary.phases_ms[:, Phase.WAIT].mean()) / summary.step_ms_mean
        if summary and waits and summary.step_ms_mean > 0
        else None,
        gpu_percent=sum(loads) / len(loads) if loads else None,
        samples_per_s=sum(rates) if rates else None,
        records_lost=store.registry.records_lost,
        window=summary.window if summary else None,
        ranks=ranks,
        loss_series=store.histories.series("loss"),
        own_series=store.histories.series("own"),
        findings=store.findings,
        events=list(store.events),
        notes=[measured_note, *_notes(store)] if measured_note else _notes(store),
        buckets=buckets.buckets,
        bus_bandwidth_gb_s=buckets.bus_bandwidth_gb_s,
        times=_times(store),
        pausing=store.pausing(now),
        accumulation=store.accumulation,
        training_epoch=training_epoch,
        training_epochs=training_epochs,
        all_reduce=all_reduce_view(store, summary.sums, store.summarised or store.first_step) if summary else None,
        efficiency=summary.sums.efficiency if summary and waits and len(summary.ranks) > 1 else None,
        quantities=[name for name in store.histories.quantities_present if name not in unmeasured],
        parallelism=parallelism,
        unmeasured=unmeasured,
        measured=measured_note,
        refused=registry.refusals.rows(),
        missing=_missing(store),
        verdict_facts=_verdict_facts(store),
        clocks=list(store.clock_agreements),
    )


def with_means_of(live: Snapshot, recorded: Snapshot) -> Snapshot:
    """Return a hub's snapshot with the means from a recording, which cover more steps than the hub's window."""
    summarised = {view.rank: view for view in recorded.ranks}
    ranks = [
        msgspec.structs.replace(view, **{name: getattr(summarised[view.rank], name) for name in _RANK_STEP_MEANS})
        if view.rank in summarised
        else view
        for view in live.ranks
    ]
    return msgspec.structs.replace(live, ranks=ranks, **{name: getattr(recorded, name) for name in _STEP_MEANS})


def _times(store: Store) -> TimesView | None:
    """Return the times of start, training and pauses, or None before the first step."""
    begun = [p.trains_since_us for p in store.registry.process_of_rank.values() if p.trains_since_us is not None]
    if not begun:
        return None
    times = store.pause_filter.times
    counted = [(kind, s, count) for kind, s, count in zip(PAUSES, times.paused_s, times.counts, strict=True) if count]
    return TimesView(
        max(0.0, store.clock.unix_at(min(begun)) - store.run.created_at),
        times.training_s,
        {kind: seconds for kind, seconds, _ in counted},
        {kind: count for kind, _, count in counted},
    )


def _total(store: Store) -> int | None:
    """Return the total number of steps from the first rank that knows it, or None if unknown or already exceeded."""
    in_order = sorted(store.registry.process_of_rank.items())
    total = next((process.total_steps for _, process in in_order if process.total_steps), None)
    return total if total is not None and total >= store.step else None


def _epoch(store: Store) -> tuple[int | None, int | None]:
    """Return the current epoch and the number of epochs, from the rank that knows most of the two.

    Often only one rank knows them, because only that rank shows a progress bar.
    """
    epochs = [(p.epoch, p.epochs) for _, p in sorted(store.registry.process_of_rank.items()) if p.epoch is not None]
    return next((each for each in epochs if each[1] is not None), epochs[0] if epochs else (None, None))


def _verdict_facts(store: Store) -> VerdictFacts:
    """Return the verdict as data, without its text."""
    current = store.verdict
    topic = [*current.topic, *(part for finding in current.findings for part in kind_of(finding).topic(finding))]
    return VerdictFacts(
        topic, current.lead, [place for place, listed in enumerate(store.findings) if listed in current.findings]
    )


def _missing(store: Store) -> dict[str, str]:
    """Return the reasons why measurements are missing, by quantity. If ranks differ, the first rank's reason counts."""
    reasons: dict[str, str] = {}
    for process in store.registry.process_of_rank.values():
        for quantity, reason in process.hello.missing.items():
            reasons.setdefault(quantity, reason)
    return reasons


def _notes(store: Store) -> list[str]:
    """Return notes, without repetition, about measurements that were not possible and about refused messages and
    values.
    """
    notes = [*store.run.notes, *store.notes]
    if store.fault:
        notes.append(
            f"findings are out of date, because ddpmon's analysis failed ({store.fault.splitlines()[-1][:100]})"
        )
    for process in store.registry.process_of_rank.values():
        notes += [note for note in process.hello.notes if note not in notes]
    if left_out := sum(row.count for row in store.registry.refusals.rows() if row.rank is not None):
        notes.append(f"ddpmon ignored {format_count(left_out, 'invalid value')} from ranks")
    if ignored := store.registry.refusals.count_of(STRANGER):
        were = "was ignored: it" if ignored == 1 else "were ignored: they"
        notes.append(f"{format_count(ignored, 'message')} {were} did not come from a rank of this run")
    return notes
