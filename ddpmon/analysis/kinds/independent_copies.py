"""Ranks train models of their own: no DDP, nothing that keeps their weights the same."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.parallelism import trains_apart
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import counted, named_ranks
from ddpmon.messages import Finding

STEPS = Threshold(
    100,
    of="steps without any collective in which ranks have equal weights and equal losses",
    why="A judgement: weights are compared at step 10 and 100; a library that ddpmon does not know may exchange"
    " gradients, but then losses of ranks differ.",
)


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield it where weights differ, or where weights, losses and all else are the same: each trains the same copy."""
    evidence, one = moment.evidence, moment.evidence.difference
    if not trains_apart(evidence.parallelism):
        return
    quiet = _steps_without_collectives(moment)
    if one is not None and one.compared == evidence.world_size:
        alone = len(one.ranks) == 1
        who = named_ranks(one.ranks, evidence.world_size)
        who = "each rank" if len(one.ranks) == evidence.world_size else who if alone else f"each of {who}"
        text = f"{who} trains a model of its own: no DDP, no gradient all-reduce"
        ranks, since, same_at = one.ranks, one.step, one.same_at
        why = f"Weights differ since step {since:,} at the latest, and nothing keeps them the same."
    elif evidence.same is not None and STEPS.reached(quiet):
        text, since, same_at = "", None, evidence.same.step
        ranks = tuple(range(evidence.world_size))
        why = "Weights and losses are the same on all ranks: each does the same work, and all but one for nothing."
    else:
        return
    if quiet and len(ranks) == evidence.world_size:
        steps = counted(quiet, "step")
        text = f"{evidence.world_size:,} processes, no collective in {steps}: each trains a model of its own"
    advice = (
        f"{why} Wrap the model in DistributedDataParallel after init_process_group, and give each rank its part of the"
        " data (DistributedSampler). If these are trainings of their own on purpose, start each as a run of its own."
    )
    known = {"same_at_step": same_at, "compared": evidence.world_size, "steps_without_collective": quiet or None}
    yield KIND.finding("critical", Words(text, advice), ranks, evidence=known, since_step=since)


def _steps_without_collectives(moment: Moment) -> int:
    """Return for how many steps no rank was blocked in a collective, with equal losses where weights are equal."""
    world = moment.longer
    if world is None or (world.wait_ms + world.transfer_ms).max() > 0:
        return 0
    if moment.evidence.difference is None and not ((world.loss == world.loss[:, :1]) & world.has_loss).all():
        return 0
    before = moment.held_one(KIND)
    begun = before is not None and before.evidence.get("steps_without_collective")
    return int(world.step[-1]) if begun else len(world)


KIND = Kind("independent_copies", detect=detect)
