"""Steps are so small that most of them is what it takes to take one. Never more than a hint: nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import SHORTEST_MS, cost
from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.words import counted, fitting
from ddpmon.messages import Finding, Phase


def detect(moment: Moment) -> Iterator[Finding]:
    """Only where forward is measured, and steps are too short for any other kind to tell shares of them."""
    if "forward" in moment.evidence.unmeasured:
        return
    world, stays = moment.world, moment.held_one(KIND) is not None
    data, forward, backward = np.median(world.mean("phases_ms"), axis=0)[[Phase.DATA, Phase.FORWARD, Phase.BACKWARD]]
    computes, wait = float(forward + backward), float(world.mean("wait_ms").mean())
    step, fixed, share, _, since = cost(moment, KIND, float(world.step_ms.mean()) - computes - float(data) - wait)
    if SHORTEST_MS.reached(step) or not EXPLAINS.reached(share, held=stays):
        return
    gain, samples = 2 * step / (2 * step - fixed), float(world.mean("samples").mean())
    batch = f" of {counted(round(samples), 'sample')}" if samples else ""
    synchronisations = "the all-reduce" if with_ddp(moment.evidence.parallelism) else "the collectives"
    words = Words(
        fitting(f"a step takes {step:.1f} ms, and {computes:.1f} of them are forward and backward"),
        f"{fixed:.1f} ms of each step{batch} are the optimizer, {synchronisations} and what is around them,"
        f" whatever the batch: batches twice as large pay it half as often, up to {gain:.2f}x the samples a second.",
    )
    evidence = {"step_ms": step, "forward_backward_ms": computes, "fixed_ms": fixed, "gain": gain}
    yield KIND.finding("info", words, world.ranks, evidence=evidence, since_step=since)


KIND = Kind("overhead_bound", detect=detect, fewest_steps=FEWEST, by_cost=True)
