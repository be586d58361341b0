"""Frames that cannot be, at a real hub over real sockets, while honest ranks tell it what is true.

    python benchmarks/hostile_frames.py                          100,000 frames of each kind
    python benchmarks/hostile_frames.py --seed 7 --count 2000    a quick look

Kinds: random bytes; valid frames in which bytes were changed; valid frames with a field at an extreme; each from a
process that is no rank, in the names of honest ranks too. Then mutated and extreme frames of a process that is a rank
itself, and the same three kinds at the viewers' socket.

Printed are what was sent and how fast it was taken, what the hub refused, its memory, the longest wait of a viewer, and
whether the recording holds of every honest rank exactly what it told. Exit code 1 where something is not as it must be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import zmq
from hostile_peers import STEP_S, WORLD

from ddpmon import runs
from ddpmon.messages import (
    Next,
    decode_snapshot,
    encode,
)
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recording import recording_path

FROM = ("random", "mutated", "extreme", "rank-mixed", "viewer-random", "viewer-mutated", "viewer-extreme")
PEERS = Path(__file__).with_name("hostile_peers.py")


class Watch(threading.Thread):
    """Asks the hub for one snapshot after the other, and follows its memory."""

    def __init__(self, run_id: str, hub: int) -> None:
        super().__init__(daemon=True)
        self._address, self._hub = runs.view_address(run_id), hub
        self.longest_s = self.most_mb = 0.0
        self.done = threading.Event()
        self.refused: list[str] = []
        self.ranks: set[int] = set()
        """Ranks that have connected."""

    def run(self) -> None:
        viewer = zmq.Context.instance().socket(zmq.DEALER)
        viewer.setsockopt(zmq.LINGER, 0)
        viewer.connect(self._address)
        while not self.done.is_set():
            asked = time.monotonic()
            viewer.send(encode(Next()))
            while not viewer.poll(50) and not self.done.is_set():
                with contextlib.suppress(OSError):
                    self.most_mb = max(self.most_mb, memory_mb(self._hub))
                self.longest_s = max(self.longest_s, time.monotonic() - asked)
                if time.monotonic() - asked > 5 * (1 + self.longest_s // 5):
                    viewer.send(encode(Next()))  # the one before was lost
            while viewer.poll(0):
                shot = decode_snapshot(viewer.recv())
                self.ranks = {view.rank for view in shot.ranks if view.health == "ok"}
                self.refused = [f"{one.count:,} {one.what} (rank {one.rank})" for one in shot.refused]
            self.done.wait(0.05)
        viewer.close()


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


@contextlib.contextmanager
def run_with_hub() -> Iterator[tuple[runs.Run, subprocess.Popen[bytes]]]:
    with tempfile.TemporaryDirectory(prefix="ddpmon-h") as home:
        os.environ["DDPMON_HOME"] = home
        os.environ["DDPMON_RUNTIME_DIR"] = home
        run = runs.Run(
            id=runs.new_id(), name="attacked", argv=["true"], script="train.py", script_args=[], cwd="/",
            host=socket.gethostname(), boot_id=runs.boot_id(), created_at=time.time(), world_size=WORLD,
            supervisor=runs.Process.of(os.getpid()),
        )  # fmt: skip
        runs.create(run)
        with (runs.run_dir(run.id) / "logs" / "hub.log").open("ab") as log:
            hub = subprocess.Popen([sys.executable, "-m", "ddpmon.hub", run.id], stdout=log, stderr=log)
        try:
            yield run, hub
        finally:
            hub.kill()
            hub.wait()


def peer(*arguments: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, PEERS, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def attack(count: int, seed: int) -> list[str]:
    """All of it; returns what is not as it must be."""
    with run_with_hub() as (run, hub):
        as_rank = [os.environ | {"DDPMON_RUN_ID": run.id, "RANK": str(rank)} for rank in range(WORLD)]
        began_us = time.monotonic_ns() // 1000
        ranks = [peer("honest", run.id, rank, began_us, env=as_rank[rank]) for rank in range(WORLD - 1)]
        watch = Watch(run.id, hub.pid)
        watch.start()
        while watch.ranks != set(range(WORLD - 1)):
            time.sleep(0.05)
        watch.longest_s = 0.0
        pids = ",".join(str(rank.pid) for rank in ranks)
        for number, kind in enumerate(FROM):
            began = time.monotonic()
            peer("hostile", run.id, kind, count, seed + number, pids, env=as_rank[-1]).wait()
            rate = count / (time.monotonic() - began)
            print(f"{kind:16} {count:,} frames, {rate:,.0f}/s; hub {memory_mb(hub.pid):.0f} MB", flush=True)
        most = max(watch.most_mb, memory_mb(hub.pid))
        last = round((time.monotonic_ns() // 1000 - began_us) / 1e6 / STEP_S)
        for rank in ranks:
            print(last, file=rank.stdin, flush=True)
        told = [json.loads(rank.communicate()[0]) for rank in ranks]
        watch.done.set()
        watch.join()
        trouble = [] if hub.poll() is None else [f"the hub ended with {hub.returncode}"]
        ended = runs.update(run.id, ended_at=time.time(), exit_code=0)
        hub.terminate()
        hub.wait(300)  # it reads all of it again for its report
        log = (runs.run_dir(run.id) / "logs" / "hub.log").read_text()
        print(f"refused: {'; '.join(watch.refused)}")
        print(f"hub at most {most:.0f} MB")
        print(f"a viewer waited at most {watch.longest_s:.1f} s")
        if log:
            trouble.append(f"the hub said: {log[-2000:]}")
        return trouble + wrong(ended, told)


def wrong(run: runs.Run, told: list[dict[str, int]]) -> list[str]:
    """Return what the recording has otherwise than the honest ranks told it."""
    trouble = []
    with sqlite3.connect(recording_path(run.id)) as db:
        for rank, facts in enumerate(told):
            query = "SELECT count(*), sum(step), min(length_us), max(length_us), sum(samples) FROM steps"
            query += " WHERE process = (SELECT id FROM processes WHERE rank = ? AND attempt = 0)"
            found, made, length = db.execute(query, (rank,)).fetchone(), facts["steps"], round(STEP_S * 1e6)
            expected = (made, made * (made + 1) // 2, length, length, 8 * made)
            print(f"rank {rank}: told {made:,} steps; recorded {found[0]:,}")
            if found != expected or facts["unacknowledged"]:
                trouble.append(f"rank {rank}: {found}, and told was {expected}; {facts['unacknowledged']} unanswered")
    db.close()
    shot = recorded_snapshot(run)
    for view, facts in zip(shot.ranks, told, strict=False):
        if (view.steps, view.health) != (facts["steps"], "left"):
            trouble.append(f"rank {view.rank} is {view.health} at step {view.steps:,}, not at {facts['steps']:,}")
    if shot.step != told[0]["steps"]:
        trouble.append(f"the run is at step {shot.step:,}, not at {told[0]['steps']:,}")
    print(f"state {shot.state}: {shot.verdict}; lost {shot.records_lost:,}; step {shot.step:,}")
    if [finding.text for finding in shot.findings if finding.kind == "rank_failed" and finding.ranks != [WORLD - 1]]:
        trouble.append("an honest rank is said to have failed")
    return trouble


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="frames of each kind")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if trouble := attack(args.count, args.seed):
        raise SystemExit("\n".join(["NOT AS IT MUST BE:", *trouble]))
    print("every honest rank's numbers are exact")


if __name__ == "__main__":
    main()
