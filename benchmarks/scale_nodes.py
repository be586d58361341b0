"""Synthetic node hubs that send a real root the messages of real ones, over TCP with CURVE: thousands of ranks.

    python benchmarks/scale_nodes.py PLAN     play a plan (a file that scale.py writes) until its end

Each node is a real `Uplink` with its own keys and connection. The records of its ranks are created as rows for all
ranks at once: record by record, thousands of ranks are too much for one core. All ranks step together: each step is as
long as the slowest rank's own time and the transfer after it. Every node's monotonic clock is hours off from the
others. The plan says what else happens: a rank that becomes late, a node whose link is cut for a while, links that lose
one bundle in so many, a restart of all ranks. At the end every rank sends its goodbye, and the played data is written
to a file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import zmq
from numpy.typing import NDArray
from synthetic_ranks import World, allow_many_files, made_up_hello, made_up_sample

from ddpmon.analysis.steps.table import HAS_LOSS, HAS_RATE, PHASE_FIELDS, ROW
from ddpmon.hub.bundles import Closed, in_twos
from ddpmon.hub.curve_keys import Keys
from ddpmon.hub.uplink import SPARSE_S, Uplink
from ddpmon.messages import STAGE_TRAINING, SYNC_GRADIENTS, Batch, Bye, Card
from ddpmon.messages.nodes import Packed
from ddpmon.recording.node_blocks import pack_rows

HOUR_US = 3_600_000_000
SAMPLE_S = 1.0
SEND_S = 0.34
"""Interval, in seconds, at which a rank sends."""
TICK_S = 0.05
TURN_S, FEW = 0.5, 64
"""Interval, in seconds, at which each node reads the root's messages if there are more than `FEW` nodes; otherwise a
node reads at each tick."""
KEPT_S = 12.0
"""Seconds of steps that are stored, which is the longest delay that a node may have."""
FLUSH_S = 60.0
"""Longest time, in seconds, for the root to have all data at the end."""


class Plan(msgspec.Struct):
    """The world to play."""

    root: Card
    keys: list[Keys]
    """Keys of each node's hub, beginning with node 1."""
    first: int
    """The first node that this process plays, counted from 0."""
    nodes: int
    """Number of nodes that this process plays."""
    per_node: int
    world_size: int
    steps_per_s: float
    seconds: float
    late_rank: int | None = None
    late_after_s: float = 0.0
    cut_node: int | None = None
    """Node whose link is cut from `cut_s[0]` to `cut_s[1]`."""
    cut_s: tuple[float, float] = (0.0, 0.0)
    lossy_every: int = 0
    """Every n-th node loses one bundle in ten; 0: none does."""
    restart_after_s: float | None = None
    said: str = ""
    """Path of the file for the result (`Said`)."""


class Said(msgspec.Struct):
    """The steps that a process played, to compare with the root's account of them."""

    records: list[int] = msgspec.field(default_factory=list)
    """Number of steps of each of its ranks in the last attempt."""
    own_us: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """The least and the largest own time of each of its ranks in the last attempt, from the second step on."""
    sent_bytes: int = 0
    late_since: int | None = None
    """The first step in which the late rank is late."""
    step_us: list[int] = msgspec.field(default_factory=list)
    """Length of each step of the last attempt."""
    mended_us: list[int] = msgspec.field(default_factory=list)
    """Length that each step would have had without the late rank's delay."""
    ends_us: list[int] = msgspec.field(default_factory=list)
    """End of each step, in µs of this machine's CLOCK_MONOTONIC."""
    behind_s: float = 0.0
    """Longest delay of this process in seconds: if it is long, its measurements of the root are worthless."""
    left_over: int = 0
    """Number of nodes whose data the root had not recorded completely at the end."""


class Link(Uplink):
    """An uplink that accepts ready-made blocks, counts what it sends, and loses some of it."""

    sent_bytes = bundles = 0
    lossy = cut = False

    def add_block(self, block: bytes, batches: int, now: float) -> None:
        """Add packed batches of ranks, as a bundle of its own after what was added before."""
        self._bundles.make_bundles()
        self._bundles.append_bundle(Closed([Packed(block)], batches))
        self._sent_at = now  # Suppresses an additional heartbeat.

    @property
    def every_s(self) -> float:
        """Return the interval, in seconds, at which the root wants bundles."""
        return self._every_s

    def _send(self, message: object) -> bool:
        self.sent_bytes += len(msgspec.msgpack.encode(message))
        self.bundles += 1
        if self.cut or (self.lossy and self.bundles % 10 == 0):
            return True  # The message is sent, and lost on the way.
        return super()._send(message)  # type: ignore[arg-type]


