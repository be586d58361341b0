"""The link between two hubs has delay and loss, is cut and heals, and their clocks have nothing in common."""

import contextlib
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest
import zmq

from ddpmon.hub import curve_keys
from ddpmon.hub.bundles import Bundles
from ddpmon.hub.curve_keys import curve_socket
from ddpmon.hub.downlink import Downlink, Node
from ddpmon.hub.uplink import Uplink
from ddpmon.messages import PROTOCOL, STAGE_TRAINING, Batch, Card, Hello, encode
from ddpmon.store.peers import Peer
from tests.deadlines import Deadline
from tests.hub.conftest import DEADLINE_S
from tests.tcp_link import TcpLink
from tests.two_hosts import AHEAD_US, PIDS, Root
from tests.worlds import own_times, records

TURN_S = 0.04
"""Seconds that the clock of both hubs and of the link advances in a turn, however long the turn takes: a busy machine
makes nobody late."""
POLL_S = 0.005
DRIFT = 100e-6
SEND_S = 0.5


UNREAD = """
import sys, time, zmq
from ddpmon.hub import curve_keys
from ddpmon.hub.curve_keys import curve_socket
keys = curve_keys.new_key_pair()
root = curve_socket(zmq.Context(), zmq.ROUTER, keys, 1 << 20)
root.setsockopt(zmq.RCVHWM, 2)
root.setsockopt(zmq.CURVE_SERVER, 1)
print(root.bind_to_random_port("tcp://127.0.0.1"), keys.public, flush=True)
sys.stdin.readline()
time.sleep(2.5)
taken = 0
while root.poll(500):
    taken += bool(root.recv_multipart())
print(taken)
"""
"""A root that is busy with other things for long: with heartbeats of ZeroMQ's, some would be due in the sleep."""


def nothing(*_):
    """Nobody asks these ranks anything."""


class TwoHubs:
    """A root's end and a node's end with real sockets and keys, a link between them, and two ranks at either."""

    def __init__(self, **link):
        self.root = Root()
        self.store = self.root.store
        self.context = zmq.Context()
        keys, own = curve_keys.new_key_pair(), curve_keys.new_key_pair()
        keys.admitted = {own.public: 1}
        self.down = Downlink(self.context, keys, self.store, self.root.collector, "root", nothing, nothing, nothing)
        self.root.collector._answer = lambda identity, message: self.down.answer(identity, message, self.now)
        port = int(self.down.listen("tcp://127.0.0.1:*").rpartition(":")[2])
        self.link = TcpLink(port, **link)
        self.processes = [SimpleNamespace(hello=self.hello(rank), left=False) for rank in (2, 3)]
        by_rank = {process.hello.rank: process for process in self.processes}
        self.up = Uplink(
            self.context, own, SimpleNamespace(host="host1", process_of_rank=by_rank), "node", *(nothing,) * 4
        )
        self.up.set_root(Card(keys.public, self.root.run.id, [self.link.address]))
        self.told = records(own_times(1200, 4, noise=0.05) * 3, transfer=10.0, first=1, start_us=2_000_000)
        self.now, self.ticked_at, self.sent_at, self.sent = 1.0, 0.0, 0.0, 0
        self.seq = 0
        for rank in (0, 1):
            self.root.join(rank)

    def hello(self, rank):
        return Hello(PROTOCOL, self.root.run.id, rank, rank - 2, 4, 1, "host1", PIDS + rank, STAGE_TRAINING)

    def theirs_us(self, us):
        """A moment by the clock of the other machine."""
        return round(us * (1 + DRIFT)) + AHEAD_US

    def train(self, now):
        """The ranks send what they did since."""
        if now - self.sent_at < SEND_S:
            return
        self.sent_at = now
        ended = sum(step.end_us <= now * 1e6 for step in self.told[0][self.sent :])
        begin, self.sent = self.sent, self.sent + ended
        if not ended:
            return
        for rank in (0, 1):
            self.root.tell(rank, self.told[rank][begin : self.sent])
        self.seq += 1
        for process in self.processes:
            rank = process.hello.rank
            steps = self.told[rank][begin : self.sent]
            steps = [msgspec.structs.replace(step, end_us=self.theirs_us(step.end_us)) for step in steps]
            now_us = self.theirs_us(now * 1e6)
            self.up.queue_message(
                process, Batch(rank, PIDS + rank, self.seq, now_us, STAGE_TRAINING, self.sent, 0, steps=steps)
            )

    def turn(self, *, trains=True, seconds=TURN_S):
        self.now = now = self.now + seconds
        if trains:
            self.train(now)
        self.link.turn(now)
        self.up.process_root_messages(now)
        self.up.send_due(now, stopping=False)
        self.down.receive(now, now)
        if now - self.ticked_at >= SEND_S:
            self.ticked_at = now
            self.store.add_arrived()
            self.root.collector.record_all()
            self.down.report_to_nodes(now, now, recorded=True, stopping=False)
        zmq.select([self.down.socket, self.up.socket], [], [], timeout=POLL_S)

    def until(self, condition, what, *, trains=True):
        deadline = Deadline(DEADLINE_S)
        while not condition():
            assert not deadline.passed, f"not within {DEADLINE_S} s: {what}"
            self.turn(trains=trains)

    def skip(self, seconds):
        """So many seconds pass at once, though the ranks and hubs work in them as ever."""
        for _ in range(round(seconds / SEND_S)):
            self.turn(seconds=SEND_S)

    @property
    def events(self):
        return [event.text for event in self.store.events]

    def records(self):
        """Return, by rank, how many of its steps the root has accepted."""
        return {rank: process.records for rank, process in self.store.registry.process_of_rank.items()}

    def all_there(self):
        return self.records() == dict.fromkeys(range(4), self.sent)

    def close(self):
        self.up.close()
        self.down.close()
        self.link.close()
        self.root.recorder.close()
        self.context.term()


