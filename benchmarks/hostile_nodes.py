"""Peers at the port of a root hub that are no honest node's hub, while honest ranks and an honest node train.

    python benchmarks/hostile_nodes.py                          20,000 messages of each kind
    python benchmarks/hostile_nodes.py --seed 7 --count 300     a quick look

Without keys: bytes that are no ZeroMQ, connections by which nothing is said, frames that say they are of a gigabyte, a
ZeroMQ socket without CURVE, what a node's hub said once more byte by byte. With keys that nobody told the root: many
connections. With the keys of a node that is admitted, as if its hub had been taken over: random and mutated messages,
old bundles again, ranks and processes of other nodes, a frame of 64 MB (ZeroMQ's sender dies of a far larger one), a
message of a gigabyte in small parts. And without a sender of ZeroMQ's, before anything is proven and on a connection
that has joined: frames of 341 MB and of a gigabyte of which every byte comes, and a gigabyte of small frames of a
message without end.

Printed are what the root refused and its memory. Exit code 1 where the recording does not hold of every honest rank
exactly what it told, the hub ended or grew, a viewer waited for more than ten seconds, or an attack was not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import zmq
from hostile_frames import Watch, memory_mb, peer, run_with_hub, wrong
from hostile_peers import STEP_S, Rank, messages_of, mutated, randomly
from ports import free_port

from ddpmon import runs
from ddpmon.hub import curve_keys
from ddpmon.messages import Bye, encode
from ddpmon.messages.nodes import LINK, Bundle, Item, Join, Recorded, Roster, ViewerRequest, decode_to_node
from ddpmon.recording.recording import Recording
from ddpmon.runs import open_files

HONEST_NODE, TAKEN_NODE = 1, 2
LOCAL_RANKS = 2
"""Honest ranks beside the root; the third is on the honest node."""
NODE_PID = 77
GROWTH_MB = 100
WAIT_S = 10.0
BUNDLE_S = 0.25
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE".ljust(54, b"\0") + b"\0"
"""Of ZMTP 3 (rfc.zeromq.org/spec/23), as a client begins."""
COMMAND, MESSAGE, MORE = b"\x06", b"\x02", b"\x03"
"""How a long frame begins: a command, a message, one that is followed by a further part. Its length comes next."""
GIGABYTE = COMMAND + (1 << 30).to_bytes(8, "big")


def pour(raw: socket.socket, megabytes: int, piece: bytes = bytes(1 << 16)) -> None:
    """Send so much, or until nobody takes it any more."""
    with contextlib.suppress(OSError):
        for _ in range((megabytes << 20) // len(piece)):
            raw.sendall(piece)


class Frames:
    """Stands for a rank's socket: keeps what the rank sends for the next bundle."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def send(self, frame: bytes) -> None:
        self.kept.append(frame)


class NodeRank(Rank):
    """An honest rank behind a node's hub."""

    def __init__(self, run_id: str, rank: int, began_us: int) -> None:
        super().__init__(run_id, rank, began_us)
        self._socket.close()
        self.frames = Frames()
        self._socket = self.frames  # type: ignore[assignment]  # it sends, and is asked for nothing else
        self.pid = NODE_PID


def connected(port: int, server: str, keys: curve_keys.Keys | None) -> zmq.Socket[bytes]:
    """A socket to the root. keys: None: without CURVE."""
    link = zmq.Context.instance().socket(zmq.DEALER)
    link.setsockopt(zmq.LINGER, 2000)
    link.setsockopt(zmq.SNDTIMEO, 5000)
    if keys is not None:
        link.curve_publickey, link.curve_secretkey = keys.public.encode(), keys.secret.encode()
        link.curve_serverkey = server.encode()
    link.connect(f"tcp://127.0.0.1:{port}")
    return link


