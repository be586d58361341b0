"""The learning rate is 0: steps change no weight."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.statistics.arrays import last_run
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import Finding

STEPS = Threshold(
    30,
    of="steps in a row in which every rank's learning rate is 0",
    why="A judgement: a warm-up may begin at 0, and a schedule may end at it, for some steps.",
)


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield it as a hint where the rate has been 0 since the first step: a warm-up may count in epochs."""
    world = moment.longer if moment.longer is not None else moment.world
    if world.learning_rate[-1].any():
        return
    begin = last_run((world.learning_rate == 0).all(axis=1))
    steps = len(world) - begin
    if not STEPS.reached(steps):
        return
    since = moment.since(KIND, world, begin)
    count = int(world.step[-1]) - since + 1
    if since <= FIRST_STEPS:
        words = Words(
            f"the learning rate has been 0 for {count:,} steps, since the first: no weight changed",
            "If a warm-up counts in epochs, its first epoch is lost: begin it above 0, or count it in steps.",
        )
        yield KIND.finding("info", words, evidence={"steps": count}, since_step=since)
        return
    words = Words(
        f"the learning rate has been 0 since step {since:,}: no weight changes any more",
        "The schedule has come to its end before the training: compare its total number of steps with how often"
        " scheduler.step() is called, once a batch or once an epoch; and stop the run, as it learns nothing.",
    )
    yield KIND.finding("warn", words, evidence={"steps": count}, since_step=since)


FIRST_STEPS = 2
"""The window may lack the first step."""
KIND = Kind("learning_rate_zero", gone="the learning rate is above 0 again", detect=detect, fewest_steps=FEWEST)