@pytest.fixture
def hubs(home, request):
    made = TwoHubs(**getattr(request, "param", {}))
    yield made
    made.close()


@pytest.mark.parametrize("hubs", [{"delay_s": 0.3, "lose_every": 4}], indirect=True)
def test_a_node_behind_delay_loss_and_a_stall_with_a_drifting_clock_is_neither_gone_nor_misjudged(hubs):
    hubs.until(lambda: len(hubs.store.registry.process_of_rank) == 4 and hubs.sent > 20, "the world")
    hubs.link.stands = True
    hubs.skip(1.5)
    hubs.link.stands = False
    hubs.until(lambda: hubs.sent > 90, "a hundred steps")
    hubs.until(hubs.all_there, "all steps", trains=False)
    hubs.store.add_arrived()
    assert hubs.link.retransmitted > 5
    assert not [text for text in hubs.events if "gone" in text or "no data" in text or "is back" in text]
    assert (hubs.store.registry.records_lost, hubs.up.dropped_messages) == (0, 0)
    (clock,) = hubs.store._clocks.agreements()  # of this moment
    last_us = hubs.told[0][hubs.sent - 1].end_us
    assert abs(clock.offset_s * 1e6 - (last_us - hubs.theirs_us(last_us))) <= 1e3 * clock.within_ms + 0.001 <= 100.1
    assert clock.drift_ppm == pytest.approx(-100, abs=1)
    waits = hubs.store.world.wait_ms.mean(axis=0)
    own = hubs.store.world.own_ms
    assert waits == pytest.approx((own.max(axis=1, keepdims=True) - own).mean(axis=0), abs=0.2)


def trained(hubs):
    """The hubs, once the world trains."""
    hubs.until(lambda: len(hubs.store.registry.process_of_rank) == 4 and hubs.sent > 20, "the world")
    hubs.until(hubs.all_there, "all steps", trains=False)


def test_of_a_machine_that_was_booted_again_the_clock_is_read_anew(hubs):
    trained(hubs)
    (node,) = hubs.down.nodes.values()
    before = -(10**12)
    node.later_us.append(before)
    hubs.up._epoch = "booted"
    hubs.up._join()
    hubs.until(lambda: node.epoch == "booted", "the hub of another boot")
    assert before not in node.later_us


def test_of_a_cut_that_outlasts_the_memory_exactly_what_is_lost_is_counted(hubs):
    trained(hubs)
    a_second = 2 * (10 * 110 + 2 * 300)  # steps and batches of two ranks, as they are reckoned before they are packed
    hubs.up._bundles = bundles = Bundles(kept_bytes=a_second)
    bundles._seq = hubs.down.nodes[1].seq
    hubs.link.cut()
    hubs.skip(20)
    assert hubs.up.dropped_messages > 10
    hubs.link.heal()
    hubs.until(lambda: "host1 is back" in hubs.events, "that it is back")
    hubs.until(lambda: hubs.up._bundles.is_all_recorded, "what was kept", trains=False)
    there = hubs.records()
    assert there[0] == hubs.sent
    assert 0 < there[2] < hubs.sent
    assert hubs.store.registry.records_lost == 2 * hubs.sent - there[2] - there[3]


def test_hosts_that_fall_silent_together_are_one_event_and_so_is_their_return(home):
    root, context = Root(ranks=8), zmq.Context()
    down = Downlink(context, curve_keys.new_key_pair(), root.store, root.collector, "root", nothing, nothing, nothing)
    try:
        for rank in range(8):
            hello = Hello(
                PROTOCOL, root.run.id, rank, rank % 2, 8, rank // 2, f"h{rank // 2}", PIDS + rank, STAGE_TRAINING
            )
            root.collector.process_message([b"%d" % rank, encode(hello)], 1.0, 1.0, Peer(0, rank // 2), later_us=0)
        down.nodes = {each: Node(each, b"", "e", f"host{each}", heard_at=1.0) for each in (3, 1, 2)}
        down.report_to_nodes(10.0, 10.0, recorded=True, stopping=False)
        for node in down.nodes.values():
            node.heard_at = 11.0 if node.number < 3 else 1.0
        down.report_to_nodes(11.5, 11.5, recorded=True, stopping=False)
        assert [(event.severity, event.text) for event in root.store.events][-2:] == [
            ("critical", "host1 and 2 other hosts are gone: ranks 2-7, last step 0"),
            ("info", "host1 and 1 other host are back"),
        ]
    finally:
        down.close()
        context.term()


def test_a_peer_that_goes_while_the_root_has_more_of_it_than_it_takes_does_not_end_the_root():
    context = zmq.Context()
    root = subprocess.Popen([sys.executable, "-c", UNREAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port, key = root.stdout.readline().split()
        peer = curve_socket(context, zmq.DEALER, curve_keys.new_key_pair(), 1 << 20)
        peer.curve_serverkey = key.encode()
        peer.setsockopt(zmq.SNDTIMEO, 300)
        peer.connect(f"tcp://127.0.0.1:{port}")
        with contextlib.suppress(zmq.Again):  # nothing more goes out
            while True:
                peer.send(bytes(20_000))
        peer.close(linger=0)
        told, _ = root.communicate("\n", timeout=DEADLINE_S)
        assert root.returncode == 0
        assert int(told) > 2
    finally:
        root.kill()
        root.wait()
        context.term()
