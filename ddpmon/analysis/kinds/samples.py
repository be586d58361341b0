"""Faults in how ranks read samples: the same samples, the same order, unequal numbers, or samples never read.

Wrong DataLoaders and samplers are reported before they do harm. Equal losses and inputs are the harm they have done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import USED_UP_SHARE, Kind, Moment
from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.analysis.steps.window import MIN_WINDOW_STEPS
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Finding
from ddpmon.messages.setup import DISTRIBUTED_SAMPLER, SEED_VARIES

COINCIDENCE_PROBABILITY = Threshold(
    1e-9,
    of="probability that two ranks with different samples have equal losses in all compared steps",
    why="A judgement call: with one check a second, this is one false alarm in thirty years. We assume that "
    "two ranks have equal losses by chance as often as one rank has the same loss twice. So ddpmon reports "
    "nothing if losses are constant or 0, or if half precision leaves them only a few different values.",
    below=True,
)
FEWEST_MOMENTS = 4
"""Minimum number of moments at which inputs were equal on all ranks, for a finding although losses differ. The inputs
of at most two of these moments may be equal. Of the 64 numbers that are compared of an input, some differ between
samples; dropout makes losses differ for equal samples."""
FEWEST_REPEATS = 2
"""Minimum number of consecutive epochs that use the seeds of the previous epoch. One repetition proves nothing, because
scripts may set seeds when training begins."""
MIN_TRAINED_STEPS = 2
"""Minimum number of steps. The first step shows that ranks train from these loaders, but may be the only one."""


@Kind(
    "warn",
    "|{who} train on the same samples|{since}",
    "All ranks compute the same gradients, so more ranks bring no speedup. Pass sampler=DistributedSampler(dataset) to"
    " the DataLoader, and call sampler.set_epoch(epoch) in each epoch. With an IterableDataset, each rank must read its"
    " own part. If you overfit one batch on all ranks as a test, the samples must be equal.",
    gone="ranks train on different samples now",
    fewest_steps=MIN_WINDOW_STEPS,
)
def same_data(moment: Moment) -> Iterator[Finding]:
    """All ranks train on the same samples: their losses have been equal to the last bit for many steps.

    There is no finding if the inputs of the ranks differ, because a loss may use the features of all ranks. If ddpmon
    cannot compare inputs, there is a finding only if no other collective could make losses equal. There is no finding
    if inputs never change, as in a benchmark or a test.
    """
    world, inputs = moment.world, moment.evidence.inputs
    if len(world.ranks) < 2 or not with_ddp(moment.evidence.parallelism) or inputs.equal < inputs.compared:
        return
    facts, who = {"inputs_compared": inputs.compared}, named_ranks(world.ranks, moment.evidence.world_size)
    equal = ((world.loss == world.loss[:, :1]) & world.has_loss).all(axis=1)
    found = None if inputs.compared > 1 and inputs.distinct == 1 else moment.streak(world, equal, MIN_WINDOW_STEPS)
    if found and _is_beyond_chance(moment, int(np.searchsorted(world.step, found.since))):
        since = f": equal losses for {found.steps:,} steps"
        beside, steps = {"who": who, "since": since}, {"steps": found.steps}
        yield moment.finding(facts | steps, beside=beside, since_step=found.since)
    elif inputs.compared >= FEWEST_MOMENTS and inputs.distinct >= FEWEST_MOMENTS - 1:
        beside = {"who": who, "since": f": inputs were equal all {inputs.compared} times"}
        yield moment.finding(facts | {"steps": 0}, beside=beside)


def _is_beyond_chance(moment: Moment, begin: int) -> bool:
    """Return whether neither chance nor a collective explains why losses are equal from a step on."""
    world, losses = moment.world, moment.world.loss[begin:, 0]
    others_ms = (world.wait_ms + world.transfer_ms - world.exposed_ms)[begin:]
    repeated = int((losses[1:] == losses[:-1]).sum())
    is_made = not moment.evidence.inputs.compared and others_ms.max() > 0
    return not is_made and COINCIDENCE_PROBABILITY.is_reached(((repeated + 1) / (len(losses) + 1)) ** len(losses))


@Kind(
    "warn",
    "each epoch has the same order of samples:| the script does not call set_epoch",
    "Call sampler.set_epoch(epoch) before each epoch, on the DistributedSampler of the DataLoader. The sampler shuffles"
    " by its seed and its epoch only. If the script does not call set_epoch, every epoch has the same "
    "batches in the same order. If you want the same order in every epoch, pass shuffle=False.",
    gone="each epoch has another order of samples again",
)
def same_order(moment: Moment) -> Iterator[Finding]:
    """Every epoch has the samples in the same order, because the script does not call set_epoch.

    ddpmon checks only torch's own DistributedSampler with shuffle=True, and only complete training epochs.
    """
    if found := {rank: loader for rank, loader in moment.evidence.loaders if loader.repeats}:
        loader = found[min(found)]
        yield moment.finding({"sampler": loader.sampler, "seed": loader.seed, "samples": loader.samples}, [*found])


@Kind(
    "info",
    "DataLoader workers have the same seeds in each epoch:| augmentations repeat",
    "The seed of new workers comes from torch's generator, or from the generator of the DataLoader. The script seeds"
    " that generator again before each epoch. If the script augments samples at random, seed the generator "
    "only once, or add the epoch to the seed.",
)
def same_worker_seeds(moment: Moment) -> Iterator[Finding]:
    """DataLoader workers start each epoch with the seeds of the previous epoch, so random augmentations repeat.

    The finding is a hint, because equal seeds do no harm without random augmentations. Equal seeds on several ranks
    are no finding, because ranks have different samples.
    """
    if ranks := {rank for rank, loader in moment.evidence.loaders if loader.seed_repeats >= FEWEST_REPEATS}:
        yield moment.finding({}, sorted(ranks))


@Kind(
    "warn",
    "{odd}:| {how}",
    gone="samplers split the data among the ranks",
    remedy="Leave out `num_replicas`, `rank` and `seed` of `DistributedSampler`, or pass matching values on all ranks.",
)
def samplers_disagree(moment: Moment) -> Iterator[Finding]:
    """The ranks' DistributedSamplers do not split the data: together they read some samples several times, or not at
    all.

    ddpmon checks only torch's own DistributedSampler, and only if every rank trains one DDP model over the whole world
    from one loader. In other setups, several ranks may read the same samples on purpose.
    """
    samplers, world_size = moment.evidence.loaders_of_plain_ddp(DISTRIBUTED_SAMPLER), moment.evidence.world_size
    parts = Counter((one.replicas, one.rank) for one in samplers.values())
    seeds, sizes = {one.seed for one in samplers.values()}, {one.replicas for one in samplers.values()}
    (replicas, place), most = next(iter(parts.most_common(1)), ((0, 0), 0))
    advice = "Leave out num_replicas and rank of DistributedSampler, or pass dist.get_world_size() and dist.get_rank()."
    if most > 1:
        same = [rank for rank, one in samplers.items() if (one.replicas, one.rank) == (replicas, place)]
        odd = f"{named_ranks(same, world_size)} read the same part of the data"
        how = f"rank {place} of {replicas}"
        advice = (
            f"These ranks have the same DistributedSampler(num_replicas={replicas}, rank={place}). Leave out both"
            " arguments, or pass dist.get_world_size() and dist.get_rank()."
        )
    elif replicas > world_size and len(sizes) == 1:
        odd = f"no rank reads {1 - world_size / replicas:.0%} of the samples"
        how = f"num_replicas={replicas} for {world_size} ranks"
    elif len(seeds) > 1 and SEED_VARIES not in seeds and all(one.shuffle for one in samplers.values()):
        odd, how = "ranks shuffle with different seeds", "ranks read some samples twice, and others never"
        advice = (
            "Give DistributedSampler the same seed on all ranks. Each rank shuffles the whole dataset itself and takes"
            " its part of that order, so the parts fit together only if all ranks have the same order."
        )
    else:
        return
    facts = {
        name: [getattr(one, name) for one in samplers.values()] for name in ("replicas", "rank", "seed", "shuffle")
    }
    yield moment.finding(facts, [*samplers], advice=advice, beside={"odd": odd, "how": how})


@Kind(
    "warn",
    "{who} {have} {least:,} batches, others {theirs}:| may hang after batch {least:,}",
    "The other ranks wait for ever in their next backward, unless the loop ends earlier on all ranks. Give each rank "
    "the same number of batches (DistributedSampler pads, drop_last=True cuts), or train inside `with Join([model]):`.",
    fewest_steps=MIN_TRAINED_STEPS,
    stays_told=False,
)
def uneven_batches(moment: Moment) -> Iterator[Finding]:
    """DataLoaders of the ranks have different numbers of batches: the run hangs when the shortest one ends.

    The finding is a hint until the shortest one has nearly ended, because the loop may end earlier on all ranks. ddpmon
    checks only the first pass of plain DDP, with one loader on each rank. A script that completes this pass can handle
    the difference. So can a script that uses Join.
    """
    loaders = moment.evidence.loaders_of_plain_ddp()
    joins = any(model.joins for _, model in moment.evidence.models)
    if not loaders or joins or any(one.again for one in loaders.values()):
        return
    batches, steps = {rank: one.batches for rank, one in loaders.items()}, int(moment.world.step[-1])
    least, most = min(batches.values()), max(batches.values())
    if not 0 < least < most or steps > least:
        return
    fewest = min(count for count in batches.values() if count > least)
    yield moment.finding(
        {"batches": [*batches.values()], "steps": steps},
        [rank for rank, count in batches.items() if count == least],
        severity="warn" if USED_UP_SHARE.is_reached(steps / least) else "info",
        beside={"least": least, "theirs": f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"},
    )
