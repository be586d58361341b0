"""A source that grants what a screen requests, from made-up steps."""

import copy
from functools import cache
from types import SimpleNamespace

import numpy as np

from ddpmon.analysis.over_time.heat import Heat
from ddpmon.analysis.over_time.longest_steps import LongestSteps
from ddpmon.analysis.over_time.sample_bins import SampleBins
from ddpmon.analysis.steps.step_sums import SinceStart
from ddpmon.messages import Finding, Sample, SeriesRequest, TimelineRequest, ViewRequest
from ddpmon.store.clock import Clock
from ddpmon.store.histories import Histories
from ddpmon.store.parts import with_parts
from tests.fake_source import FakeSource
from tests.tui import snapshots
from tests.worlds import own_times, world_with


def store_of(own, *, per_host=8, loss=None, findings=(), gpu=None):
    """What a hub's store knows of a world, as far as the parts of a snapshot need it.

    gpu: what the GPU of a rank works in percent, by rank and second of the run.
    """
    world = world_with(own, loss=loss, first=1)
    heat, since_start = Heat(), SinceStart()
    heat.append(world)
    since_start.append(world)
    for second in range(2, int(world.end_us[-1] / 1e6) + 1) if gpu else ():
        for rank in world.ranks:
            heat.add_gpu_sample(rank, (second - 1) * 1_000_000, second * 1_000_000, gpu(rank, second))
    heat.overlay_samples()
    sample_bins = SampleBins()
    for rank in world.ranks if gpu else ():
        seconds = range(2, int(world.end_us[-1] / 1e6) + 1)
        told = [Sample(second * 1_000_000, cpu_percent=101.0, gpu_percent=gpu(rank, second)) for second in seconds]
        sample_bins.add(rank, f"node{rank // per_host:02}", told)
    longest_steps = LongestSteps()
    longest_steps.append(world)
    histories = Histories()
    histories.add_steps(world, world.end_us / 1e6)
    by_rank = {
        rank: SimpleNamespace(
            hello=SimpleNamespace(host=f"node{rank // per_host:02}", through=0), stack=None, asked_at=None,
            unanswered=False, held=None, left=False, dead=False, sample=None,
        )
        for rank in range(own.shape[1])
    }  # fmt: skip
    return SimpleNamespace(
        since_start=since_start, last_steps=world.last_steps,
        heat=heat, sample_bins=sample_bins, longest_steps=longest_steps, histories=histories, world=world,
        findings=list(findings), profile=None, clock=Clock(0, 0.0), run=SimpleNamespace(created_at=0.0),
        registry=SimpleNamespace(
            process_of_rank=by_rank, world_size=len(by_rank), host="node00", host_is_silent=lambda process: False,
            parallelism="DDP", unmeasured=[],
        ),
    )  # fmt: skip


class GrantingSource(FakeSource):
    """Answers view requests at once."""

    def __init__(self, snapshot, store, **options):
        super().__init__(snapshot, **options)
        self.plain, self.store = snapshot, store

    def request_view(self, view_request):
        if view_request != self.requested:
            self.requested = view_request
            self.current = with_parts(self.plain, self.store, view_request)


def slow(ranks=8, late=5, steps=240, begin=140, extra_ms=9.0, per_host=4, gpu=False) -> GrantingSource:
    """One rank is late from a step on, another every tenth step.

    gpu: each rank has one, which works most of the time; the late rank's works ever less, and rank 3's tells nothing.
    """
    return GrantingSource(*copy.deepcopy(_slow(ranks, late, steps, begin, extra_ms, per_host, gpu)))


def whole():
    """A snapshot of eight ranks with every part that screens request."""
    source = slow(gpu=True)
    source.request_view(
        ViewRequest(
            heat=SeriesRequest(rows=12, columns=40),
            timeline=TimelineRequest(),
            cost="start",
            inspect=SeriesRequest(ranks=((5, 5),), columns=40),
            stacks=True,
            series=SeriesRequest(("own",)),
            samples=SeriesRequest(("gpu", "cpu"), per_column=1, columns=40, ranks=((0, 7),)),
            strips=SeriesRequest(per_column=8, columns=24, ranks=((0, 7),)),
            sync=SeriesRequest(per_column=8, columns=40),
            heat_phases=SeriesRequest(rows=8, columns=40, ranks=((0, 7),), beyond_chance=True),
        )
    )
    return source.current


@cache  # many tests look at the same world
def _slow(ranks, late, steps, begin, extra_ms, per_host, gpu):
    own = own_times(steps, ranks, noise=0.004, seed=2)
    own[begin:, late, 0] += extra_ms
    if ranks > 2:
        own[::10, 2, 1] += 3.5
    loss = 2 * 0.99 ** np.arange(steps)[:, None] + 0.01 * np.arange(ranks)[None]
    loss[steps // 2, 1 % ranks] = np.nan
    found = [Finding("straggler", "warn", "", [late], cost_ms=9.0, since_step=begin + 1)]
    shot = snapshots.running(ranks, per_host, gpu=gpu, own_ms=27.0)

    def works(rank, second):
        return np.nan if rank == 3 else 96.0 - 10 * (second - 1) if rank == late else 96.0

    return shot, store_of(own, per_host=per_host, loss=loss, findings=found, gpu=works if gpu else None)
