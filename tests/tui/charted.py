"""A source that grants what a chart requests: sixteen minutes of eight made-up ranks."""

import numpy as np

from ddpmon.messages import Sample, Scalar
from ddpmon.store.histories import Histories
from tests.tui import snapshots, through_time
from tests.worlds import own_times, world_with

STRETCH = 12.0
"""Steps of 33 ms are told as if they took 0.4 s."""


def histories_of(steps=2400, ranks=8, late=5, begin=1700, *, loss=None, samples=True):
    """What a hub keeps: one rank is late from a step on, its loss is once no number, scripts log an accuracy."""
    own = own_times(steps, ranks, noise=0.02, seed=4)
    own[begin:, late % ranks, 0] += 9.0
    place = np.arange(steps)[:, None]
    if loss is None:
        loss = 0.2 + 2.5 * 0.9985**place + 0.05 * np.random.default_rng(1).random((steps, ranks))
        loss[steps // 3, late % ranks] = np.nan
    world = world_with(own, loss=loss, first=1)
    seconds = (world.end_us - world.end_us[0]) / 1e6 * STRETCH + 20.0
    histories = Histories()
    for step in range(100, steps, 100):
        histories.add_logged(0, [Scalar(step, "accuracy", 1 - 0.9 * 0.999**step)])
    histories.add_steps(world, seconds)
    for rank in range(ranks if samples else 0):
        for second in range(20, int(seconds[-1])):
            percent = 95.0 - (30.0 if rank == late and second > 700 else 0.0)
            told = Sample(second * 1_000_000, 101.0 + rank, (3 << 30) + second * 1_000_000, percent, 61 << 30)
            histories.add_samples(rank, [told], 0.0)
    histories.end_seconds(final=True)
    return histories


def source(histories=None, **options):
    """A run whose charts come from histories."""
    histories = histories or histories_of(**options)
    calm = snapshots.running(8, 4)
    own, loss = histories.series("own"), histories.series("loss")
    last_s = own.seconds[-1] if own.seconds else 0.0
    shot = snapshots.replace(
        calm, at=calm.run.started_at + last_s, loss_series=loss, own_series=own, quantities=histories.quantities_present
    )
    store = through_time.store_of(own_times(20, 8), per_host=4)
    store.histories = histories
    return through_time.GrantingSource(shot, store)
