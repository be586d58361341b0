"""Part of hostile.py: invalid frames at a real hub over real sockets, while honest ranks report their steps.

Kinds: random bytes; valid frames in which bytes were changed; valid frames with a field at an extreme; each from a
process that is no rank, in the names of honest ranks too. Then mutated and extreme frames of a process that is a rank
itself, and the same three kinds at the viewers' socket.

Each peer of the hub is a process of its own:

    python benchmarks/hostile_frames.py honest RUN RANK BEGAN_US            until its standard input has a last step
    python benchmarks/hostile_frames.py hostile RUN KIND COUNT SEED PIDS    PIDS: of honest ranks, with commas
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zmq
from launching import hub_log, make_run, own_home, start_hub

from ddpmon import runs
from ddpmon.messages import (
    MAX_STEP,
    PROTOCOL,
    STAGE_TRAINING,
    SYNC_GRADIENTS,
    Ack,
    Ask,
    Batch,
    Bucket,
    Bye,
    Collective,
    Digest,
    Failure,
    Hello,
    Layout,
    Next,
    Pause,
    Sample,
    Scalar,
    SeriesRequest,
    Stack,
    Step,
    Sync,
    TimelineRequest,
    Welcome,
    Wish,
    decode_snapshot,
    decode_to_rank,
    encode,
)
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recording import Recording

COUNT = 100_000
"""Frames of each kind."""
FROM = ("random", "mutated", "extreme", "rank-mixed", "viewer-random", "viewer-mutated", "viewer-extreme")
WORLD = 4
STEP_S = 0.01
SENDS_S = 0.1
PATIENCE_S = 60.0
"""Time without an acknowledgement after which an honest rank gives up: a busy machine has a slow hub."""
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
        self._socket.send(bye)
        left, patience = len(self._held), time.monotonic() + PATIENCE_S
        while self._held and time.monotonic() < patience:
            self.hear(0.1)
            if len(self._held) < left:
                left, patience = len(self._held), time.monotonic() + PATIENCE_S
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
    inspected = SeriesRequest(ranks=((0, 0),))
    wish = Wish(SeriesRequest(), TimelineRequest(), "window", inspected, True, SeriesRequest(("loss",)))
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


def peer(*words: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def hunt(seed: int, numbers: Sequence[int]) -> list[str]:
    """Send one frame of each kind per number, and return each fault of the hub, the viewers and the recording."""
    with own_home(), contextlib.ExitStack() as ends:
        run = make_run("attacked", WORLD)
        hub = start_hub(run)
        ends.callback(hub.wait)
        ends.callback(hub.kill)
        count = len(numbers)
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
        log = hub_log(run).read_text()
        print(f"refused: {'; '.join(watch.refused)}")
        print(f"hub at most {most:.0f} MB")
        print(f"a viewer waited at most {watch.longest_s:.1f} s")
        if log:
            trouble.append(f"the hub said: {log[-2000:]}")
        trouble += differences(ended, told)
        print(*trouble, sep="\n")
        return trouble


def differences(run: runs.Run, told: list[dict[str, int]]) -> list[str]:
    """Return where the recording differs from what the honest ranks sent."""
    trouble = []
    with Recording(run) as recording:
        ids = {process.rank: process.id for process in recording.processes() if process.attempt == 0}
        for rank, facts in enumerate(told):
            steps = recording.steps(ids[rank], 1, MAX_STEP)
            lengths = [step.length_us for step in steps] or [0]
            numbers, samples = (sum(getattr(step, name) for step in steps) for name in ("step", "samples"))
            found, made = (len(steps), numbers, min(lengths), max(lengths), samples), facts["steps"]
            length = round(STEP_S * 1e6)
            expected = (made, made * (made + 1) // 2, length, length, 8 * made)
            print(f"rank {rank}: told {made:,} steps; recorded {len(steps):,}")
            if found != expected or facts["unacknowledged"]:
                trouble.append(f"rank {rank}: {found}, and told was {expected}; {facts['unacknowledged']} unanswered")
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
    role, *words = sys.argv[1:]
    if role == "honest":
        lasts: list[int] = []
        threading.Thread(target=lambda: lasts.append(int(sys.stdin.readline() or 0)), daemon=True).start()
        Rank(words[0], int(words[1]), int(words[2])).serve(lasts)
    else:
        hostile(words[0], words[1], int(words[2]), int(words[3]), [int(pid) for pid in words[4].split(",")])


if __name__ == "__main__":
    main()
