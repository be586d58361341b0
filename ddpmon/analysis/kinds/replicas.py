"""Findings about replicas that differ, or that nothing makes equal, so that each rank trains its own model."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.processes.parallelism import meant_to_differ, trains_apart, with_ddp
from ddpmon.analysis.steps.window import MIN_WINDOW_STEPS
from ddpmon.analysis.words import VERDICT_WIDTH, format_count, named_ranks
from ddpmon.messages import BATCH_NORM, DDP, OTHER_BUFFERS, UNREDUCED, Finding, Model

FEWEST_UPDATES = 3
"""Minimum number of updates with gradients that were never reduced. One or two such updates may test the optimizer."""
FEWEST_STEPS_APART = 100
"""Minimum number of steps without any collective in which ranks have equal weights and losses. Weights are compared at
steps 10 and 100. A library that ddpmon does not know may exchange gradients, but then the losses of ranks differ."""


@Kind(
    "critical",
    "{who} {have} other weights{which} than the rest {since}",
    "DDP keeps replicas bit-identical. Look for code that changes weights on some ranks only: an optimizer step under a"
    " condition, a checkpoint that one rank loads, or clipping or averaging outside of DDP. Another cause is a layer"
    " that runs twice under activation checkpointing (use_reentrant=False). If ranks average their weights only now and"
    " then on purpose (local SGD), this is intended.",
)
def replicas_differ(moment: Moment) -> Iterator[Finding]:
    """Replicas of a model differ between ranks."""
    one, parallelism = moment.evidence.difference, moment.evidence.parallelism
    if one is None or meant_to_differ(parallelism) or not with_ddp(parallelism):
        return
    since = f"since step {one.step:,}"
    if one.same_at is not None and one.step - one.same_at > 1:
        since = f"since a step between {one.same_at:,} and {one.step:,}"
    yield moment.finding(
        {"model": one.model, "same_at_step": one.same_at, "compared": one.compared},
        one.ranks,
        headline="the weights{which} of {who} differ {since}" if len(one.ranks) == one.compared else None,
        beside={"which": f" of model {one.model}" if one.model else "", "since": since},
        since_step=one.step,
    )


@Kind(
    "info",
    "|BatchNorm's running statistics differ between {who}|, since step {step:,} at the latest",
    "With broadcast_buffers=False, each rank has statistics of its own batches. Ranks then evaluate different models,"
    " and a checkpoint contains the statistics of one rank only. Broadcast or average the statistics before you"
    " evaluate and save, or use torch.nn.SyncBatchNorm.convert_sync_batchnorm.",
)
def buffers_differ(moment: Moment) -> Iterator[Finding]:
    """Buffers of a model differ between ranks because DDP does not broadcast them. The finding is a hint.

    ddpmon reports BatchNorm's running statistics only if all other buffers are equal. If other buffers differ, the
    finding names these instead.
    """
    differences = moment.evidence.differences
    statistics, others = differences.get(BATCH_NORM), differences.get(OTHER_BUFFERS)
    difference = others or statistics
    if difference is None or meant_to_differ(moment.evidence.parallelism):
        return
    yield moment.finding(
        {"same_at_step": difference.same_at, "compared": difference.compared, "batch_norm": others is None},
        difference.ranks,
        headline="|buffers other than BatchNorm's differ on {who}|, since step {step:,} at the latest"
        if others
        else None,
        advice="With broadcast_buffers=False, nothing makes buffers equal. If each rank updates a codebook, a queue or"
        " averaged weights from its own batches, ranks train different models. All-reduce the values that update these"
        " buffers. If a buffer contains the state of the rank's own data, the difference is right."
        if others
        else None,
        beside={"step": difference.step},
        since_step=difference.step,
    )


@Kind(
    "critical",
    "{who} updated weights {most:,} times with gradients DDP never reduced; replicas differ",
    "In training, call the DDP model itself (not model.module), and run the last backward before each optimizer step"
    " outside of no_sync. Otherwise each rank trains its own model.",
    outdoes=(replicas_differ.name,),
)
def gradients_not_synchronised(moment: Moment) -> Iterator[Finding]:
    """The optimizer updates weights with gradients that were never reduced.

    The number of such updates alone is no proof. A script may average gradients itself, or train a second model outside
    DDP. The finding is therefore critical only if ddpmon saw the replicas differ. If a later comparison finds the
    replicas equal, there is no finding.
    """
    evidence, different, same = moment.evidence, moment.evidence.difference, moment.evidence.same
    grows = [
        one
        for one in evidence.unsynchronised
        if one.count >= FEWEST_UPDATES and one.steps - one.last_at < MIN_WINDOW_STEPS
    ]
    if not grows or meant_to_differ(evidence.parallelism):
        return
    ranks = sorted(one.rank for one in grows)
    facts = {"optimizer_steps": {str(one.rank): one.count for one in grows}}
    who = {"who": "every rank"} if len(ranks) == evidence.world_size > 1 else {}
    beside = {"most": max(one.count for one in grows), **who}
    if different is not None and set(ranks) & set(different.ranks):
        yield moment.finding(
            {**facts, "same_at_step": different.same_at, "replicas_differ": list(different.ranks),
             "model": different.model, "compared": different.compared},
            ranks, beside=beside, since_step=different.step,
        )  # fmt: skip
    elif evidence.step < FEWEST_UPDATES:
        return  # The digests of some ranks have not arrived yet.
    elif same is None or not (same.updates or same.step >= max(one.last_at for one in grows)):
        yield moment.finding(
            {**facts, "same_at_step": same.step if same else None},
            ranks,
            severity="info",
            headline="{who} updated weights {most:,} times with gradients DDP never reduced",
            advice="So far, ddpmon has not seen that replicas differ. This is intended if the script trains a "
            "second model,"
            " or averages gradients itself. Otherwise, call the DDP model itself in training.",
            beside=beside,
        )


@Kind(
    "warn",
    "DDP does not reduce| {which}",
    "{listed}: these parameters were frozen, or did not exist yet, when the script wrapped the model. Each rank updates"
    " its own copy. Complete and unfreeze the model before you wrap it in DistributedDataParallel, or wrap it again on"
    " all ranks after unfreezing.",
    gone="DDP now reduces all parameters that the script trains",
    outdoes=(replicas_differ.name,),
)
def parameters_not_reduced(moment: Moment) -> Iterator[Finding]:
    """An optimizer updates parameters of a DDP model, but DDP does not reduce them: each rank trains its own copy.

    DDP reduces only parameters that already require gradients when the script wraps the model. It does not know
    parameters that the script unfreezes or creates later. The finding is critical only if ddpmon saw replicas differ,
    because a script may reduce these parameters itself.
    """
    evidence = moment.evidence
    found = [(rank, one) for rank, one in evidence.models if one.unreduced_count and one.ranks > 1]
    # Other kinds of parallelism replace a model's parameters with their own.
    if not found or evidence.parallelism not in {"", DDP}:
        return
    model, different = found[0][1], evidence.differences.get(UNREDUCED)
    different = different if different is not None and different.model == model.number else None
    yield moment.finding(
        {"not_reduced": model.unreduced_count, "names": model.unreduced,
         "replicas_differ": list(different.ranks) if different else None},
        [rank for rank, _ in found],
        severity="critical" if different else "warn",
        beside={"which": _as_many_as_fit(model), "listed": _listed(model, len(model.unreduced))},
        since_step=different.step if different else None,
    )  # fmt: skip


def _listed(model: Model, many: int) -> str:
    others = model.unreduced_count - many
    return ", ".join(model.unreduced[:many]) + (f" and {others:,} more" if others else "")


def _as_many_as_fit(model: Model) -> str:
    """Return the names of as many of the model's parameters as fit into the sentence."""
    verb = "is" if model.unreduced_count == 1 else "are"
    texts = [f"{_listed(model, many)}, which {verb} trained" for many in range(len(model.unreduced), 0, -1)]
    room = VERDICT_WIDTH - len("DDP does not reduce ")
    none = f"{format_count(model.unreduced_count, 'parameter')} that {verb} trained"
    return next((text for text in texts if len(text) <= room), none)