class Node:
    """The hub of a node with its ranks."""

    def __init__(self, context: zmq.Context, plan: Plan, number: int) -> None:
        """Create the node with a number, counted from 0."""
        self.plan, self.number = plan, number
        self.host = f"node{number + 1:04}"
        self.registry = SimpleNamespace(host=self.host, process_of_rank={})
        self.offset_us = (number % 97) * HOUR_US
        self.link = Link(context, plan.keys[number], self.registry, f"e{number}", *(_nothing,) * 4)  # type: ignore[arg-type]
        self.link.lossy = plan.lossy_every > 0 and number % plan.lossy_every == plan.lossy_every - 1
        self.link.set_root(plan.root)
        self.seq = self.sent_step = 0
        """Number of batches sent by each of its ranks, and the last step in them."""
        self._sent_at = self._sampled_at = 0.0

    def begin(self, attempt: int) -> None:
        """Start its ranks, or restart them."""
        self.seq = self.sent_step = 0
        for rank in range(self.number * self.plan.per_node, (self.number + 1) * self.plan.per_node):
            pid = 1000 + rank % self.plan.per_node + attempt * 100
            hello = made_up_hello("theirs", rank, self.plan.world_size, self.number + 1, pid, restart=attempt)
            process = SimpleNamespace(hello=hello, left=False)
            self.registry.process_of_rank[rank] = process
            self.link.queue_message(process, hello)

    def send(self, rows: NDArray[np.uint8], step: int, now: float, shares: Shares) -> None:
        """Send the data of its ranks.

        Args:
            rows: [ranks, steps, bytes] since the last call.
            step: The last step.
            now: Monotonic time in seconds.
            shares: Random numbers for the samples.
        """
        merged = max(0, round((now - self._sent_at) / SEND_S) - 1) if self._sent_at else 0
        times = [now] if now - self._sampled_at >= SAMPLE_S else []
        while times and times[0] - self._sampled_at >= 2 * SAMPLE_S and self._sampled_at:
            times.insert(0, times[0] - SAMPLE_S)
        self._sent_at, self._sampled_at = now, times[-1] if times else self._sampled_at
        self.seq += 1 + merged
        self.sent_step = step
        at_us = _us(now) + self.offset_us
        batches = []
        for process in self.registry.process_of_rank.values():
            hello = process.hello
            samples = [made_up_sample(_us(each) + self.offset_us, shares.next()) for each in times]
            if self.link.every_s >= SPARSE_S:
                samples = in_twos(samples)
            batches.append(
                Batch(hello.rank, hello.pid, self.seq, at_us, STAGE_TRAINING, step, 0, samples=samples,
                      total_steps=50_000, beats=step, merged=merged)
            )  # fmt: skip
        table = np.ascontiguousarray(rows).reshape(-1).view(ROW)
        table["end_us"] += self.offset_us
        self.link.add_block(pack_rows(batches, [rows.shape[1]] * len(batches), table), len(batches), now)

    def leave(self) -> None:
        for process in self.registry.process_of_rank.values():
            hello = process.hello
            self.link.queue_message(process, Bye(hello.rank, hello.pid, self.seq))
            process.left = True


class Shares:
    """Random shares that repeat: drawing new ones would cost as much as the rest of a sample."""

    def __init__(self) -> None:
        self._lists = np.random.default_rng(7).random((4093, 9)).tolist()
        self._place = 0

    def next(self) -> list[float]:
        self._place = (self._place + 1) % len(self._lists)
        return self._lists[self._place]


def _nothing(*_: object) -> None:
    """Ignore requests to the ranks."""


def _us(seconds: float) -> int:
    return int(seconds * 1e6)


