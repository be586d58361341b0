"""The exchange of hubs' cards through a real store, each rank a thread here."""

import os

import pytest
from torch.distributed import TCPStore, distributed_c10d

from ddpmon.messages import Card, Meeting, encode
from ddpmon.messages.wire import decode_from_rank
from ddpmon.probe import hub_meeting
from ddpmon.probe.identity import Identity
from tests.conftest import wait_for

ROOT_KEY, NODE_KEY = "r" * 40, "n" * 40
ADDRESS = "tcp://10.0.0.1:40000"


def identity(rank, run_id="", world_size=2):
    made = Identity(run_id)
    made.set_facts(rank=rank, world_size=max(world_size, rank + 1))
    return made


@pytest.fixture
def store(monkeypatch):
    made = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: made)
    return made


@pytest.fixture
def exchanges():
    made = []
    yield made
    for exchange in made:
        exchange.finish()
        exchange.join(10)
        assert not exchange.is_alive()


def begin(exchanges, rank, node):
    exchanges.append(hub_meeting.Exchange(identity(rank), node, 2))
    exchanges[-1].start()
    return exchanges[-1]


def test_a_node_hears_of_the_root_once_the_root_lets_it_in(store, exchanges):
    first, second = begin(exchanges, 0, 0), begin(exchanges, 2, 1)
    second.offer_card(Card(NODE_KEY, "node"))
    first.offer_card(Card(ROOT_KEY, "root", [ADDRESS]))
    wait_for(lambda: first.message_to_hub().keys == {1: NODE_KEY}, 20)
    assert second.message_to_hub().root is None, "its key was not admitted yet"
    version = second.version
    first.offer_card(Card(ROOT_KEY, "root", [ADDRESS], [1]))
    root = wait_for(lambda: second.message_to_hub().root, 20)
    assert (root.key, root.run_id, root.addresses) == (ROOT_KEY, "root", [ADDRESS])
    assert second.version > version
    for exchange in (first, second):
        exchange.join(10)
        assert not exchange.is_alive(), "nothing more is to be read"
        assert isinstance(decode_from_rank(encode(exchange.message_to_hub())), Meeting)


def test_what_is_in_the_store_and_is_no_card_is_not_believed(store, exchanges):
    store.set(hub_meeting.ROOT_CARD_KEY, b"\x00nonsense")
    store.set(hub_meeting.node_key(1), encode(Card("no key", "x")))
    first, second = begin(exchanges, 0, 0), begin(exchanges, 2, 1)
    second.offer_card(Card(NODE_KEY, "node"))
    wait_for(lambda: store.get(hub_meeting.node_key(1)) == encode(Card(NODE_KEY, "node")), 20)
    assert second.message_to_hub().root is None
    first.offer_card(Card(ROOT_KEY, "root", [ADDRESS], [1]))
    wait_for(lambda: second.message_to_hub().root, 20)


@pytest.mark.parametrize("reason", ["Default process group has not been initialized\nat c10d", ""])
def test_a_store_that_fails_is_said_once_and_hurts_nobody(monkeypatch, exchanges, reason):
    def fails():
        raise ValueError(reason)

    monkeypatch.setattr(distributed_c10d, "_get_default_store", fails)
    exchange = begin(exchanges, 0, 0)
    exchange.join(10)
    (note,) = exchange._identity.facts.notes
    assert note == f"{hub_meeting.ALONE_CAUSE}: ValueError: {reason.partition(chr(10))[0]}"


@pytest.mark.parametrize(
    "variables",
    [
        {"LOCAL_WORLD_SIZE": "2"},
        {"GROUP_WORLD_SIZE": "1"},
        {"GROUP_WORLD_SIZE": "2", "LOCAL_RANK": "1"},
        {"GROUP_WORLD_SIZE": "many"},
        {"GROUP_WORLD_SIZE": "2", "DDPMON_HUB_GIVEN": "1"},
    ],
    ids=str,
)
def test_ranks_of_one_machine_and_all_but_the_first_of_each_ask_the_store_for_its_name_alone(
    variables, monkeypatch, store, exchanges
):
    monkeypatch.setattr(os, "environ", {"GROUP_RANK": "0", "LOCAL_RANK": "0"} | variables)
    exchanges.append(hub_meeting.start_exchange(identity(0)))
    exchanges[0].join(20)
    assert exchanges[0].version == 0, "their hub hears nothing"
    assert store.get(hub_meeting.WORLD).decode() == exchanges[0]._identity.facts.world
    assert not store.check([hub_meeting.FIRST_RUN_KEY])


def test_where_all_are_known_to_be_on_this_machine_the_store_is_left_alone(monkeypatch):
    monkeypatch.setattr(os, "environ", {"DDPMON_ALONE": "1", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "2"})
    assert hub_meeting.start_exchange(identity(0)) is None
    monkeypatch.setattr(os, "environ", {})
    assert hub_meeting.start_exchange(identity(0, world_size=1)) is None


def begin_unnumbered(exchanges, rank, run_id, world_size):
    exchanges.append(hub_meeting.Exchange(identity(rank, run_id, world_size), None))
    exchanges[-1].start()
    return exchanges[-1]


@pytest.mark.parametrize("order", [range(6), (5, 1, 3, 4, 2, 0)], ids=str)
def test_where_nobody_tells_nodes_each_hub_is_one_and_one_of_its_ranks_speaks_for_it(store, exchanges, order):
    hubs = ["a", "a", "b", "c", "b", "c"]
    begun = {rank: begin_unnumbered(exchanges, rank, hubs[rank], 6) for rank in order}
    root = begun[0]
    wait_for(lambda: sum(each.version > 0 for each in begun.values()) == 3, 20)
    speakers = [each for rank, each in begun.items() if rank and each.version]
    assert {each._identity.facts.run_id for each in speakers} == {"b", "c"}
    for each in speakers:
        each.offer_card(Card(each._identity.facts.run_id * 40, "node"))
    root.offer_card(Card(ROOT_KEY, "root", [ADDRESS]))
    wait_for(lambda: len(root.message_to_hub().keys) == 2, 20)
    assert sorted(root.message_to_hub().keys.values()) == ["b" * 40, "c" * 40]
    root.offer_card(Card(ROOT_KEY, "root", [ADDRESS], sorted(root.message_to_hub().keys)))
    for each in begun.values():
        each.join(20)
        assert not each.is_alive()
    assert len({each._identity.facts.world for each in begun.values()}) == 1
    for each in speakers:
        assert each.message_to_hub().root is not None
        assert root.message_to_hub().keys[each.message_to_hub().node] == each._identity.facts.run_id * 40
        assert isinstance(decode_from_rank(encode(each.message_to_hub())), Meeting)


def test_ranks_of_one_hub_find_that_out_and_their_hub_hears_of_no_other(store, exchanges):
    begun = [begin_unnumbered(exchanges, rank, "a", 3) for rank in (2, 0, 1)]
    for each in begun:
        each.join(20)
        assert not each.is_alive()
        assert each.version == 0
        assert not each._identity.facts.notes
