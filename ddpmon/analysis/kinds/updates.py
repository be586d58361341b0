"""Findings about updates that train nothing or the wrong thing: mistakes in the optimizer, learning rate or training
mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import LASTING_STEPS, USED_UP_SHARE, Kind, Moment
from ddpmon.analysis.kinds.replicas import replicas_differ
from ddpmon.analysis.processes.parallelism import trains_apart
from ddpmon.analysis.statistics.arrays import Bools, Floats
from ddpmon.analysis.steps.window import MIN_WINDOW_STEPS
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import format_count, named_ranks
from ddpmon.messages import DDP, SCALED_UPDATES, Finding

SKIPPED = Threshold(
    20,
    of=f"number of skipped updates among the latest {SCALED_UPDATES} with a GradScaler",
    why="torch starts with a scale of 65,536, and 16 skipped updates reduce it to 1. Later, one skipped update "
    "in 2,000 is normal.",
    stay=10,
)
BEGINNING_STEPS = 2
"""Number of first steps that count as the beginning, because the window may lack the first step."""
EQUAL_RATE_TOLERANCE = 1e-6
"""Maximum relative difference between equal learning rates: two machines may round a cosine differently."""


@Kind(
    "critical",
    "the optimizer has no parameter of the DDP model:| the model learns nothing",
    "The weights are the same at step {last:,} as at step {first:,}. Make the optimizer from model.parameters() after"
    " the model is complete. The optimizer does not contain parts that are replaced later, such as {listed}.",
    gone="an optimizer updates all parameters of the DDP model",
)
def parameters_not_updated(moment: Moment) -> Iterator[Finding]:
    """No optimizer updates some or all parameters of a DDP model, because the optimizer does not have them.

    An optimizer without a model's parameters is no proof, because it may hold full-precision copies of them. The proof
    is that the weights stay the same. If the optimizer has some of the parameters but not all, this may be intended,
    and the finding is a hint.
    """
    evidence, same = moment.evidence, moment.evidence.unchanged
    if evidence.parallelism not in {"", DDP}:  # Other kinds of parallelism replace a model's parameters with their own.
        return
    drifts = evidence.difference.model if evidence.difference else None
    found = [(rank, one) for rank, one in evidence.models if one.idle_count and one.number != drifts]
    frozen = [(rank, one) for rank, one in found if not one.stepped and same and same.model == one.number]
    if not (found := frozen or [(rank, one) for rank, one in found if one.stepped]):
        return
    model, ranks = found[0][1], [rank for rank, _ in found]
    more = model.idle_count - len(model.idle)
    listed = ", ".join(model.idle) + (f" and {more:,} more" if more else "")
    beside = {"listed": listed, "first": same.first if same else 0, "last": same.last if same else 0}
    facts = {"parameters": model.parameters, "not_updated": model.idle_count, "names": model.idle}
    if frozen:
        yield moment.finding(facts, ranks, beside=beside)
        return
    verb = "is" if model.idle_count == 1 else "are"
    yield moment.finding(
        facts,
        ranks,
        severity="info",
        headline="{count} of the DDP model {verb} in no optimizer||: {listed}",
        advice="torch computes and reduces their gradients in each step, but nothing uses them. Pass these "
        "parameters to the"
        " optimizer. If these parameters must not change, set requires_grad=False before you wrap the model.",
        beside={**beside, "count": format_count(model.idle_count, "parameter"), "verb": verb},
    )


@Kind(
    "warn",
    "{who} train{s} in evaluation mode since step {since:,}",
    "The script called model.eval(), and did not call model.train() afterwards: dropout is off, and BatchNorm no longer"
    " updates its statistics. Call model.train() at the beginning of each epoch, on the model that trains. "
    "If the script freezes these layers on purpose, for fine-tuning, do not change this.",
    gone="the model trains in training mode again",
    fewest_steps=1,
)
def trains_in_eval(moment: Moment) -> Iterator[Finding]:
    """A model trains in evaluation mode, after it has trained in training mode.

    ddpmon checks only DDP models with torch's dropout or BatchNorm. In other models, the mode usually changes nothing.
    """
    updates = {
        str(rank): many for rank, many in sorted(moment.evidence.held_out.items()) if LASTING_STEPS.is_reached(many)
    }
    if updates:
        last, before = int(moment.world.step[-1]), moment.previous_finding
        since = (before and before.since_step) or max(1, last - max(updates.values()) + 1)
        yield moment.finding({"updates": updates}, [*map(int, updates)], beside={"since": since}, since_step=since)


@Kind(
    "warn",
    "{most} of the last {of} updates were skipped: gradients are infinite or NaN",
    "GradScaler skips an update whose gradients overflowed, and halves its scale. So many skips in a row mean that the"
    " model itself computes NaN or numbers beyond float16. Use bfloat16, lower the learning rate, or clip gradients"
    " after scaler.unscale_(). Look for a division by 0 or a log of 0 (torch.autograd.set_detect_anomaly).",
    gone="the GradScaler skips only few updates again",
)
def updates_skipped(moment: Moment) -> Iterator[Finding]:
    """A GradScaler skips many updates: gradients overflow again and again.

    ddpmon judges the rank that skipped the most updates. With DDP, all ranks have the same gradients, so all of them
    skip the same updates.
    """
    skipped = moment.evidence.skipped
    most = max(skipped.values(), default=0)
    if SKIPPED.is_reached(most, held=moment.previous_finding is not None):
        yield moment.finding(
            {"skipped": {str(rank): count for rank, count in skipped.items()}},
            severity="critical" if USED_UP_SHARE.is_reached(most / SCALED_UPDATES) else "warn",
            beside={"most": most, "of": SCALED_UPDATES},
        )


@Kind(
    "warn",
    "the learning rate has been 0 since step {since:,}, so weights no longer change",
    "The learning rate schedule has ended before the end of the training. Compare the number of steps in the schedule "
    "with how often the script calls scheduler.step(): once per batch, or once per epoch. Stop the run, because the "
    "model no longer learns.",
    gone="the learning rate is above 0 again",
    fewest_steps=MIN_WINDOW_STEPS,
)
def learning_rate_zero(moment: Moment) -> Iterator[Finding]:
    """The learning rate is 0: steps do not change the weights.

    If the rate has been 0 since the first step, the finding is only a hint, because a warm-up may raise the rate once
    per epoch.
    """
    world = moment.longer or moment.world
    if found := moment.streak(world, (world.learning_rate == 0).all(axis=1)):
        at_first = found.since <= BEGINNING_STEPS
        yield moment.finding(
            {"steps": found.steps},
            severity="info" if at_first else "warn",
            headline="the learning rate was 0 in all {steps:,} steps: no weight has changed" if at_first else None,
            advice="If the warm-up counts epochs, the model learns nothing in the first epoch: start the warm-up "
            "above 0, or let it count steps."
            if at_first
            else None,
            beside={"since": found.since},
            since_step=found.since,
        )


def _differ(rates: Floats) -> Bools:
    """Return in which steps the learning rates of all ranks are known and differ: [S, R] -> [S]."""
    is_alike = np.isclose(rates, rates[:, :1], rtol=EQUAL_RATE_TOLERANCE, atol=0)
    return np.asarray(np.isfinite(rates).all(axis=1) & ~is_alike.all(axis=1))


def _since_then(whole: Finding, part: Finding) -> bool:
    """Return whether weights began to differ no earlier than the learning rates. An earlier difference is another
    fault.
    """
    return part.is_lasting and (part.since_step or 0) >= (whole.since_step or 0)


@Kind(
    "warn",
    "|{which}|, since step {since:,}",
    "DDP averages gradients, and each rank then updates its weights with its own rate: replicas drift apart. All ranks"
    " must use the same learning rate. Give ReduceLROnPlateau the validation loss averaged over all ranks (all_reduce),"
    " step schedulers equally often, and pass the same arguments on all ranks. Restart from an earlier checkpoint.",
    gone="learning rates of all ranks are the same again",
    fewest_steps=int(LASTING_STEPS.enter),
    outdoes=(replicas_differ.name,),
    covers=_since_then,
)
def learning_rates_differ(moment: Moment) -> Iterator[Finding]:
    """Ranks use different learning rates, so their replicas drift apart.

    Groups of ranks may train separate models with different rates. So there is no finding if a later comparison of
    weights within a group finds them equal.
    """
    world, evidence = moment.world, moment.evidence
    rates = world.learning_rate
    if not _differ(rates[-1:]).any():
        return
    found = moment.streak(world, _differ(rates))
    if found is None or trains_apart(evidence.parallelism) or (evidence.same and evidence.same.step > found.since):
        return
    now = dict(zip(world.ranks, (float(f"{rate:.6g}") for rate in rates[-1].tolist()), strict=True))
    (usual, most), *others = Counter(now.values()).most_common()
    if not others:
        return
    has_majority = most > others[0][1]
    odd = {rank: rate for rank, rate in now.items() if not has_majority or rate != usual}
    low, high = (each(now, key=lambda rank: now[rank]) for each in (min, max))
    which = f"learning rates differ: {now[low]:g} on rank {low}, {now[high]:g} on rank {high}"
    if has_majority and len(set(odd.values())) == 1:
        whose = f"the learning rate of {named_ranks([*odd], 0)}" if len(odd) > 1 else f"rank {min(odd)}'s learning rate"
        which = f"{whose} is {min(odd.values()):g}, the others' {usual:g}"
    yield moment.finding(
        {"rates": {str(rank): rate for rank, rate in odd.items()}, "usual": usual if has_majority else None},
        [*odd],
        severity="critical" if evidence.difference else "warn",
        beside={"which": which, "since": found.since},
        since_step=found.since,
    )
