"""Inspected ranks: a store fed with made-up steps, as a hub feeds it, and what a dashboard is shown of it."""

import msgspec
import numpy as np

from ddpmon.messages import (
    PROTOCOL,
    STAGE_TRAINING,
    Collective,
    Course,
    CoursesView,
    Hello,
    Sample,
    Stack,
)
from ddpmon.runs import Run
from ddpmon.runs.logs import Said
from ddpmon.store.clock import Clock
from ddpmon.store.parts import with_parts
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from ddpmon.store.view import snapshot
from tests.fake_source import FakeSource
from tests.worlds import own_times, records

BEGAN = 1_789_000_000.0
HOST = "node00"
FRAMES = [
    "torch/nn/modules/linear.py:134 Linear.forward",
    "model.py:88 Block.forward",
    "train.py:187 main",
    "train.py:212 <module>",
]


def stack(rank, at_us, *, blocked=False, frames=FRAMES, own=1):
    return Stack(
        rank, 900 + rank, at_us, 0, 0, 1, frames, own,
        Collective("DDP's gradient all-reduce") if blocked else None, blocked,
    )  # fmt: skip


def store_of(own, *, loss=None, gpu=False):
    """A store that knows these steps. own: [S, R, 5] ms."""
    steps, ranks, _ = own.shape
    run = Run("20260909-120000-7f3a", "digits", ["true"], "train.py", [], "/", HOST, "", BEGAN, ranks)
    registry = Registry(run.id, ranks, HOST)
    store = Store(run, registry, Clock(0, BEGAN), live=True)
    told = records(own, loss=loss, first=1)
    for rank, recorded in told.items():
        hello = Hello(
            PROTOCOL, run.id, rank, rank, ranks, 0, HOST, 900 + rank, STAGE_TRAINING, device=f"cuda:{rank}" if gpu else
            "cpu", torch_version="2.13.0", backend="gloo", parameters=109_386, cores=8, compute_threads=2,
            device_name="NVIDIA H100 80GB HBM3" if gpu else "",
        )  # fmt: skip
        process = RankProcess(rank + 1, 0, hello, greeted=True, stage=STAGE_TRAINING, steps=steps)
        registry.process_of_rank[rank] = registry.processes[hello.pid] = process
        process.heard_at = time_of(told)
        for second in range(3):
            process.samples.append(
                Sample(
                    recorded[-1].end_us - (2 - second) * 1_000_000, cpu_percent=104.0, rss_bytes=(3 << 30), threads=37,
                    gpu_percent=91.0 - rank if gpu else None, gpu_memory_used_bytes=61 << 30 if gpu else None,
                    gpu_memory_total_bytes=80 << 30 if gpu else None, gpu_power_w=612.0 if gpu else None,
                    gpu_temperature_c=64.0 if gpu else None, gpu_clock_mhz=1980.0 if gpu else None,
                )
            )  # fmt: skip
    for rank, recorded in told.items():
        process = registry.process_of_rank[rank]
        store.sample_bins.add(rank, HOST, process.samples)
        store.add_steps(process, process.count_new_steps(recorded), time_of(told))
    store.add_arrived()
    store.judge(time_of(told), BEGAN + time_of(told))
    return store


def time_of(told):
    """Seconds of the hub's clock at the end of the last step."""
    return told[0][-1].end_us / 1e6


