"""DataLoader workers begin each epoch with the seeds of the epoch before, so that random augmentations repeat.

It is a hint: without random augmentations it does no harm. That workers of several ranks have the same seeds is no
finding: ranks have other samples.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding

FEWEST_REPEATS = 2
"""Epochs in a row that repeat the seeds of the one before: a script may seed once more as its training begins."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Return one finding, with the ranks that do."""
    ranks = [
        rank
        for rank, setup in sorted(moment.evidence.setups.items())
        if any(loader.seed_repeats >= FEWEST_REPEATS for loader in setup.loaders)
    ]
    if ranks:
        lead = "DataLoader workers have the same seeds in each epoch:"
        words = Words(
            fitting(f"{lead} augmentations repeat"),
            "The seed of new workers comes from torch's generator, or from the generator of the DataLoader, and the"
            " script seeds that anew before each epoch. Seed it once, or with the epoch added, if samples are augmented"
            " at random.",
            lead=lead,
        )
        yield KIND.finding("info", words, ranks, evidence={})


KIND = Kind("same_worker_seeds", detect=detect)
