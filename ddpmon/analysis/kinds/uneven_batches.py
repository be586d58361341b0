"""DataLoaders of the ranks have different numbers of batches: the run hangs once the first of them ends.

It is a hint until the end is near: a loop may end earlier on all ranks. Only the first pass of plain DDP is judged,
where each rank trains from one loader: who gets through it has made provision. Join makes provision by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import DDP, Finding

NEAR = Threshold(
    0.9,
    of="share of the batches of the rank that has the fewest",
    why="A judgement: there is time to look, and few loops that end early on all ranks come so far.",
)
FEWEST_STEPS = 2
"""A first step shows that ranks train from these loaders; many scripts make one step and end."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Return one finding: the ranks with the fewest batches, while none has come to the end of them."""
    evidence = moment.evidence
    setups, world_size = evidence.setups, evidence.world_size
    if len(setups) < world_size or world_size < 2 or evidence.parallelism != DDP:
        return
    loaders = [setup.loaders for setup in setups.values()]
    if any(len(of_rank) != 1 or of_rank[0].again for of_rank in loaders):
        return
    if any(model.joins or model.ranks != world_size for setup in setups.values() for model in setup.models):
        return
    batches = {rank: setup.loaders[0].batches for rank, setup in sorted(setups.items())}
    least, most, steps = min(batches.values()), max(batches.values()), int(moment.world.step[-1])
    if not 0 < least < most or steps > least:
        return
    ranks = [rank for rank, count in batches.items() if count == least]
    others = [count for count in batches.values() if count > least]
    theirs = f"{min(others):,}" if min(others) == most else f"{min(others):,} to {most:,}"
    have = "has" if len(ranks) == 1 else "have"
    lead = f"{named_ranks(ranks, world_size)} {have} {least:,} batches, others {theirs}:"
    words = Words(
        f"{lead} may hang after batch {least:,}",
        "The others wait for ever in their next backward, unless the loop ends before on all ranks. Give each rank as"
        " many batches (DistributedSampler pads, drop_last=True cuts), or train inside `with Join([model]):`.",
        lead=lead,
    )
    evidence_of = {"batches": list(batches.values()), "steps": steps}
    yield KIND.finding("warn" if steps >= NEAR.enter * least else "info", words, ranks, evidence=evidence_of)


KIND = Kind("uneven_batches", detect=detect, fewest_steps=FEWEST_STEPS, stays_told=False)
