"""The peers of the hub in hostile_frames.py, each a process: an honest rank, and a sender of bad frames.

python benchmarks/hostile_peers.py honest RUN RANK BEGAN_US            until its standard input has a last step
python benchmarks/hostile_peers.py hostile RUN KIND COUNT SEED PIDS    PIDS: of honest ranks, with commas
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import sys
import threading
import time

import msgspec
import zmq

from ddpmon import runs
from ddpmon.messages import (
    PROTOCOL,
    STAGE_TRAINING,
    SYNC_GRADIENTS,
    Ack,
    Ask,
    Batch,
    Bucket,
    Bye,
    Collective,
    CostWish,
    Digest,
    Failure,
    HeatWish,
    Hello,
    InspectWish,
    Layout,
    Next,
    Pause,
    Sample,
    Scalar,
    SeriesWish,
    Stack,
    Step,
    Sync,
    TimelineWish,
    Welcome,
    Wish,
    decode_to_rank,
    encode,
)

WORLD = 4
STEP_S = 0.01
SENDS_S = 0.1
EXTREMES = (
    -1, 0, 1, 1 << 31, 1 << 40, 1 << 47, (1 << 53) - 1, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63),
    2.5, 1000.0, math.nan, math.inf, -math.inf, 1e308, None, True, "", "x" * 300, "\x1b[31m\x00", [], {}, [[]], [None],
)  # fmt: skip


class Rank:
    """An honest rank in this process: keeps what it sent until the hub has it, as the probe does."""

    def __init__(self, run_id: str, rank: int, began_us: int) -> None:
        """began_us: when the first step began, on every rank."""
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(runs.ingest_address(run_id))
        self._run_id, self._rank = run_id, rank
        self._held: list[tuple[int, bytes]] = []
        self._seq = self._step = 0
        self._end_us = began_us

    def hello(self) -> Hello:
        host = socket.gethostname()
        return Hello(
            PROTOCOL, self._run_id, self._rank, self._rank, WORLD, 0, host, os.getpid(), STAGE_TRAINING,
            notes=["a note"], cores=2,
        )  # fmt: skip

    def hear(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._socket.poll(max(0.0, end - time.monotonic()) * 1e3):
            message = decode_to_rank(self._socket.recv())
            if isinstance(message, Ack):
                self._held = [(seq, frame) for seq, frame in self._held if seq > message.seq]
            elif isinstance(message, Welcome) and not message.has_hello:
                self._socket.send(encode(self.hello()))
                for _, frame in self._held:
                    self._socket.send(frame)

    def tell(self, last: float = math.inf) -> None:
        """The steps that ended since, up to the last one."""
        steps = []
        length = round(STEP_S * 1e6)
        while self._end_us + length <= time.monotonic_ns() // 1000 and self._step < last and len(steps) < 1000:
            self._step += 1
            self._end_us += length
            arrival = 8000 + 100 * self._rank
            syncs = [Sync(SYNC_GRADIENTS, arrival, length, 4096)]
            phases = (1000, 3000, arrival - 4600, 300, 300)
            steps.append(Step(self._step, self._end_us, length, *phases, syncs, 1 / self._step, 8))
        self._seq += 1
        now = time.monotonic_ns() // 1000
        samples = [Sample(now, 50.0, 1 << 28)]
        batch = Batch(
            self._rank, os.getpid(), self._seq, now, STAGE_TRAINING, self._step, 0, steps=steps, samples=samples
        )
        self._held.append((self._seq, encode(batch)))
        self._socket.send(self._held[-1][1])

    def serve(self, lasts: list[int]) -> None:
        """Until there is a last step, and that is told."""
        self._socket.send(encode(self.hello()))
        while not lasts or self._step < lasts[0]:
            self.tell(lasts[0] if lasts else math.inf)
            self.hear(SENDS_S)
        bye = encode(Bye(self._rank, os.getpid(), self._seq))
        deadline = time.monotonic() + 20
        self._socket.send(bye)
        while self._held and time.monotonic() < deadline:
            self.hear(0.1)
        print(json.dumps({"steps": self._step, "unacknowledged": len(self._held)}), flush=True)


def messages_of(run_id: str, rank: int, pid: int, seq: int) -> list[msgspec.Struct]:
    """One of each kind that a rank may send."""
    now = time.monotonic_ns() // 1000
    step = Step(
        seq, now, 10_000, 1000, 3000, 3500, 300, 300, [Sync(0, 8000, 10_000, 4096)], 2.5, 64, 64, 0.1, 40,
        [Bucket(1, 5000, 9000)], {"augment": 900}, [Pause(0, 0, 50)],
    )  # fmt: skip
    batch = Batch(
        rank, pid, seq, now, STAGE_TRAINING, seq, 0, 2, [step], [Sample(now, 50.0, 1 << 30, 50.0)],
        [Scalar(seq, "accuracy", 0.9)], 100, 0, [Digest(seq, 0, 99, "0", 12, 4)], [Layout(1, 0, 0, 4096, ["0.w"])],
        None, seq, [Pause(1, 0, 100)], 1, 2,
    )  # fmt: skip
    stack = Stack(rank, pid, now, 3, 100, 2, ["train.py:40 main"], 0, Collective("barrier", "0", 12), issued={"0": 12})
    host = socket.gethostname()
    hello = Hello(PROTOCOL, run_id, rank, rank, WORLD, 0, host, pid, STAGE_TRAINING, notes=["n"])
    elsewhere = msgspec.structs.replace(hello, host="elsewhere", restart=1)
    failure = Failure(rank, pid, now, "ValueError: x", "Traceback", 3)
    return [hello, elsewhere, batch, batch, batch, failure, stack, Bye(rank, pid, seq)]


def requests() -> list[msgspec.Struct]:
    """One of each kind that a viewer may send."""
    wish = Wish(HeatWish(), TimelineWish(), CostWish(), InspectWish(), True, SeriesWish())
    return [Next(), Next(3, "an epoch", wish), Ask([0, 1]), Ask()]


def randomly(noise: random.Random, _: msgspec.Struct) -> bytes:
    return noise.randbytes(noise.choice((0, 1, 3, 20, 100, 300)))


def mutated(noise: random.Random, message: msgspec.Struct) -> bytes:
    frame = bytearray(encode(message))
    for _ in range(noise.randint(1, 4)):
        frame[noise.randrange(len(frame))] = noise.randrange(256)
    return bytes(frame[: noise.randint(1, len(frame))] if noise.random() < 0.1 else frame)


def extreme(noise: random.Random, message: msgspec.Struct) -> bytes:
    """A field somewhere in it gets a value at which numbers, texts and lists end."""
    told = msgspec.msgpack.decode(encode(message))
    inside = told
    while True:
        lists = [part for part in inside if isinstance(part, list) and part]
        if not lists or noise.random() < 0.5:
            break
        inside = noise.choice(lists)
    place = noise.randrange(1 if inside is told else 0, len(inside))
    inside[place] = noise.choice(EXTREMES)
    return msgspec.msgpack.encode(told)


def mixed(noise: random.Random, message: msgspec.Struct) -> bytes:
    return noise.choice((mutated, extreme))(noise, message)


KINDS = {"random": randomly, "mutated": mutated, "extreme": extreme, "mixed": mixed}


def hostile(run_id: str, kind: str, count: int, seed: int, pids: list[int]) -> None:
    """Send so many frames. kind: of KINDS, behind "viewer-" or "rank-" what is attacked, or as whom."""
    who, _, how = kind.rpartition("-")
    noise = random.Random(seed)
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.LINGER, 5000)
    peer.setsockopt(zmq.RCVHWM, 10)
    peer.connect(runs.view_address(run_id) if who == "viewer" else runs.ingest_address(run_id))
    own = WORLD - 1
    if who == "rank":
        peer.send(encode(messages_of(run_id, own, os.getpid(), 1)[0]))
    for number in range(1, count + 1):
        if who == "viewer":
            message = noise.choice(requests())
        elif who == "rank":
            message = noise.choice(messages_of(run_id, own, os.getpid(), number)[2:-1])
        else:
            rank = noise.randrange(WORLD)
            pid = noise.choice([*pids, os.getpid(), noise.randrange(1, 1 << 22)])
            message = noise.choice(messages_of(run_id, rank, pid, noise.randrange(1, 5000)))
        peer.send_multipart([KINDS[how](noise, message)] * (1 if noise.random() < 0.99 else 3))
        if number % 64 == 0:
            while peer.poll(0):
                peer.recv()
    peer.send(b"the last")
    peer.close()
    context.term()


def main() -> None:
    role, *words = sys.argv[1:]
    if role == "honest":
        lasts: list[int] = []
        threading.Thread(target=lambda: lasts.append(int(sys.stdin.readline() or 0)), daemon=True).start()
        Rank(words[0], int(words[1]), int(words[2])).serve(lasts)
    else:
        hostile(words[0], words[1], int(words[2]), int(words[3]), [int(pid) for pid in words[4].split(",")])


if __name__ == "__main__":
    main()