@Kind(
    "critical",
    advice="{why} Wrap the model in DistributedDataParallel after init_process_group, and give each rank its own part"
    " of the data (DistributedSampler). If these processes train separate models on purpose, start each as its own"
    " run.",
)
def independent_copies(moment: Moment) -> Iterator[Finding]:
    """Each rank trains a model of its own: there is no DDP, and nothing keeps the weights equal.

    Either the weights differ between ranks, or everything is equal, including weights and losses. If they are equal,
    every rank trains the same copy.
    """
    evidence, one = moment.evidence, moment.evidence.difference
    if not trains_apart(evidence.parallelism):
        return
    quiet, since, same_at = _steps_without_collectives(moment), None, None
    ranks, who = list(range(evidence.world_size)), "each rank"
    if one is not None and one.compared == evidence.world_size:
        if len(one.ranks) < evidence.world_size:
            who = f"{'each of ' if len(one.ranks) > 1 else ''}{named_ranks(one.ranks, evidence.world_size)}"
        ranks, since, same_at = list(one.ranks), one.step, one.same_at
        why = f"Weights have differed since step {since:,} or earlier, and nothing makes them equal again."
    elif evidence.same is not None and quiet >= FEWEST_STEPS_APART:
        same_at = evidence.same.step
        why = "Weights and losses are equal on all ranks, so all ranks repeat the same work."
    else:
        return
    headline = "{who} trains a model of its own: no DDP, no gradient all-reduce"
    if quiet and len(ranks) == evidence.world_size:
        headline = "{compared:,} processes, no collective in {steps}: each trains its own model"
    yield moment.finding(
        {"same_at_step": same_at, "compared": evidence.world_size, "steps_without_collective": quiet or None},
        ranks, headline=headline, beside={"who": who, "why": why, "steps": format_count(quiet, "step")},
        since_step=since,
    )  # fmt: skip


def _steps_without_collectives(moment: Moment) -> int:
    """Return the number of latest steps in which no rank was blocked in a collective; 0 if there was such a collective.

    Also return 0 if ddpmon saw no difference of weights, but the losses of the ranks differ.
    """
    world = moment.longer
    if world is None or (world.wait_ms + world.transfer_ms).max() > 0:
        return 0
    if moment.evidence.difference is None and not ((world.loss == world.loss[:, :1]) & world.has_loss).all():
        return 0
    begun = moment.previous_finding is not None and "steps_without_collective" in moment.previous_finding.evidence
    return int(world.step[-1]) if begun else len(world)