class Player:
    """Plays the nodes of one process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        context = zmq.Context(io_threads=1)
        context.set(zmq.MAX_SOCKETS, 2 * plan.nodes + 64)
        self.nodes = [Node(context, plan, plan.first + place) for place in range(plan.nodes)]
        self._rng, self._shares = np.random.default_rng(7), Shares()
        self.said = Said()
        count = plan.nodes * plan.per_node
        self._least, self._most = np.full(count, 1 << 60), np.zeros(count, np.int64)
        self._rows = np.zeros((max(16, round(KEPT_S * plan.steps_per_s)), count), ROW)
        """The last steps of all ranks; a step's row is its number modulo the number of rows."""
        self._rows["samples"], self._rows["learning_rate"], self._rows["has"] = 64, 1e-3, HAS_LOSS | HAS_RATE
        self._rows["backwards"], self._rows["sync_count"] = 1, 1
        self._rows["syncs"]["kind"][..., 0] = SYNC_GRADIENTS
        self._rows["syncs"]["payload_bytes"][..., 0] = 1 << 26

    def connect(self) -> None:
        """Wait until the root has accepted every node."""
        deadline = time.monotonic() + 120
        while not all(node.link.is_root_reachable(time.monotonic()) for node in self.nodes):
            for node in self.nodes:
                self._turn(node, time.monotonic())
            time.sleep(0.02)
            if time.monotonic() > deadline:
                raise SystemExit("the root does not answer every node")

    def play(self) -> None:
        plan = self.plan
        before = began = time.monotonic()
        attempt, world = 0, self._begin(0)
        sent = turned = 0.0  # Number of nodes that are due so far: they send one after the other.
        sent_to = turned_to = 0
        while (now := time.monotonic()) - began < plan.seconds:
            if plan.restart_after_s is not None and attempt == 0 and now - began >= plan.restart_after_s:
                self._send_all(world.step, now)
                attempt, world = 1, self._begin(1)
            while (step := world.next(_us(now))) is not None:
                self._add(*step)
            every_s = max(node.link.every_s for node in self.nodes[:8])
            sent += (now - before) / every_s * plan.nodes
            turned += (now - before) / (TICK_S if plan.nodes <= FEW else TURN_S) * plan.nodes
            before = now
            self.said.behind_s = max(self.said.behind_s, (sent - sent_to) / plan.nodes * every_s - TICK_S)
            cut = plan.cut_s[0] <= now - began < plan.cut_s[1]
            while sent_to < int(sent):
                node = self.nodes[sent_to % plan.nodes]
                self._send(node, world.step, time.monotonic())
                sent_to += 1
            while turned_to < int(turned):
                node = self.nodes[turned_to % plan.nodes]
                node.link.cut = cut and node.number == plan.cut_node
                self._turn(node, time.monotonic())
                turned_to = max(turned_to + 1, int(turned) - plan.nodes)
            time.sleep(max(0.0, now + TICK_S - time.monotonic()))
        self._end(world)

    def _begin(self, attempt: int) -> World:
        for node in self.nodes:
            node.begin(attempt)
        self._least[:], self._most[:] = 1 << 60, 0
        plan = self.plan
        return World(
            plan.world_size, plan.steps_per_s, _us(time.monotonic()), late_rank=plan.late_rank,
            late_after_s=plan.late_after_s, seed=100 + attempt,
        )  # fmt: skip

    def _add(self, number: int, end_us: int, length: int, phases: np.ndarray) -> None:
        first = self.plan.first * self.plan.per_node
        mine = phases[first : first + self.plan.nodes * self.plan.per_node]
        own = mine.sum(axis=1)
        if number > 1:
            np.minimum(self._least, own, out=self._least)
            np.maximum(self._most, own, out=self._most)
        rows = self._rows[number % len(self._rows)]
        rows["step"], rows["end_us"], rows["length_us"] = number, end_us, length
        for place, name in enumerate(PHASE_FIELDS):
            rows[name] = mine[:, place]
        rows["loss"] = (1 + 3 * np.exp(-number / 400) + 0.1 * self._rng.standard_normal(len(own))).astype(np.float32)
        rows["syncs"]["arrival_us"][:, 0], rows["syncs"]["end_us"][:, 0] = own, length

    def _send(self, node: Node, step: int, now: float) -> None:
        kept = len(self._rows)
        if step - node.sent_step >= kept:
            raise SystemExit(f"this machine is too slow: {node.host} is {step - node.sent_step} steps behind")
        numbers = np.arange(node.sent_step + 1, step + 1) % kept
        begin = (node.number - self.plan.first) * self.plan.per_node
        raw = self._rows.view(np.uint8).reshape(kept, -1, ROW.itemsize)
        node.send(raw[numbers, begin : begin + self.plan.per_node].transpose(1, 0, 2), step, now, self._shares)
        self._turn(node, now)

    def _turn(self, node: Node, now: float) -> None:
        if not node.link.cut:
            node.link.process_root_messages(now)
        node.link.send_due(now, stopping=False)

    def _send_all(self, step: int, now: float) -> None:
        for node in self.nodes:
            self._send(node, step, now)

    def _end(self, world: World) -> None:
        self._send_all(world.step, time.monotonic())
        for node in self.nodes:
            node.link.cut = node.link.lossy = False
            node.leave()
        deadline = time.monotonic() + FLUSH_S
        open_nodes = list(self.nodes)
        while open_nodes and time.monotonic() < deadline:
            open_nodes = [node for node in open_nodes if not node.link.send_remaining(time.monotonic())]
            time.sleep(0.05)
        said = self.said
        said.left_over = len(open_nodes)
        said.records = [world.step] * (self.plan.nodes * self.plan.per_node)
        said.own_us = list(zip(self._least.tolist(), self._most.tolist(), strict=True))
        said.sent_bytes = sum(node.link.sent_bytes for node in self.nodes)
        said.late_since = world.late_since
        said.step_us, said.mended_us, said.ends_us = world.step_us, world.mended_us, world.ends_us
        draft = Path(f"{self.plan.said}.new")
        draft.write_bytes(msgspec.json.encode(said))
        draft.replace(self.plan.said)


def main(path: str) -> None:
    allow_many_files()
    player = Player(msgspec.json.decode(Path(path).read_bytes(), type=Plan))
    player.connect()
    Path(f"{path}.connected").touch()
    player.play()
    os._exit(0)  # The kernel closes thousands of connections faster than this process.


if __name__ == "__main__":
    main(sys.argv[1])
