"""Buffers of a model differ between ranks where DDP does not broadcast them: a hint, as it may be meant."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.parallelism import meant_to_differ
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import BATCH_NORM, OTHER_BUFFERS, Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield it for BatchNorm's running statistics only where other buffers, which have less reason to, are the same."""
    differences, world_size = moment.evidence.differences, moment.evidence.world_size
    statistics, others = differences.get(BATCH_NORM), differences.get(OTHER_BUFFERS)
    difference = others or statistics
    if difference is None or meant_to_differ(moment.evidence.parallelism):
        return
    text = f"BatchNorm's running statistics differ between {named_ranks(difference.ranks, world_size)}"
    advice = (
        "With broadcast_buffers=False each rank keeps the statistics of its own batches: ranks evaluate different"
        " models, and a checkpoint has those of one rank. Broadcast or average them before evaluating and saving, or"
        " use torch.nn.SyncBatchNorm.convert_sync_batchnorm."
    )
    if others is not None:
        text = f"buffers other than BatchNorm's differ on {named_ranks(others.ranks, world_size)}"
        advice = (
            "With broadcast_buffers=False nothing keeps buffers the same: a codebook, a queue or averaged weights that"
            " each rank updates from its own batches make ranks train different models. All-reduce what they are"
            " updated with. A state that belongs to a rank's own data is meant to differ."
        )
    words = Words(fitting(text, f", since step {difference.step:,} at the latest"), advice)
    evidence = {"same_at_step": difference.same_at, "compared": difference.compared, "batch_norm": others is None}
    yield KIND.finding("info", words, difference.ranks, evidence=evidence, since_step=difference.step)


KIND = Kind("buffers_differ", detect=detect)
