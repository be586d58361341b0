"""Part of hostile.py: send invalid frames to a real hub over real sockets, while honest ranks report their steps.

The kinds are random bytes, valid frames with changed bytes, and valid frames with an extreme value in a field. Each is
sent by a process that is not a rank, also in the names of honest ranks. Then a process that is a rank sends mutated and
extreme frames, and the same three kinds go to the viewers' socket. Hub, ranks and viewer are those of the hub's own
tests.
"""

from __future__ import annotations

import math
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import zmq

sys.path.insert(0, str(Path(__file__).parent.parent))

from launching import own_home

from ddpmon import messages
from ddpmon.messages import MAX_STEP, PROTOCOL, STAGE_TRAINING, SYNC_GRADIENTS, SeriesRequest, decode_to_rank, encode
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recording import Recording
from tests.hub.conftest import RankProcess, Stage, Viewer

COUNT = 100_000
"""Number of frames of each kind."""
FROM = ("random", "mutated", "extreme", "rank-mixed", "viewer-random", "viewer-mutated", "viewer-extreme")
WORLD = 4
STEP_US = 10_000
SENDS_S = 0.1
PATIENCE_S = 60.0
"""Seconds without an acknowledgement after which an honest rank gives up: on a busy machine the hub is slow."""
EXTREMES = (
    -1, 0, 1, 1 << 31, 1 << 40, 1 << 47, (1 << 53) - 1, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63),
    2.5, 1000.0, math.nan, math.inf, -math.inf, 1e308, None, True, "", "x" * 300, "\x1b[31m\x00", [], {}, [[]], [None],
)  # fmt: skip


