"""Ranks step with different learning rates: their replicas drift apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds import replicas_differ
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.parallelism import trains_apart
from ddpmon.analysis.statistics.arrays import last_run
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import Finding

STEPS = Threshold(
    5,
    of="steps in a row in which ranks have different learning rates",
    why="A judgement: a rank that steps its scheduler a moment later is no matter.",
)
ALIKE = 1e-6
"""Two rates within this share of each other are the same: two machines may round a cosine differently."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield it unless weights were compared since and are the same: groups of ranks may train models of their own."""
    world, evidence = moment.world, moment.evidence
    rates = world.learning_rate
    if len(world.ranks) < 2 or trains_apart(evidence.parallelism):
        return
    if np.allclose(rates[-1], rates[-1, 0], rtol=ALIKE, atol=0):
        return
    differ = np.isfinite(rates).all(axis=1) & ~np.isclose(rates, rates[:, :1], rtol=ALIKE, atol=0).all(axis=1)
    begin = last_run(np.asarray(differ))
    if not STEPS.reached(len(world) - begin):
        return
    since = moment.since(KIND, world, begin)
    if evidence.same is not None and evidence.same.step > since:
        return
    now = [float(f"{rate:.6g}") for rate in rates[-1].tolist()]
    (usual, most), *others = Counter(now).most_common()
    if not others:
        return
    has_majority = most > others[0][1]
    ranks = [rank for rank, rate in zip(world.ranks, now, strict=True) if not has_majority or rate != usual]
    named = sorted({rate for rate in now if not has_majority or rate != usual})
    if has_majority and len(named) == 1:
        whose = (
            f"rank {ranks[0]}'s learning rate" if len(ranks) == 1 else f"the learning rate of {named_ranks(ranks, 0)}"
        )
        head = f"{whose} is {named[0]:g}, the others' {usual:g}"
    else:
        head = f"learning rates differ: {min(now):g} on rank {_rank(world.ranks, now, min(now))}"
        head += f", {max(now):g} on rank {_rank(world.ranks, now, max(now))}"
    words = Words(
        fitting(head, f", since step {since:,}"),
        "DDP averages gradients, and each rank then updates its weights with its own rate: replicas drift apart. Ranks"
        " must decide alike: feed ReduceLROnPlateau the validation loss averaged over ranks (all_reduce it first), step"
        " schedulers equally often, and give all ranks the same arguments. Restart from a checkpoint of before.",
    )
    rate_of = {str(rank): rate for rank, rate in zip(world.ranks, now, strict=True) if rank in ranks}
    known = {"rates": rate_of, "usual": usual if has_majority else None}
    yield KIND.finding("critical" if evidence.difference else "warn", words, ranks, evidence=known, since_step=since)


def _rank(ranks: tuple[int, ...], rates: list[float], rate: float) -> int:
    return ranks[rates.index(rate)]


def _covers(whole: Finding, part: Finding) -> bool:
    """Weights that were seen to differ before are another fault."""
    return part.lasts and (part.since_step or 0) >= (whole.since_step or 0)


KIND = Kind(
    "learning_rates_differ",
    gone="learning rates of all ranks are the same again",
    detect=detect,
    fewest_steps=STEPS.enter,
    outdoes=(replicas_differ.KIND.name,),
    covers=_covers,
)
