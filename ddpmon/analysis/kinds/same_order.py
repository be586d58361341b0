"""Each epoch has the samples in the order of the one before: set_epoch is not called.

Only torch's own DistributedSampler is judged, with shuffle=True, and passes that trained and came to their end.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Return the finding where a pass has begun in the order of the whole pass before it."""
    found = {
        rank: loader
        for rank, setup in sorted(moment.evidence.setups.items())
        for loader in setup.loaders
        if loader.repeats
    }
    if not found:
        return
    ranks = list(found)
    loader = found[ranks[0]]
    lead = "each epoch repeats the order of the one before:"
    words = Words(
        fitting(f"{lead} set_epoch is not called"),
        "Call sampler.set_epoch(epoch) before each epoch, on the DistributedSampler of the DataLoader: it shuffles by"
        " its seed and its epoch alone, so that without the call every rank gets the same batches in the same order"
        " each time. shuffle=False says that this is meant.",
        lead=lead,
    )
    yield KIND.finding(
        "warn", words, ranks, evidence={"sampler": loader.sampler, "seed": loader.seed, "samples": loader.samples}
    )


KIND = Kind("same_order", gone="epochs have orders of their own", detect=detect)