def cores_of(view_request, count):
    """Cores of which each third is idle, and the others are busy every other while."""
    cells = [bytes(1 + (core % 3 > 0) * (253 if column // 8 % 2 else 100) for column in range(view_request.columns))
             for core in range(count)]  # fmt: skip
    courses = [Course(core, "busy", 0.0, 1.0, each) for core, each in enumerate(cells)]
    return CoursesView(view_request.per_column, view_request.columns, courses, host=HOST)


class Inspected(FakeSource):
    """Answers view requests at once, and lets ranks answer when they are asked: with what `answers` has for them."""

    def __init__(self, store, *, after_s=0.3, **options):
        self.store = store
        self.now = max(p.heard_at for p in store.registry.process_of_rank.values()) + after_s
        self.answers = {}
        self.cores = 16
        """None: nobody tells of them."""
        super().__init__(None, **options)
        self.renew()

    def renew(self, after_s=0.0):
        self.now += after_s
        shot = snapshot(self.store, "e", int(self.now * 1e3), self.now, BEGAN + self.now)
        shot = with_parts(shot, self.store, self.requested)
        view_request = self.requested.cores
        told = view_request is not None and self.cores is not None
        self.current = msgspec.structs.replace(shot, cores=cores_of(view_request, self.cores)) if told else shot

    def request_view(self, view_request):
        if view_request != self.requested:
            self.requested = view_request
            self.renew()

    def ask(self, ranks=(), profile_steps=0):
        super().ask(ranks, profile_steps)
        for rank in () if profile_steps else ranks:
            process = self.store.registry.process_of_rank[rank]
            process.asked_at = self.now
            if rank in self.answers:
                now_us = int(self.now * 1e6)
                answer = msgspec.structs.replace(self.answers[rank], time_us=now_us, step=process.steps)
                process.take_stack(answer, self.now)
        self.renew(0.2)


def late(steps=600, ranks=4, begin=400, rank=2, extra_ms=9.0, *, gpu=False, phase=0):
    """A rank that is late from a step on, and whose loss is a little higher."""
    own = own_times(steps, ranks, noise=0.01, seed=3)
    own[begin:, rank, phase] += extra_ms
    loss = 2.3 * 0.995 ** np.arange(steps)[:, None] + 0.02 * np.random.default_rng(1).random((steps, ranks))
    loss[:, rank] += 0.05
    source = Inspected(store_of(own, loss=loss, gpu=gpu))
    source.answers = {r: stack(r, 0) for r in range(ranks)}
    source.said = [
        *(
            Said(r, "out", [f"epoch {epoch}  loss {2.3 * 0.4**epoch:.3f}" for epoch in range(1, 5)])
            for r in range(ranks)
        ),
        Said(rank, "err", ["UserWarning: the data loader has to decode very large images"]),
    ]
    return source


def at_work(ranks=8, *, gpu=True, seconds=240):
    """Ranks whose GPUs, one after the other, do nothing for some seconds each minute."""
    source = late(300, ranks, begin=200, gpu=gpu)
    for rank, process in source.store.registry.process_of_rank.items():
        last = process.samples[-1]
        samples = []
        for second in range(seconds):
            idle = (second + 5 * rank) % 60 < 8
            samples.append(
                msgspec.structs.replace(
                    last, time_us=last.time_us + second * 1_000_000, cpu_percent=30.0 + 70.0 * idle,
                    gpu_percent=4.0 if idle else 92.0, starved_share=0.4 if idle else 0.01,
                )
            )  # fmt: skip
        source.store.sample_bins.add(rank, HOST, samples)
    source.renew()
    return source


def standing(ranks=4, rank=2):
    """No rank comes on, because one does not come to the all-reduce."""
    source = Inspected(store_of(own_times(200, ranks, noise=0.01, seed=3)))
    store = source.store
    source.now += 30.0
    for number, process in store.registry.process_of_rank.items():
        process.heard_at = source.now
        blocked = number != rank
        frames = ["torch/autograd/graph.py:829 _engine_run_backward", "train.py:198 step"] if blocked else FRAMES
        told = stack(number, int((source.now - 2) * 1e6), blocked=blocked, frames=frames)
        process.take_stack(msgspec.structs.replace(told, step=200), source.now - 2)
    store.judge(source.now, BEGAN + source.now)
    source.renew()
    return source


def dead(ranks=4, rank=2):
    """A rank whose process is gone, with an exception that it told of."""
    from ddpmon.messages import Failure
    from tests.tui.snapshots import TRACEBACK

    source = Inspected(store_of(own_times(200, ranks, noise=0.01, seed=3)))
    store = source.store
    store.registry.process_of_rank[rank].dead = True
    store.failures.append(Failure(rank, 900 + rank, int(source.now * 1e6), TRACEBACK.splitlines()[-1], TRACEBACK, 200))
    source.now += 1.0
    store.judge(source.now, BEGAN + source.now)
    source.renew()
    return source


MADE = {"late": late, "late_gpu": lambda: late(ranks=8, gpu=True), "standing": standing, "dead": dead}

if __name__ == "__main__":  # to look at it: python -m tests.tui.inspected late
    import sys

    from ddpmon.tui.app import DdpmonApp, watch

    watch(DdpmonApp(MADE[sys.argv[1]]()))
