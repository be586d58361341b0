"""Measure what the hub of a node costs beside the training of its ranks, while the root accepts all of it.

    python benchmarks/scale_node_hub.py                  8 ranks of 10 steps a second, a minute
    python benchmarks/scale_node_hub.py --profile FILE   what its time goes into

Two real hubs, a node's and a root's, that find each other as they do in a run. The node's ranks are made up: they send
over its own socket what real ones would, as often. CPU is the kernel's count of the node's hub, all threads, after the
first eight seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import zmq

from ddpmon import runs
from ddpmon.hub import curve_keys
from ddpmon.messages import PROTOCOL, STAGE_TRAINING, SYNC_GRADIENTS, Batch, Card, Hello, Meeting, Step, Sync, encode

sys.path.insert(0, str(Path(__file__).parent))
from made_up_runs import make_run, own_home, start_hub
from ports import free_port
from scale import PROFILED, SETTLE_S
from scale_nodes import SAMPLE_S, SEND_S, World, a_sample
from scale_plan import Plan
from synthetic_ranks import Viewer


def measure(ranks: int, rate: float, seconds: float, profile: str | None) -> float:
    """Share of a core that the node's hub takes."""
    with own_home():
        address = f"tcp://127.0.0.1:{free_port()}"
        started = [subprocess.Popen(["sleep", "3600"])]
        try:
            keys = [curve_keys.fresh(), curve_keys.fresh()]
            keys[0].addresses, keys[0].admitted = [address], {keys[1].public: 1}
            made = [make_run(name, ranks, nnodes=2, supervisor=started[0].pid) for name in ("root", "node")]
            for run, own in zip(made, keys, strict=True):
                own.save(runs.run_dir(run.id))
                inside = profile is not None and run is made[1]
                started.append(start_hub(run, *(("-c", PROFILED, run.id, profile) if inside else ())))
                Viewer(run).next()
            used = feed(made[1], Card(keys[0].public, made[0].id, [address]), ranks, rate, seconds, started[2].pid)
            shot = Viewer(made[0]).next()[1]
            if shot.step < (seconds - 2) * rate * 0.9:
                raise SystemExit(f"the root has {shot.step} steps only")
            if profile:
                started[2].terminate()
                started[2].wait(30)
            return used
        finally:
            for process in started:
                process.kill()
                process.wait()


def feed(run: runs.Run, root: Card, ranks: int, rate: float, seconds: float, hub: int) -> float:
    """Be the ranks of a node; returns what its hub took meanwhile."""
    context = zmq.Context()
    sockets = [context.socket(zmq.DEALER) for _ in range(ranks)]
    for rank, each in enumerate(sockets):
        each.setsockopt(zmq.LINGER, 0)
        each.connect(runs.ingest_address(run.id))
        each.send(
            encode(Hello(PROTOCOL, run.id, rank, rank, ranks, 1, "node1", 4_000_000 + rank, STAGE_TRAINING,
                         device=f"cuda:{rank}", backend="nccl", cores=128))
        )  # fmt: skip
    sockets[1].send(encode(Meeting(1, 4_000_001, 1, 2, "127.0.0.1", root=root)))  # rank 0 would make it the root
    process, rng = psutil.Process(hub), np.random.default_rng(7)
    world = World(Plan(root, [], 0, 1, ranks, ranks, rate, seconds, late_rank=1), 0, time.monotonic_ns() // 1000)
    waiting: list[list[Step]] = [[] for _ in range(ranks)]
    seq, sampled, sent = [0] * ranks, [0.0] * ranks, 0
    began = time.monotonic()
    first = None
    while (now := time.monotonic()) - began < seconds:
        if first is None and now - began > SETTLE_S:
            first = now, sum(process.cpu_times()[:2])
        while (step := world.next(int(now * 1e6))) is not None:
            number, end_us, length, phases = step
            for rank in range(ranks):
                own = phases[rank].tolist()
                sync = Sync(SYNC_GRADIENTS, sum(own), length, 1 << 26)
                waiting[rank].append(Step(number, end_us, length, *own, [sync], 1.5, 64, learning_rate=1e-3))
        due = int((now - began) / SEND_S * ranks)
        for place in range(sent, due):
            rank = place % ranks
            samples = []
            if now - sampled[rank] >= SAMPLE_S:
                sampled[rank], samples = now, [a_sample(int(now * 1e6), rng.random(9).tolist())]
            seq[rank] += 1
            sockets[rank].send(
                encode(Batch(rank, 4_000_000 + rank, seq[rank], int(now * 1e6), STAGE_TRAINING, world.step, 0,
                             steps=waiting[rank], samples=samples, total_steps=50_000, beats=world.step))
            )  # fmt: skip
            waiting[rank] = []
            while sockets[rank].poll(0):
                sockets[rank].recv()
        sent = due
        time.sleep(0.02)
    assert first is not None
    used = (sum(process.cpu_times()[:2]) - first[1]) / (time.monotonic() - first[0])
    context.destroy()
    return used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rate", type=float, default=10.0, help="steps a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--profile", help="write cProfile's statistics of the hub there")
    args = parser.parse_args()
    used = measure(args.ranks, args.rate, args.seconds, args.profile)
    print(
        f"the hub of a node with {args.ranks} ranks of {args.rate:g} steps a second: {used:.1%} of a core", flush=True
    )


if __name__ == "__main__":
    main()
