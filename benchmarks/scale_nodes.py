"""Made-up hubs of nodes that tell a real root what real ones would, over TCP with CURVE: thousands of ranks.

    python benchmarks/scale_nodes.py PLAN     play a plan (a file that scale.py writes) until its end

Each node is a real `Uplink` with its own keys and connection. What its ranks tell is made as rows for all of them at
once: thousands of ranks are too much for one core record by record. They step as one world does: each step is as long
as the slowest rank's own time and the transfer behind it. Every node's monotonic clock is hours off the others'. What
happens besides is in the plan: a rank that becomes late, a node whose link is cut for a while, links that lose one
bundle in so many, all ranks restarted once. At the end every rank says goodbye, and what was said is written down.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import zmq
from numpy.typing import NDArray
from scale_plan import Plan, Said

from ddpmon.analysis.steps.table import HAS_LOSS, HAS_RATE, PHASES, ROW
from ddpmon.hub.bundles import Closed, in_twos
from ddpmon.hub.uplink import SPARSE_S, Uplink
from ddpmon.messages import (
    PROTOCOL,
    STAGE_TRAINING,
    SYNC_GRADIENTS,
    Batch,
    Bye,
    Hello,
    Sample,
)
from ddpmon.messages.nodes import Packed
from ddpmon.recording.node_blocks import pack_rows

PHASES_SHARE = (0.08, 0.22, 0.42, 0.03, 0.02)
"""The share of a step that each of the five phases takes on a rank of normal speed."""
NOISE = 0.02
TRANSFER_SHARE = 0.1
LATE_SHARE = 0.12
"""Extra share of a step that the late rank spends in data."""
HOUR_US = 3_600_000_000
SAMPLE_S = 1.0
SEND_S = 0.34
"""Interval at which a rank sends."""
TICK_S = 0.05
TURN_S, FEW = 0.5, 64
"""Interval at which each node reads the root's messages where there are more than `FEW`; else it reads at each tick."""
KEPT_S = 12.0
"""Seconds that a node may be behind with its steps."""
FLUSH_S = 60.0
"""The most that the root may take to have all of it at the end."""


class World:
    """The steps of all ranks, the same in every process that plays a part of them."""

    def __init__(self, plan: Plan, attempt: int, start_us: int) -> None:
        self._plan = plan
        self._rng = np.random.default_rng(100 + attempt)
        period_us = 1e6 / plan.steps_per_s
        self._phases_us = np.array(PHASES_SHARE) * period_us
        self._transfer_us = TRANSFER_SHARE * period_us
        self._late_us = round(LATE_SHARE * period_us)
        self._end_us = start_us
        self._late_at = start_us + round(plan.late_after_s * 1e6)
        self.step = 0
        self.late_since: int | None = None
        self.mended_us = 0
        self._next: tuple[np.ndarray, int, int] | None = None
        self.step_us: list[int] = []
        self.mended_us_of: list[int] = []
        self.ends_us: list[int] = []

    def next(self, now_us: int) -> tuple[int, int, int, np.ndarray] | None:
        """The next step once it has ended: its number, end and length, and [R, 5] phases; all in µs."""
        if self._next is None:
            noise = 1 + NOISE * np.abs(self._rng.standard_normal((self._plan.world_size, 5)))
            own = (self._phases_us * noise).astype(np.int64)
            mended = int(own.sum(axis=1).max())
            late = self._plan.late_rank
            if late is not None and self._end_us >= self._late_at:
                self.late_since = self.late_since or self.step + 1
                own[late, 0] += self._late_us
            transfer = int(self._transfer_us * self._rng.uniform(0.9, 1.1))
            self._next = own, int(own.sum(axis=1).max()) + transfer, mended + transfer
        own, length, mended = self._next
        if self._end_us + length > now_us:
            return None
        self._next = None
        self._end_us += length
        self.step += 1
        self.step_us.append(length)
        self.mended_us_of.append(mended)
        self.ends_us.append(self._end_us)
        return self.step, self._end_us, length, own


class Link(Uplink):
    """An uplink that takes blocks ready-made, counts what it sends, and loses some of it."""

    sent_bytes = bundles = 0
    lossy = cut = False

    def add_block(self, block: bytes, batches: int, now: float) -> None:
        """Take what ranks sent, packed: as a bundle of its own behind what was added before."""
        self._bundles.close()
        self._bundles.append(Closed(blocks=[Packed(0, block)], batches=batches))
        self._sent_at = now  # no heartbeat beside it

    @property
    def every_s(self) -> float:
        """Return how often the root wants bundles."""
        return self._every_s

    def _send(self, message: object) -> bool:
        self.sent_bytes += len(msgspec.msgpack.encode(message))
        self.bundles += 1
        if self.cut or (self.lossy and self.bundles % 10 == 0):
            return True  # on its way, and lost
        return super()._send(message)  # type: ignore[arg-type]