def honest_node(run_id: str, began_us: int, port: int, server: str, keys: curve_keys.Keys) -> None:
    """A node's hub with one rank, until standard input has a last step."""
    lasts: list[int] = []
    threading.Thread(target=lambda: lasts.append(int(sys.stdin.readline())), daemon=True).start()
    rank = NodeRank(run_id, LOCAL_RANKS, began_us)
    os.getpid = lambda: NODE_PID  # its pid is one of that node's
    link = connected(port, server, keys)
    link.send(encode(Join(LINK, "honest", "node1")))
    link.send(encode(Roster([rank.hello()])))
    bundles: dict[int, Bundle] = {}
    seq = 0
    while not lasts or rank._step < lasts[0]:
        rank.tell(lasts[0] if lasts else float("inf"))
        seq = send_bundle(link, bundles, seq, rank.frames.kept)
        hear_recorded(link, bundles, BUNDLE_S)
    seq = send_bundle(link, bundles, seq, [encode(Bye(LOCAL_RANKS, NODE_PID, rank._seq))])
    deadline = time.monotonic() + 30
    while bundles and time.monotonic() < deadline:
        hear_recorded(link, bundles, 0.2)
    print(json.dumps({"steps": rank._step, "unacknowledged": len(bundles)}), flush=True)


