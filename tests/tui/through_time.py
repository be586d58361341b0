"""A source that grants what a screen wishes for, from made-up steps."""

from types import SimpleNamespace

import numpy as np

from ddpmon.analysis.heat import Heat
from ddpmon.hub.parts import with_parts
from ddpmon.messages import Finding
from ddpmon.source import FakeSource
from tests.tui import snapshots
from tests.worlds import own_times, records, world_of


def store_of(own, *, per_host=8, loss=None, findings=()):
    """What a hub's store knows of a world, as far as the parts of a snapshot need it."""
    world = world_of(records(own, loss=loss, first=1))
    heat = Heat()
    heat.append(world)
    seats = {
        rank: SimpleNamespace(hello=SimpleNamespace(host=f"node{rank // per_host:02}")) for rank in range(own.shape[1])
    }
    return SimpleNamespace(
        heat=heat, world=world, findings=list(findings), registry=SimpleNamespace(seats=seats, world_size=len(seats))
    )


class GrantingSource(FakeSource):
    """Grants wishes at once."""

    def __init__(self, snapshot, store, **options):
        super().__init__(snapshot, **options)
        self.plain, self.store = snapshot, store

    def wish(self, wish):
        if wish != self.wished:
            self.wished = wish
            self.current = with_parts(self.plain, self.store, wish)


def slow(ranks=8, late=5, steps=240, begin=140, extra_ms=9.0, per_host=4) -> GrantingSource:
    """One rank is late from a step on, another every tenth step."""
    own = own_times(steps, ranks, noise=0.004, seed=2)
    own[begin:, late, 0] += extra_ms
    if ranks > 2:
        own[::10, 2, 1] += 3.5
    loss = 2 * 0.99 ** np.arange(steps)[:, None] + 0.01 * np.arange(ranks)[None]
    loss[steps // 2, 1 % ranks] = np.nan
    found = [Finding("straggler", "warn", "", [late], cost_ms=9.0, since_step=begin + 1)]
    shot = snapshots.running(ranks, per_host, gpu=False, own_ms=27.0)
    return GrantingSource(shot, store_of(own, per_host=per_host, loss=loss, findings=found))
