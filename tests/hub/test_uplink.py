"""Test how a node's hub connects to the root."""

from types import SimpleNamespace

import pytest
import zmq

from ddpmon.hub import curve_keys
from ddpmon.hub.uplink import Uplink
from ddpmon.messages import STAGE_TRAINING, Batch, Card, Sample, encode
from ddpmon.messages.nodes import Joined, Recorded, decode_from_node
from ddpmon.recording.node_blocks import decode_block


@pytest.fixture
def uplink():
    context = zmq.Context()
    nobody = (lambda *_: None,) * 4
    uplink = Uplink(context, curve_keys.new_key_pair(), SimpleNamespace(host="box1", process_of_rank={}), "e", *nobody)
    uplink.set_root(Card(curve_keys.new_key_pair().public, "x", ["tcp://127.0.0.1:1"]))
    yield uplink
    uplink.close()
    context.term()


def test_a_root_that_does_not_answer_is_tried_less_and_less_often(uplink):
    tries = []
    for now in range(120):
        uplink.send_due(float(now), stopping=False)
        if uplink._tried_at == now:
            tries.append(now)
    assert tries == [0, 6, 18, 42, 66, 90, 114], "thousands that come at once would hold up each other"


@pytest.mark.parametrize(("every_ms", "count"), [(512, 2), (2000, 1)])
def test_samples_go_in_twos_to_a_root_that_wants_bundles_as_seldom_as_can_be(uplink, monkeypatch, every_ms, count):
    frames = [encode(Joined("f", "box1")), encode(Recorded(1, every_ms))]
    bundles = []
    with monkeypatch.context() as root:
        root.setattr(
            uplink, "socket", SimpleNamespace(recv=_each(frames), send=lambda frame, _=0: bundles.append(frame))
        )
        uplink.process_root_messages(100.0)
        for seq in (1, 2):
            uplink.queue_message(
                SimpleNamespace(), Batch(0, 9, seq, 5, STAGE_TRAINING, 0, 0, samples=[Sample(seq, 50.0)])
            )
        uplink.send_due(101.0, stopping=False)
    (packed,) = decode_from_node(bundles[-1]).items
    assert len(decode_block(packed.frame).batches[0].samples) == count


@pytest.mark.parametrize(("every_ms", "lost_s"), [(0, 3), (512, 3), (1000, 5), (2000, 10)])
def test_a_root_of_so_many_nodes_that_it_hears_each_seldom_may_be_silent_for_longer(
    uplink, monkeypatch, every_ms, lost_s
):
    frames = [encode(Joined("f", "box1")), encode(Recorded(1, every_ms))]
    with monkeypatch.context() as root:
        root.setattr(uplink, "socket", SimpleNamespace(recv=_each(frames), send=lambda *_: None))
        uplink.process_root_messages(100.0)
    assert uplink.is_root_reachable(99.9 + lost_s)
    assert not uplink.is_root_reachable(100.1 + lost_s)
    tries = []
    for tenth in range(120):
        uplink.send_due(100.0 + tenth / 10, stopping=False)
        if uplink._tried_at >= 100.0:
            tries.append(uplink._tried_at)
    assert tries[0] == 100.0 + lost_s


def _each(frames):
    """In place of a socket's `recv`: one after the other, then nothing more."""

    def receive(_flags):
        if not frames:
            raise zmq.Again
        return frames.pop(0)

    return receive