def send_bundle(link: zmq.Socket[bytes], bundles: dict[int, Bundle], seq: int, frames: list[bytes]) -> int:
    seq += 1
    items = [Item(NODE_PID, frame) for frame in frames]
    frames.clear()
    bundles[seq] = Bundle(seq, min([*bundles, seq]), time.monotonic_ns() // 1000, items=items)
    link.send(encode(bundles[seq]))
    return seq


def hear_recorded(link: zmq.Socket[bytes], bundles: dict[int, Bundle], seconds: float) -> None:
    end = time.monotonic() + seconds
    while link.poll(max(0.0, end - time.monotonic()) * 1e3):
        message = decode_to_node(link.recv())
        if isinstance(message, Recorded):
            for seq in [seq for seq in bundles if seq <= message.seq]:
                del bundles[seq]


class Attack:
    """The attacks, each a method. keys: of the node that was taken over."""

    def __init__(self, run_id: str, port: int, server: str, keys: curve_keys.Keys, count: int, seed: int) -> None:
        self.run_id, self.port, self.server, self.keys, self.count = run_id, port, server, keys, count
        self.noise = random.Random(seed)

    def no_zeromq(self) -> None:
        for _ in range(max(1, self.count // 100)):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5) as raw:
                raw.settimeout(0.05)
                raw.sendall(self.noise.choice((b"", GREETING, GREETING + GIGABYTE)))
                raw.sendall(self.noise.randbytes(self.noise.choice((1, 64, 5000))))
                raw.recv(100)

    def held_open(self) -> None:
        """Connections by which nothing is said, as fast as they can be had."""
        with contextlib.ExitStack() as held:
            for _ in range(min(self.count, open_files.most() - 100)):
                held.enter_context(socket.create_connection(("127.0.0.1", self.port), WAIT_S))
            time.sleep(2.0)

    def no_keys(self) -> None:
        link = connected(self.port, self.server, None)
        self._flood(link, lambda: self.noise.randbytes(200))

    def unknown_keys(self) -> None:
        for _ in range(max(3, self.count // 500)):
            link = connected(self.port, self.server, curve_keys.fresh())
            link.send(encode(Join(LINK, "x", "impostor")))
            link.poll(100)
            link.close(linger=0)

    def random_messages(self) -> None:
        self._flood(self._taken(), lambda: randomly(self.noise, Join(LINK, "x", "y")))

    def mutated_messages(self) -> None:
        message = self._bundles_of_others(7)
        self._flood(self._taken(), lambda: mutated(self.noise, self.noise.choice(message)))

    def replays(self) -> None:
        """A bundle once more and again, and its steps under later numbers."""
        link = self._taken()
        old = self._bundles_of_others(5)[0]
        self._flood(link, lambda: encode(old))

    def other_nodes(self) -> None:
        """As if it spoke for ranks of the root and of the honest node."""
        link = self._taken()
        seqs = iter(range(100, 1 << 40))
        self._flood(link, lambda: encode(self.noise.choice(self._bundles_of_others(next(seqs)))))

    def giant(self) -> None:
        link = self._taken()
        link.send(bytes(64 << 20), copy=False)
        time.sleep(1.0)
        link.close(linger=0)

    def many_parts(self, megabytes: int) -> None:
        """One message of so many parts; ZeroMQ sends none of them before it has the last."""
        link = self._taken()
        part = bytes(64_000)
        for _ in range(megabytes << 20 >> 16):
            link.send(part, zmq.SNDMORE, copy=False)
        link.send(b"")
        time.sleep(2.0)
        link.close(linger=0)

    def played_again(self) -> None:
        """What the taken node's hub said on its way in, byte by byte, on connections of its own."""
        with self._through_us() as (_, said):
            pass
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", self.port), 5) as raw, contextlib.suppress(OSError):
                raw.settimeout(0.5)
                raw.sendall(said)
                raw.recv(65_536)

    def endless_frames(self, megabytes: int) -> None:
        """A frame of a third of that, and of all of it, of which every byte comes.

        Before anything is proven, and behind what the taken node's hub said on its way in.
        """
        for size in (megabytes // 3, megabytes):
            head = (size << 20).to_bytes(8, "big")
            with socket.create_connection(("127.0.0.1", self.port), 5) as raw:
                raw.sendall(GREETING + COMMAND + head)
                pour(raw, size)
            with self._through_us() as (theirs, _):
                theirs.sendall(MESSAGE + head)
                pour(theirs, size)

    def endless_parts(self, megabytes: int) -> None:
        """Small frames of a message without end, all in clear: before anything is proven, and behind what was."""
        part = MORE + (60_000).to_bytes(8, "big") + bytes(60_000)
        with socket.create_connection(("127.0.0.1", self.port), 5) as raw:
            raw.sendall(GREETING)
            pour(raw, megabytes, part)
        with self._through_us() as (theirs, _):
            pour(theirs, megabytes, part)

    @contextlib.contextmanager
    def _through_us(self) -> Iterator[tuple[socket.socket, bytearray]]:
        """A connection of the taken node's hub that goes through this process, once it has joined; what it had said."""
        with socket.create_server(("127.0.0.1", 0)) as between:
            link = connected(between.getsockname()[1], self.server, self.keys)
            link.send(encode(Join(LINK, "taken", "node2")))
            ours, _ = between.accept()
            theirs = socket.create_connection(("127.0.0.1", self.port))
            said = bytearray()
            with ours, theirs:
                for end in (ours, theirs):
                    end.settimeout(0.02)
                deadline = time.monotonic() + WAIT_S
                while not link.poll(0):
                    assert time.monotonic() < deadline, "the root does not answer the taken node"
                    for source, target in ((ours, theirs), (theirs, ours)):
                        with contextlib.suppress(TimeoutError):
                            data = source.recv(65_536)
                            target.sendall(data)
                            said += data if source is ours else b""
                theirs.settimeout(5)
                yield theirs, said
            link.close(linger=0)

    def _taken(self) -> zmq.Socket[bytes]:
        link = connected(self.port, self.server, self.keys)
        link.send(encode(Join(LINK, "taken", "node2")))
        return link

    def _flood(self, link: zmq.Socket[bytes], make: Callable[[], bytes]) -> None:
        with contextlib.suppress(zmq.Again):
            for number in range(self.count):
                link.send(make())
                if number % 100 == 0:
                    while link.poll(0):
                        link.recv()
        time.sleep(0.3)

    def _bundles_of_others(self, seq: int) -> list[Bundle | Roster | ViewerRequest]:
        """What the hub of the taken node may send of ranks that are not its own."""
        pids = (NODE_PID, os.getpid(), 1)
        items = [
            Item(pid, encode(message), left=bool(self.noise.random() < 0.5))
            for pid in pids
            for rank in range(LOCAL_RANKS + 1)
            for message in messages_of(self.run_id, rank, pid, seq)
        ]
        hellos = [messages_of(self.run_id, rank, pid, seq)[0] for pid in pids for rank in range(LOCAL_RANKS + 1)]
        for number, hello in enumerate(hellos):
            hello.through = number % 3  # type: ignore[attr-defined]  # it is a Hello
        bundle = Bundle(seq, 1, time.monotonic_ns() // 1000, items=self.noise.sample(items, len(items)))
        gone = Bundle(seq, 1, 5, items=[Item(pid, b"") for pid in pids])
        return [bundle, gone, Roster(hellos), ViewerRequest(b"v", b"\x93nonsense")]  # type: ignore[arg-type]


FLOODS = (
    "no_zeromq", "held_open", "no_keys", "played_again", "unknown_keys",
    "random_messages", "mutated_messages", "replays", "other_nodes",
)  # fmt: skip
LARGE = ("giant", "many_parts", "endless_frames", "endless_parts")
COUNTED = (
    "no_zeromq",
    "held_open",
    "no_keys",
    "endless_frames",
    "endless_parts",
    "unknown_keys",
    "random_messages",
    "mutated_messages",
    "other_nodes",
)


def ours(*arguments: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__)), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def attack(count: int, seed: int, giant_mb: int) -> list[str]:
    """All of it; returns what is not as it must be."""
    root, honest, taken = (curve_keys.fresh() for _ in range(3))
    port = free_port()
    root.addresses = [f"tcp://127.0.0.1:{port}"]
    root.admitted = {honest.public: HONEST_NODE, taken.public: TAKEN_NODE}
    with run_with_hub(lambda run: root.save(runs.run_dir(run.id))) as (run, hub):
        as_rank = [os.environ | {"DDPMON_RUN_ID": run.id, "RANK": str(rank)} for rank in range(LOCAL_RANKS)]
        began_us = time.monotonic_ns() // 1000
        ranks = [peer("honest", run.id, rank, began_us, env=as_rank[rank]) for rank in range(LOCAL_RANKS)]
        place = (port, root.public)
        ranks.append(ours("--honest", run.id, began_us, *place, honest.public, honest.secret))
        watch = Watch(run.id, hub.pid)
        watch.start()
        while watch.ranks != set(range(LOCAL_RANKS + 1)):
            time.sleep(0.05)
        watch.longest_s = 0.0
        before = memory_mb(hub.pid)
        watch.most_mb = 0.0
        trouble = []
        for number, kind in enumerate((*FLOODS, *LARGE)):
            counted = list(watch.refused)
            spoken = ours("--attack", kind, run.id, *place, taken.public, taken.secret, count, seed + number, giant_mb)
            if spoken.wait():
                trouble.append(f"{kind}: the attack itself failed")
            deadline = time.monotonic() + 3
            while kind in COUNTED and watch.refused == counted and time.monotonic() < deadline:
                time.sleep(0.05)
            if kind in COUNTED and watch.refused == counted:
                trouble.append(f"{kind}: nothing was counted")
            print(f"{kind:16} hub {memory_mb(hub.pid):.0f} MB", flush=True)
        most = max(watch.most_mb, memory_mb(hub.pid))
        last = round((time.monotonic_ns() // 1000 - began_us) / 1e6 / STEP_S)
        for rank in ranks:
            print(last, file=rank.stdin, flush=True)
        told = [json.loads(rank.communicate()[0]) for rank in ranks]
        watch.done.set()
        watch.join()
        if hub.poll() is not None:
            trouble.append(f"the hub ended with {hub.returncode}")
        ended = runs.update(run.id, ended_at=time.time(), exit_code=0)
        hub.terminate()
        hub.wait(300)
        if log := (runs.run_dir(run.id) / "logs" / "hub.log").read_text():
            trouble.append(f"the hub said: {log[-2000:]}")
        print(f"refused: {'; '.join(watch.refused)}")
        print(f"hub {before:.0f} MB before, at most {most:.0f} MB; a viewer waited at most {watch.longest_s:.1f} s")
        with Recording(ended) as recording:
            cut = [event.text for event in recording.events(500) if "was cut off" in event.text]
        print("; ".join(cut))
        if not cut:
            trouble.append("many_parts: nobody was cut off")
        if most - before > GROWTH_MB:
            trouble.append(f"the hub grew by {most - before:.0f} MB")
        if watch.longest_s > WAIT_S:
            trouble.append(f"a viewer waited {watch.longest_s:.1f} s")
        return trouble + wrong(ended, told)


def main() -> None:
    if sys.argv[1:2] == ["--honest"]:
        run_id, began_us, port, server, public, secret = sys.argv[2:]
        honest_node(run_id, int(began_us), int(port), server, curve_keys.Keys(public, secret))
        return
    if sys.argv[1:2] == ["--attack"]:
        kind, run_id, port, server, public, secret, count, seed, more = sys.argv[2:]
        open_files.allow_most()
        made = Attack(run_id, int(port), server, curve_keys.Keys(public, secret), int(count), int(seed))
        getattr(made, kind)(*([int(more)] if kind in LARGE[1:] else []))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="messages of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--giant", type=int, default=1024, metavar="MB", help="size of the largest message")
    args = parser.parse_args()
    if trouble := attack(args.count, args.seed, args.giant):
        raise SystemExit("\n".join(["NOT AS IT MUST BE:", *trouble]))
    print("every honest rank's numbers are exact")


if __name__ == "__main__":
    main()
