"""Fixed, made-up snapshots, one for each state that a screen can be in. Nothing here is random or takes the time."""

from __future__ import annotations

import math

import msgspec

from ddpmon.messages import (
    GPU,
    GPU_COUNTERS,
    SAMPLED,
    Collective,
    Event,
    Exit,
    Finding,
    RankView,
    RunView,
    Sample,
    Series,
    Snapshot,
    Stack,
)
from ddpmon.runs.logs import LAUNCHER, Said
from tests.findings import finding

STARTED = 1_789_000_000.0
STEPS = 12_486


def wobble(place: int, salt: int = 0) -> float:
    """A fixed number in [-1, 1) that looks like noise."""
    return ((place * 2654435761 + salt * 40503 + 12345) % 65_536) / 32_768 - 1


def loss_series(points: int = 300, *, over_s: float = 900.0, spread: float = 0.03) -> Series:
    seconds = [over_s * i / (points - 1) for i in range(points)]
    median = [2.15 + 2.7 * math.exp(-i / (points / 4)) + 0.02 * wobble(i) for i in range(points)]
    return Series(
        seconds=seconds,
        low=[value - spread * (1 + wobble(i, 1) / 2) for i, value in enumerate(median)],
        median=list(median),
        high=[value + spread * (1 + wobble(i, 2) / 2) for i, value in enumerate(median)],
    )


def own_series(
    own_ms: float, slow_from: float = 2.0, extra_ms: float = 0.0, points: int = 300, over_s: float = 900.0
) -> Series:
    """The slowest rank `extra_ms` over the others from `slow_from` of the time on."""
    median = [own_ms * (1 + 0.01 * wobble(i)) for i in range(points)]
    slowest = [
        own_ms * (1.02 + 0.02 * wobble(i, 3)) + (extra_ms if i / points >= slow_from else 0.0) for i in range(points)
    ]
    return Series(
        seconds=[over_s * i / (points - 1) for i in range(points)],
        low=[value * (0.985 + 0.008 * wobble(i, 4)) for i, value in enumerate(median)],
        median=list(median),
        high=list(slowest),
    )


def rank_view(
    rank: int, per_host: int, *, own_ms: float = 261.0, extra_ms: float = 0.0, gpu: bool = True, worst_ms: float = 0.0
) -> RankView:
    own = own_ms * (1 + 0.008 * wobble(rank, 5)) + extra_ms
    transfer = 11.2 + 0.3 * wobble(rank, 6)
    wait = max(0.6, own_ms * 1.01 + worst_ms - own)
    data, optimizer, other = 3.1 + wobble(rank, 7), 8.4, 5.5
    forward = (own - data - optimizer - other) * 0.34
    backward = own - data - optimizer - other - forward
    return RankView(
        rank=rank,
        host=f"node{rank // per_host:02}",
        local_rank=rank % per_host,
        node_rank=rank // per_host,
        pid=48_000 + rank,
        device=f"cuda:{rank % per_host}" if gpu else "cpu",
        stage="training",
        health="ok",
        steps=STEPS,
        step_ms=own + wait + transfer,
        own_ms=own,
        over_median=own / own_ms - 1,
        phases_ms=(data, forward, backward, optimizer, other, wait, transfer),
        late_ms=own - own_ms,
        critical_share=0.97 if extra_ms else 0.0,
        loss=2.30 + 0.02 * wobble(rank, 8),
        samples_per_s=812.0,
        sample=Sample(0, 101.0, 3 * 2**30, 86 + 4 * wobble(rank, 9), 61 * 2**30, 80 * 2**30)
        if gpu
        else Sample(0, 101.0, 3 * 2**30),
    )


def sampled(rank: RankView, **values: object) -> RankView:
    """The rank with other values of its sample."""
    return replace(rank, sample=replace(rank.sample or Sample(0), **values))


def without_gpu(rank: RankView) -> RankView:
    """The rank with nothing measured of its GPU."""
    return sampled(rank, gpu_throttled=None, **{row.field: None for row in SAMPLED if row.where == GPU})


