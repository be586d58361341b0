"""How a node's hub comes to the root."""

from types import SimpleNamespace

import zmq

from ddpmon.hub import curve_keys
from ddpmon.hub.uplink import Uplink
from ddpmon.messages import Card


def test_a_root_that_does_not_answer_is_tried_less_and_less_often():
    context = zmq.Context()
    nobody = (lambda *_: None,) * 4
    uplink = Uplink(context, curve_keys.fresh(), SimpleNamespace(host="box1", seats={}), "e", *nobody)
    try:
        uplink.meet(Card(curve_keys.fresh().public, "x", ["tcp://127.0.0.1:1"]))
        tries = []
        for now in range(120):
            uplink.turn(float(now), stopping=False)
            if uplink._tried_at == now:
                tries.append(now)
        assert tries == [0, 6, 18, 42, 66, 90, 114], "thousands that come at once would hold up each other"
    finally:
        uplink.close()
        context.term()