class Honest(threading.Thread):
    """Honest ranks, which make steps and, like the probe, keep each message until the hub acknowledges it."""

    def __init__(self, ranks: list[RankProcess]) -> None:
        super().__init__(daemon=True)
        self.ranks = ranks
        self.leave = threading.Event()
        self._held: dict[int, list[messages.Batch]] = {rank.rank: [] for rank in ranks}
        self._end_us = _now_us()

    @property
    def unacknowledged(self) -> int:
        return sum(map(len, self._held.values()))

    def run(self) -> None:
        for rank in self.ranks:
            rank.hello(stage=STAGE_TRAINING, cores=2)
        step = 0
        while not self.leave.is_set():
            numbers = range(step + 1, min(step + 1000, step + (_now_us() - self._end_us) // STEP_US) + 1)
            for rank in self.ranks:
                steps = [self._step(rank.rank, number, self._end_us + (number - step) * STEP_US) for number in numbers]
                sample = messages.Sample(_now_us(), 50.0, 1 << 28)
                self._held[rank.rank].append(rank.batch(steps, samples=[sample]))
            step += len(numbers)
            self._end_us += len(numbers) * STEP_US
            self._read(SENDS_S)
        for rank in self.ranks:
            rank.bye()
        patience = time.monotonic() + PATIENCE_S
        while (left := self.unacknowledged) and time.monotonic() < patience:
            self._read(0.1)
            if self.unacknowledged < left:
                patience = time.monotonic() + PATIENCE_S

    @staticmethod
    def _step(rank: int, number: int, end_us: int) -> messages.Step:
        arrival = 8000 + 100 * rank
        syncs = [messages.Sync(SYNC_GRADIENTS, arrival, STEP_US, 4096)]
        return messages.Step(number, end_us, STEP_US, 1000, 3000, arrival - 4600, 300, 300, syncs, 1 / number, 8)

    def _read(self, seconds: float) -> None:
        time.sleep(seconds)
        for rank in self.ranks:
            held = self._held[rank.rank]
            while rank.socket.poll(0):
                message = decode_to_rank(rank.socket.recv())
                if isinstance(message, messages.Ack):
                    held[:] = [batch for batch in held if batch.seq > message.seq]
                elif isinstance(message, messages.Welcome) and not message.has_hello:
                    rank.hello(stage=STAGE_TRAINING, cores=2)
                    for batch in held:
                        rank.socket.send(encode(batch))


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def messages_of(run_id: str, rank: int, pid: int, seq: int) -> list[msgspec.Struct]:
    """Return one message of each kind that a rank may send."""
    m, now = messages, _now_us()
    step = m.Step(
        seq, now, 10_000, 1000, 3000, 3500, 300, 300, [m.Sync(0, 8000, 10_000, 4096)], 2.5, 64, 64, 0.1, 40,
        [m.Bucket(1, 5000, 9000)], {"augment": 900}, [m.Pause(0, 0, 50)],
    )  # fmt: skip
    batch = m.Batch(
        rank, pid, seq, now, STAGE_TRAINING, seq, 0, 2, [step], [m.Sample(now, 50.0, 1 << 30, 50.0)],
        [m.Scalar(seq, "accuracy", 0.9)], 100, 0, [m.Digest(seq, 0, 99, "0", 12, 4)],
        [m.Layout(1, 0, 0, 4096, ["0.w"])], None, seq, [m.Pause(1, 0, 100)], 1, 2,
    )  # fmt: skip
    collective = m.Collective("barrier", "0", 12)
    stack = m.Stack(rank, pid, now, 3, 100, 2, ["train.py:40 main"], 0, collective, issued={"0": 12})
    host = socket.gethostname()
    hello = m.Hello(PROTOCOL, run_id, rank, rank, WORLD, 0, host, pid, STAGE_TRAINING, notes=["n"])
    elsewhere = msgspec.structs.replace(hello, host="elsewhere", restart=1)
    failure = m.Failure(rank, pid, now, "ValueError: x", "Traceback", 3)
    return [hello, elsewhere, batch, batch, batch, failure, stack, m.Bye(rank, pid, seq)]


def requests() -> list[msgspec.Struct]:
    """Return one message of each kind that a viewer may send."""
    m, inspected = messages, SeriesRequest(ranks=((0, 0),))
    view_request = m.ViewRequest(
        SeriesRequest(), m.TimelineRequest(), "window", inspected, True, SeriesRequest(("loss",))
    )
    return [m.Next(), m.Next(3, "an epoch", view_request), m.Ask([0, 1]), m.Ask()]


def random_bytes(noise: random.Random, _: msgspec.Struct) -> bytes:
    return noise.randbytes(noise.choice((0, 1, 3, 20, 100, 300)))


def mutated(noise: random.Random, message: msgspec.Struct) -> bytes:
    """Return a frame in which some bytes are changed, and whose end may be missing."""
    frame = bytearray(encode(message))
    for _ in range(noise.randint(1, 4)):
        frame[noise.randrange(len(frame))] = noise.randrange(256)
    return bytes(frame[: noise.randint(1, len(frame))] if noise.random() < 0.1 else frame)


def extreme(noise: random.Random, message: msgspec.Struct) -> bytes:
    """Return a frame in which one field has an extreme value."""
    whole = msgspec.msgpack.decode(encode(message))
    inside = whole
    while True:
        lists = [part for part in inside if isinstance(part, list) and part]
        if not lists or noise.random() < 0.5:
            break
        inside = noise.choice(lists)
    place = noise.randrange(1 if inside is whole else 0, len(inside))
    inside[place] = noise.choice(EXTREMES)
    return msgspec.msgpack.encode(whole)


def mixed(noise: random.Random, message: msgspec.Struct) -> bytes:
    return noise.choice((mutated, extreme))(noise, message)


KINDS = {"random": random_bytes, "mutated": mutated, "extreme": extreme, "mixed": mixed}


def send_hostile(stage: Stage, kind: str, count: int, seed: int, pids: list[int]) -> None:
    """Send `count` frames of a kind. Its prefix, "viewer-" or "rank-", says which socket is attacked or as whom."""
    who, _, how = kind.rpartition("-")
    noise, own = random.Random(seed), WORLD - 1
    if who == "viewer":
        peer, pid = stage.viewer().socket, 0
    elif who == "rank":
        rank = stage.rank_process(own)
        rank.join()
        peer, pid = rank.socket, rank.pid
    else:
        peer, pid = stage.rank(own).socket, os.getpid()
    peer.setsockopt(zmq.LINGER, 5000)

    def message(number: int) -> msgspec.Struct:
        if who == "viewer":
            return noise.choice(requests())
        if who == "rank":
            return noise.choice(messages_of(stage.run.id, own, pid, number)[2:-1])
        claimed = noise.choice([*pids, pid, noise.randrange(1, 1 << 22)])
        return noise.choice(messages_of(stage.run.id, noise.randrange(WORLD), claimed, noise.randrange(1, 5000)))

    for number in range(1, count + 1):
        peer.send_multipart([KINDS[how](noise, message(number))] * (1 if noise.random() < 0.99 else 3))
        if number % 64 == 0:
            while peer.poll(0):
                peer.recv()
    peer.send(b"the last")


class Watch(threading.Thread):
    """Requests one snapshot after the other from the hub, and measures its memory."""

    def __init__(self, viewer: Viewer, hub: int) -> None:
        super().__init__(daemon=True)
        self._viewer, self._hub = viewer, hub
        self.longest_s = self.most_mb = 0.0
        self.done = threading.Event()
        self.shot: messages.Snapshot | None = None

    def run(self) -> None:
        while not self.done.is_set():
            asked = time.monotonic()
            self.shot = self._viewer.get(deadline_s=PATIENCE_S)
            self.longest_s = max(self.longest_s, time.monotonic() - asked)
            self.most_mb = max(self.most_mb, memory_mb(self._hub))
            self.done.wait(0.05)

    def has(self, ranks: set[int]) -> bool:
        return self.shot is not None and {view.rank for view in self.shot.ranks if view.health == "ok"} == ranks


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def hunt(seed: int, numbers: Sequence[int]) -> list[str]:
    """Send one frame of each kind per number, and return each fault of the hub, the viewers and the recording."""
    with own_home(), zmq.Context() as context:
        stage = Stage(context)
        try:
            return attack(stage, seed, len(numbers))
        finally:
            stage.close()


def attack(stage: Stage, seed: int, count: int) -> list[str]:
    """Send `count` frames of each kind, and return each fault."""
    hub = stage.hub(before=["env"])
    honest = Honest([stage.rank_process(rank) for rank in range(WORLD - 1)])
    watch = Watch(stage.viewer(), hub.pid)
    honest.start()
    watch.start()
    wait(lambda: watch.has(set(range(WORLD - 1))))
    watch.longest_s = 0.0
    for number, kind in enumerate(FROM):
        began = time.monotonic()
        send_hostile(stage, kind, count, seed + number, [rank.pid for rank in honest.ranks])
        rate = count / (time.monotonic() - began)
        print(f"{kind:16} {count:,} frames, {rate:,.0f}/s; hub {memory_mb(hub.pid):.0f} MB", flush=True)
    honest.leave.set()
    honest.join()
    answered = watch.is_alive()
    watch.done.set()
    watch.join()
    trouble = [] if answered else ["a viewer got no snapshot"]
    trouble += [] if hub.poll() is None else [f"the hub ended with {hub.returncode}"]
    stage.end()
    hub.wait(300)  # The hub reads the whole recording again for its report.
    assert watch.shot is not None
    print(f"refused: {'; '.join(f'{one.count:,} {one.what} (rank {one.rank})' for one in watch.shot.refused)}")
    print(f"hub at most {watch.most_mb:.0f} MB; a viewer waited at most {watch.longest_s:.1f} s")
    if log := stage.log():
        trouble.append(f"the hub said: {log[-2000:]}")
    trouble += differences(stage, honest)
    print(*trouble, sep="\n")
    return trouble


def differences(stage: Stage, honest: Honest) -> list[str]:
    """Return the differences between the recording and what the honest ranks sent."""
    trouble = [f"{honest.unacknowledged} batches are not acknowledged"] if honest.unacknowledged else []
    with Recording(stage.run) as recording:
        ids = {process.rank: process.id for process in recording.processes() if process.attempt == 0}
        for rank in honest.ranks:
            steps = recording.steps.whole_steps(ids[rank.rank], 1, MAX_STEP)
            print(f"rank {rank.rank}: told {rank.step:,} steps; recorded {len(steps):,}")
            if [(step.step, step.length_us, step.samples) for step in steps] != [
                (number, STEP_US, 8) for number in range(1, rank.step + 1)
            ]:
                trouble.append(f"rank {rank.rank}: the recorded steps are not those that it told")
    shot = recorded_snapshot(stage.run)
    for view, rank in zip(shot.ranks, honest.ranks, strict=False):
        if (view.steps, view.health) != (rank.step, "left"):
            trouble.append(f"rank {view.rank} is {view.health} at step {view.steps:,}, not at {rank.step:,}")
    print(f"state {shot.state}: {shot.verdict}; lost {shot.records_lost:,}; step {shot.step:,}")
    if [finding.text for finding in shot.findings if finding.kind == "rank_failed" and finding.ranks != [WORLD - 1]]:
        trouble.append("an honest rank is said to have failed")
    return trouble
