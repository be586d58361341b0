"""Test where hubs of several machines meet and listen, and whom they admit."""

import contextlib
import socket

import pytest
import zmq

from benchmarks.ports import free_port
from ddpmon import runs
from ddpmon.hub import curve_keys
from ddpmon.messages import Bye, Card, Meeting, Next, encode
from ddpmon.messages.nodes import LINK, Join
from ddpmon.runs import job_key
from tests.hub.machines import late_world, listening, machines, seen_whole, tell, world

__all__ = ["machines"]  # a fixture

KEY = "0123456789abcdef" * 4


def test_strangers_at_the_sockets_of_a_root_are_refused_and_hurt_nobody(machines):
    root, _ = machines
    ranks = world(machines)
    viewer = root.viewer()
    viewer.until(seen_whole, "the world")
    with zmq.Context() as context:
        one_whose_key_was_not_told(context, root, root.meet(ranks[0]))
        some_that_call_themselves_like_another_machine_s(context, root, viewer)
    assert root.hubs[-1].poll() is None


def stranger(context):
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.LINGER, 0)
    return peer


def one_whose_key_was_not_told(context, root, card):
    keys = curve_keys.new_key_pair()
    with stranger(context) as peer:
        peer.curve_publickey, peer.curve_secretkey = keys.public.encode(), keys.secret.encode()
        peer.curve_serverkey = card.key.encode()
        peer.connect(card.addresses[0])
        peer.send(encode(Join(LINK, "x", "impostor")))
        root.viewer().until(
            lambda s: any("unknown key" in r.what for r in s.refused) and seen_whole(s), "the refusal beside the world"
        )
        assert not peer.poll(200), "nothing is said to who was not let in"


def some_that_call_themselves_like_another_machine_s(context, root, viewer):
    with contextlib.ExitStack() as open_sockets:
        for name in (b"N", b"Nx", b"N1", b"N1/x", b"N7/1"):
            for address, said in (
                (runs.ingest_address(root.run.id), Bye(0, 4_100_000, 1)),
                (runs.view_address(root.run.id), Next()),
            ):
                peer = open_sockets.enter_context(stranger(context))
                peer.setsockopt(zmq.ROUTING_ID, name)
                peer.connect(address)
                peer.send(encode(said))
        assert all(seen_whole(viewer.get()) for _ in range(3)), "the hub goes on"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_root_listens_on_the_interface_that_leads_to_the_others_only(machines, address):
    if address == "::1" and not has_ipv6():
        pytest.skip("no IPv6 on this machine's loopback")
    for machine in machines:
        machine.towards = address
    world(machines)
    machines[1].viewer().until(seen_whole, "the world")
    assert listening(machines[0].hubs[-1].pid) == {address}
    assert not listening(machines[1].hubs[-1].pid)


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def given(machines, *keys):
    """Have the machines meet at a port of the first, each with a key of the job."""
    place = f"127.0.0.1:{free_port()}"
    for machine, key in zip(machines, keys, strict=True):
        machine.save(hub_at=place, hub_is_here=machine is machines[0])
        job_key.keep(machine.run.id, key)
        machine.hub()
    return place


def hosts(snapshot):
    """Return where each rank is that has come."""
    return [rank.host for rank in snapshot.ranks if rank.pid]


def test_hubs_that_were_given_where_to_meet_do_so_before_any_rank_and_keep_their_numbers(machines):
    root, node = machines
    given(machines, KEY, KEY)
    viewer = root.viewer()
    viewer.until(lambda s: any("has joined the run" in event.text for event in s.events), "the other hub")
    (first,) = node.ranks(2)[:1]
    told = "who has come, before there is a group"
    viewer.until(lambda s: "ranks 0-1 have not started" in s.verdict and hosts(s) == ["box1", "box1"], told)
    ranks, told = [*root.ranks(0), *machines[1].peers[-2:]], late_world()
    first.socket.send(encode(Meeting(2, first.pid, 1, 2, "192.0.2.1", root=Card("x" * 40, "", ["tcp://192.0.2.1:1"]))))
    root.kill_hub()
    before = curve_keys.stored_keys(root.dir).admitted
    root.hub()
    for rank in ranks[:2]:
        rank.join(node_rank=0, local_rank=rank.rank)
    for begin in range(1, 81, 20):
        tell(ranks, told, begin, begin + 20)
    for machine in machines:
        assert "rank 3 is slow" in machine.viewer().until(lambda s: s.state == "slow", "the late rank").verdict
    assert curve_keys.stored_keys(root.dir).admitted == before
    assert list(before.values()) == [1]


def test_a_hub_with_another_key_is_refused_and_says_so_itself(machines):
    _, node = machines
    place = given(machines, KEY, KEY[::-1])
    node.ranks(2)
    alone = node.viewer().until(lambda s: any("different keys" in note for note in s.notes), "why it is alone")
    assert (
        f"the hub at {place} and this machine have different keys, so ddpmon shows only this machine's ranks"
    ) in alone.notes
    assert len([rank for rank in alone.ranks if rank.pid]) == 2


def test_a_hub_that_is_not_there_is_named_and_a_port_that_is_taken_hurts_no_rank(machines):
    root, node = machines
    node.save(hub_at="127.0.0.1:1", hub_is_here=False)
    job_key.keep(node.run.id, KEY)
    node.hub()
    node.ranks(2)
    node.viewer().until(
        lambda s: any("no connection to the hub at 127.0.0.1:1" in note for note in s.notes), "its place"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        root.save(hub_at=f"127.0.0.1:{taken.getsockname()[1]}", hub_is_here=True)
        job_key.keep(root.run.id, KEY)
        root.hub()
        root.ranks(0)
        root.viewer().until(
            lambda s: any("Address already in use" in event.text for event in s.events), "why nobody can come"
        )