class Node:
    """The hub of a node with its ranks."""

    def __init__(self, context: zmq.Context, plan: Plan, number: int) -> None:
        """number: from 0."""
        self.plan, self.number = plan, number
        self.host = f"node{number:04}"
        self.registry = SimpleNamespace(host=self.host, seats={})
        self.offset_us = (number % 97) * HOUR_US
        self.link = Link(context, plan.keys[number], self.registry, f"e{number}", *(_nothing,) * 4)  # type: ignore[arg-type]
        self.link.lossy = plan.lossy_every > 0 and number % plan.lossy_every == plan.lossy_every - 1
        self.link.meet(plan.root)
        self.seq = self.sent_step = 0
        """Batches sent by each of its ranks, and the last step in them."""
        self._sent_at = self._sampled_at = 0.0

    def begin(self, attempt: int) -> None:
        """Its ranks start, again perhaps."""
        self.seq = self.sent_step = 0
        for local in range(self.plan.per_node):
            rank = self.number * self.plan.per_node + local
            pid = 1000 + local + attempt * 100
            hello = Hello(
                PROTOCOL, "theirs", rank, local, self.plan.world_size, self.number + 1, self.host, pid, STAGE_TRAINING,
                restart=attempt, device=f"cuda:{local}", device_name="Made-up 80 GB", backend="nccl",
                torch_version="2.13.0", parameters=124_000_000, gradient_bytes=1 << 26, cores=128, compute_threads=8,
            )  # fmt: skip
            process = SimpleNamespace(hello=hello, left=False)
            self.registry.seats[rank] = process
            self.link.add(process, hello)

    def send(self, rows: NDArray[np.uint8], step: int, now: float, shares: Shares) -> None:
        """Send the data of its ranks. rows: [ranks, steps, bytes] since the last call. step: the last one."""
        merged = max(0, round((now - self._sent_at) / SEND_S) - 1) if self._sent_at else 0
        times = [now] if now - self._sampled_at >= SAMPLE_S else []
        while times and times[0] - self._sampled_at >= 2 * SAMPLE_S and self._sampled_at:
            times.insert(0, times[0] - SAMPLE_S)
        self._sent_at, self._sampled_at = now, times[-1] if times else self._sampled_at
        self.seq += 1 + merged
        self.sent_step = step
        at_us = _us(now) + self.offset_us
        batches = []
        for process in self.registry.seats.values():
            hello = process.hello
            samples = [a_sample(_us(each) + self.offset_us, shares.next()) for each in times]
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
        for process in self.registry.seats.values():
            hello = process.hello
            self.link.add(process, Bye(hello.rank, hello.pid, self.seq))
            process.left = True


class Shares:
    """Random shares, round and round: drawing them anew would cost as much as all else of a sample."""

    def __init__(self) -> None:
        self._lists = np.random.default_rng(7).random((4093, 9)).tolist()
        self._place = 0

    def next(self) -> list[float]:
        self._place = (self._place + 1) % len(self._lists)
        return self._lists[self._place]


def _nothing(*_: object) -> None:
    """Nobody asks these ranks anything."""


def _us(seconds: float) -> int:
    return int(seconds * 1e6)


def a_sample(time_us: int, share: Sequence[float]) -> Sample:
    return Sample(
        time_us, 90 + 20 * share[0], int(2e9 + 1e7 * share[1]), 80 + 20 * share[2], int(6e10 + 1e9 * share[3]),
        80 << 30, 300 + 100 * share[4], 60 + 10 * share[5], 1700 + 50 * share[6], 0.01 * share[7], 0.0, 120 * share[8],
        1e6 * share[8], 1e5 * share[0], 40, "", 4, True, 1e8 * share[1], 1e8 * share[2],
    )  # fmt: skip


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
        """The last steps of all ranks, a step in the place of its number."""
        self._rows["samples"], self._rows["learning_rate"], self._rows["has"] = 64, 1e-3, HAS_LOSS | HAS_RATE
        self._rows["backwards"], self._rows["sync_count"] = 1, 1
        self._rows["syncs"]["kind"][..., 0] = SYNC_GRADIENTS
        self._rows["syncs"]["payload_bytes"][..., 0] = 1 << 26

    def connect(self) -> None:
        """Until the root has joined every node."""
        deadline = time.monotonic() + 120
        while not all(node.link.reached(time.monotonic()) for node in self.nodes):
            for node in self.nodes:
                self._turn(node, time.monotonic())
            time.sleep(0.02)
            if time.monotonic() > deadline:
                raise SystemExit("the root does not answer every node")

    def play(self) -> None:
        plan = self.plan
        before = began = time.monotonic()
        attempt, world = 0, self._begin(0)
        sent = turned = 0.0  # of all nodes, round after round: one after the other, as real ones do
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
        return World(self.plan, attempt, _us(time.monotonic()))

    def _add(self, number: int, end_us: int, length: int, phases: np.ndarray) -> None:
        first = self.plan.first * self.plan.per_node
        mine = phases[first : first + self.plan.nodes * self.plan.per_node]
        own = mine.sum(axis=1)
        if number > 1:
            np.minimum(self._least, own, out=self._least)
            np.maximum(self._most, own, out=self._most)
        rows = self._rows[number % len(self._rows)]
        rows["step"], rows["end_us"], rows["length_us"] = number, end_us, length
        for place, name in enumerate(PHASES):
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
            node.link.receive(now)
        node.link.turn(now, stopping=False)

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
            open_nodes = [node for node in open_nodes if not node.link.finish(time.monotonic())]
            time.sleep(0.05)
        said = self.said
        said.left_over = len(open_nodes)
        said.records = [world.step] * (self.plan.nodes * self.plan.per_node)
        said.own_us = list(zip(self._least.tolist(), self._most.tolist(), strict=True))
        said.sent_bytes = sum(node.link.sent_bytes for node in self.nodes)
        said.bundles = sum(node.link.bundles for node in self.nodes)
        said.late_since = world.late_since
        said.step_us, said.mended_us, said.ends_us = world.step_us, world.mended_us_of, world.ends_us
        draft = Path(f"{self.plan.said}.new")
        draft.write_bytes(msgspec.json.encode(said))
        draft.replace(self.plan.said)


def main(path: str) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection takes several files
    player = Player(msgspec.json.decode(Path(path).read_bytes(), type=Plan))
    player.connect()
    Path(f"{path}.connected").touch()
    player.play()
    os._exit(0)  # thousands of connections are let go by the kernel


if __name__ == "__main__":
    main(sys.argv[1])