def running(ranks: int = 64, per_host: int = 8, *, gpu: bool = True, own_ms: float = 261.0) -> Snapshot:
    return Snapshot(
        epoch="e1",
        version=7,
        at=STARTED + 3720,
        run=RunView(
            id="20260909-120000-7f3a",
            name="gpt2-124m",
            world_size=ranks,
            nnodes=-(-ranks // per_host),
            script="train.py",
            started_at=STARTED,
        ),
        state="running",
        verdict="all ranks within 2% of the median own time.",
        step=STEPS,
        total_steps=50_000,
        eta_s=11_640.0,
        step_ms_p50=own_ms + 14,
        step_ms_max=own_ms + 31,
        loss=2.296,
        loss_falls=True,
        all_reduce_ms=14.1,
        wait_share=0.02,
        gpu_percent=94.0 if gpu else None,
        samples_per_s=1.31e6,
        window=(STEPS - 599, STEPS),
        ranks=[rank_view(r, per_host, gpu=gpu, own_ms=own_ms) for r in range(ranks)],
        loss_series=loss_series(),
        own_series=own_series(own_ms),
        events=[
            Event(at=STARTED + 41, severity="info", text=f"{ranks} of {ranks} ranks connected in 41 s"),
            Event(at=STARTED + 1077, severity="warn", text="all-reduce 3x its median for 12 s (node03)"),
            Event(at=STARTED + 2082, severity="info", text="checkpoint 12,000 written in 8.1 s"),
        ],
    )


def four_on_cpu() -> Snapshot:
    """The first thing that people see: four ranks of one machine, no GPU."""
    return replace(
        running(4, 4, gpu=False, own_ms=23.4),
        run=RunView(id="r", name="mnist", world_size=4, script="training/mnist.py", started_at=STARTED + 3660),
        step=412,
        total_steps=1440,
        eta_s=26.0,
        samples_per_s=6_120.0,
        step_ms_p50=24.9,
        step_ms_max=41.7,
        all_reduce_ms=1.52,
        loss=0.0312,
        at=STARTED + 3672,
        events=[Event(at=STARTED + 3666, severity="info", text="4 of 4 ranks connected in 6 s")],
        loss_series=loss_series(60, over_s=11.0),
        own_series=own_series(23.4, points=60, over_s=11.0),
    )


def slow() -> Snapshot:
    calm = running()
    ranks = [rank_view(r, 8, extra_ms=45.4 if r == 13 else 0.0, worst_ms=40.0) for r in range(64)]
    text = (
        "rank 13 (node01 gpu5) is slow: +41 ms compute each step; the rest wait 40 ms in all-reduce for it, "
        "since step 12,240 (4m). Costs 12% of throughput."
    )
    return replace(
        calm,
        state="slow",
        severity="warn",
        verdict=text,
        verdict_since=calm.at - 240,
        ranks=ranks,
        step_ms_p50=314.0,
        step_ms_max=356.0,
        all_reduce_ms=51.2,
        wait_share=0.14,
        gpu_percent=86.0,
        own_series=own_series(261.0, 0.74, 45.0),
        findings=[
            Finding(kind="straggler", severity="warn", text=text, ranks=[13], phase="backward", since_step=12_240)
        ],
        events=[
            *calm.events,
            Event(at=calm.at - 240, severity="warn", text="rank 13 slow since step 12,240: +41 ms compute"),
        ],
    )


def waiting() -> Snapshot:
    ranks = [
        RankView(
            rank=r,
            host="node00" if r < 8 else "node01",
            pid=900 + r,
            device=f"cuda:{r % 8}",
            stage="group",
            health="ok",
        )
        for r in range(16)
    ]
    ranks[3] = RankView(rank=3)
    ranks[11] = RankView(rank=11, host="node01", pid=911, device="cuda:3", stage="importing", health="ok")
    return Snapshot(
        epoch="e1",
        version=2,
        at=STARTED + 41,
        run=RunView(id="r", name="gpt2-124m", world_size=16, nnodes=2, started_at=STARTED),
        state="waiting",
        verdict="waiting for rank 3: not connected yet. Rank 11 is still importing torch.",
        ranks=ranks,
        events=[
            Event(at=STARTED + 7, severity="info", text="rank 0 connected (node00)"),
            Event(at=STARTED + 9, severity="info", text="15 of 16 ranks connected"),
        ],
        notes=["no GPU counters on node01: NVML not found"],
        missing={GPU_COUNTERS: "no GPU counters on node01: NVML not found"},
    )


def stalled() -> Snapshot:
    calm = running(8, 8)
    ranks = [
        replace(rank, stack=stack(rank, late=rank.rank == 5), health="silent" if rank.rank == 5 else "ok")
        for rank in calm.ranks
    ]
    return replace(
        calm,
        state="stalled",
        severity="critical",
        verdict_since=calm.at - 74,
        ranks=ranks,
        eta_s=None,
        verdict="no step for 74 s: rank 5 (node00 gpu5) has not arrived; the others wait for it in all-reduce.",
        findings=[
            finding(
                "hang",
                "critical",
                "rank 5 has not arrived",
                [5],
                advice="Look at what rank 5 does in data.py:41 __getitem__.",
            )
        ],
    )


def stack(rank: RankView, *, late: bool) -> Stack:
    """Where a rank is while one reads a file that does not come, and the others wait for it."""
    frames = [
        "torch/autograd/graph.py:829 _engine_run_backward",
        "train.py:198 step",
        "train.py:187 main",
    ]
    if late:
        frames = ["data.py:41 __getitem__", "torch/utils/data/dataloader.py:708 __next__", "train.py:187 main"]
    return Stack(
        rank=rank.rank, pid=rank.pid, time_us=0, step=rank.steps, since_us=0, phase=0 if late else 2,
        frames=frames, own=0 if late else 1, collective=Collective("DDP's gradient all-reduce"), blocked=not late,
    )  # fmt: skip


def first_steps() -> Snapshot:
    """Training has begun, and there is too little of it to compare the ranks."""
    calm = running(8, 8)
    bare = [replace(rank, steps=3, own_ms=None, over_median=None, step_ms=None, phases_ms=None, late_ms=None,
                    critical_share=None, loss=None, samples_per_s=None) for rank in calm.ranks]  # fmt: skip
    return replace(
        calm,
        at=STARTED + 52,
        verdict="training has begun; too few steps to compare ranks",
        step=3,
        eta_s=None,
        step_ms_p50=None,
        step_ms_max=None,
        loss=4.851,
        loss_falls=None,
        all_reduce_ms=None,
        wait_share=None,
        samples_per_s=None,
        window=None,
        ranks=bare,
        loss_series=Series([50.0, 51.0, 52.0], [4.93, 4.88, 4.82], [4.95, 4.9, 4.85], [4.97, 4.92, 4.88]),
        own_series=Series(),
        events=[
            Event(at=STARTED + 41, severity="info", text="8 of 8 ranks connected in 41 s"),
            Event(at=STARTED + 50, severity="info", text="first step after 50 s"),
        ],
    )


TRACEBACK = """Traceback (most recent call last):
  File "/home/ann/train.py", line 212, in <module>
    main()
  File "/home/ann/train.py", line 187, in main
    loss = model(batch)
  File "/home/ann/model.py", line 88, in forward
    return self.head(hidden @ self.table.T)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
"""


def failed() -> Snapshot:
    calm = running(8, 8)
    cause = Exit(
        code=1, error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", traceback=TRACEBACK
    )
    ranks = [
        replace(rank, health="dead", exit=cause if rank.rank == 3 else Exit(signal="SIGTERM")) for rank in calm.ranks
    ]
    return replace(
        calm,
        state="failed",
        severity="critical",
        eta_s=None,
        ranks=ranks,
        run=replace(calm.run, ended_at=calm.at, exit_code=1),
        verdict="rank 3 (node00 gpu3) failed first: CUDA out of memory, exit 1. The other 7 were stopped.",
        findings=[
            finding(
                "rank_failed",
                "critical",
                f"rank 3 failed: {cause.error}, at model.py:88 forward",
                [3],
                lead=len("rank 3 failed:"),
                advice="Take smaller batches, or hold fewer tensors.",
            )
        ],
        events=[
            *calm.events,
            Event(at=calm.at, severity="critical", text="rank 3: torch.OutOfMemoryError: CUDA out of memory"),
        ],
    )


def ended(state: str, verdict: str, severity: str = "info", code: int = 0) -> Snapshot:
    calm = running(8, 8)
    ranks = [replace(rank, health="left", stage="ended", exit=Exit(code=0)) for rank in calm.ranks]
    return replace(
        calm,
        state=state,
        verdict=verdict,
        severity=severity,
        eta_s=None,
        ranks=ranks,
        run=replace(calm.run, ended_at=calm.at, exit_code=code),
        step=50_000 if state == "done" else STEPS,
    )


def done() -> Snapshot:
    return ended("done", "done: 50,000 steps in 1h02m, loss 2.296.")


def stopped() -> Snapshot:
    return ended("stopped", "stopped on request at step 12,486 of 50,000.", code=130)


def lost() -> Snapshot:
    text = "lost: its supervisor is gone and said nothing; the machine may have been restarted."
    return replace(ended("lost", text, "critical"), run=running(8, 8).run)


def unknown() -> Snapshot:
    text = "ddpmon cannot see from here whether the run still runs; 12,486 steps so far"
    return replace(ended("unknown", text, "warn"), run=running(8, 8).run)


def said(ranks: int) -> list[Said]:
    """What they print."""
    return [
        Said(LAUNCHER, "launcher", ["W1120 torch/distributed/run.py:774] master_addr is only used for static rdzv"]),
        *(Said(rank, "out", ["loading the data", f"rank {rank} has 781 batches", "epoch 1"]) for rank in range(ranks)),
        Said(0, "out", [f"step {step}  loss 2.{400 - step}" for step in range(0, 300, 100)]),
        Said(13, "err", ["UserWarning: " + "the data loader has to decode very large images " * 4, "\x1b[2J"]),
    ]


STATES = {
    "waiting": waiting,
    "first_steps": first_steps,
    "running": running,
    "cpu": four_on_cpu,
    "slow": slow,
    "stalled": stalled,
    "failed": failed,
    "done": done,
    "stopped": stopped,
    "lost": lost,
    "unknown": unknown,
}

replace = msgspec.structs.replace
