"""All ranks train on the same samples: their losses have been equal to the last bit for many steps."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.analysis.statistics.arrays import last_run
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import Finding

ADVICE = (
    "Each rank does the work that one would do alone. Pass sampler=DistributedSampler(dataset) to the DataLoader and"
    " call sampler.set_epoch(epoch) in each epoch; each rank must take its own part of an IterableDataset. If ranks"
    " overfit one batch as a test, this is meant."
)
CHANCE = Threshold(
    1e-9,
    of="chance that losses of different samples are equal on two ranks in all of the steps in which they were",
    why="A judgement: once in thirty years, asked every second. As often as a rank has one loss twice in a row, two"
    " ranks may share one in a step: losses that are constant, 0, or of few values in half precision mean nothing.",
    below=True,
)
MOMENTS = Threshold(
    4,
    of="moments at which inputs were the same on all ranks, at three of them other ones, where losses differ",
    why="A judgement: of 64 numbers of an input, some differ between samples; dropout makes the losses of one differ.",
)


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield it unless inputs were seen to differ: ranks may share a loss that is made of the features of all.

    Where inputs are not compared, no step may have another collective that can make losses equal. Inputs that never
    change are those of a benchmark or a test.
    """
    world, inputs = moment.world, moment.evidence.inputs
    if len(world.ranks) < 2 or not with_ddp(moment.evidence.parallelism) or inputs.equal < inputs.compared:
        return
    who = named_ranks(world.ranks, moment.evidence.world_size)
    steps = 0 if inputs.compared > 1 and inputs.distinct == 1 else _steps_alike(moment)
    if steps:
        since = moment.since(KIND, world, len(world) - steps)
        count = int(world.step[-1]) - since + 1
        words = Words(fitting(f"{who} train on the same samples", f": equal losses for {count:,} steps"), ADVICE)
        known = {"steps": count, "inputs_compared": inputs.compared}
        yield KIND.finding("warn", words, evidence=known, since_step=since)
    elif MOMENTS.reached(inputs.compared) and inputs.distinct >= MOMENTS.enter - 1:
        text = f"{who} train on the same samples: inputs were equal all {inputs.compared} times"
        known = {"steps": 0, "inputs_compared": inputs.compared}
        yield KIND.finding("warn", Words(text, ADVICE), evidence=known)


def _steps_alike(moment: Moment) -> int:
    """Return for how many steps, the last ones, losses have been equal beyond chance."""
    world = moment.world
    if not (world.loss[-1] == world.loss[-1, 0]).all():
        return 0
    equal = ((world.loss == world.loss[:, :1]) & world.has_loss).all(axis=1)
    begin = last_run(equal)
    steps = len(world) - begin
    if steps < FEWEST:
        return 0
    others_ms = (world.wait_ms + world.transfer_ms - world.exposed_ms)[begin:]
    if not moment.evidence.inputs.compared and others_ms.max() > 0:
        return 0
    losses = world.loss[begin:, 0]
    repeated = int((losses[1:] == losses[:-1]).sum())
    return steps if CHANCE.reached(((repeated + 1) / (steps + 1)) ** steps) else 0


KIND = Kind("same_data", gone="ranks train on different samples now", detect=detect, fewest_steps=FEWEST)
