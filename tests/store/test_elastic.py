"""Ranks that leave, come back with other numbers, and worlds that shrink or grow: who is of which attempt."""

from __future__ import annotations

import os

import pytest

from ddpmon.messages import PROTOCOL, STAGE_CONNECTED, STAGE_GROUP, Hello
from ddpmon.runs import Process
from ddpmon.store.peers import Peer
from ddpmon.store.registry import Registry

ALIVE, DEAD = Process.of(os.getpid()), Process(os.getpid(), 1)


class Launched(Peer):
    """The evidence that a launcher started a process as its rank."""

    def has_pid(self, pid):
        return True

    def launched_as(self, run_id, rank):
        return True


class Nodes:
    """A root's registry and the ranks of several nodes that speak to it; those of node 0 are on its machine."""

    def __init__(self, world_size=4):
        self.registry = Registry("run", world_size, "host0")
        self.now = 100.0
        self._pid = 1000
        self._names = {}

    def start(self, rank, node, world_size=4, restart=0, world="", stage=STAGE_CONNECTED):
        self._pid += 1
        process = self.say(self._pid, rank, node, world_size, restart, world, stage)
        if node == 0:
            process.process = ALIVE
        return process

    def say(self, pid, rank, node, world_size=4, restart=0, world="", stage=STAGE_GROUP, began_us=0):
        hello = Hello(PROTOCOL, "run", rank, rank % 2, world_size, node, f"host{node}", pid, stage, restart=restart)
        hello.world, hello.began_us = world, began_us
        return self.registry.register(hello, b"%d" % pid, self.now, Launched(0, node))

    def joins(self, process, world):
        """Its process group is up."""
        hello = process.hello
        return self.say(hello.pid, hello.rank, hello.through, hello.world_size, hello.restart, world)

    def beats(self, process):
        return self.registry.sender_of(
            b"%d" % process.hello.pid, process.rank, process.hello.pid, self.now, Launched(0, process.hello.through)
        )

    def first_world(self, world="w1"):
        ranks = [self.start(rank, rank // 2) for rank in range(4)]
        for rank in ranks:
            self.joins(rank, world)
        assert self.with_ranks() == ranks
        return ranks

    def end(self, *processes):
        """They are gone, and the root has seen it or was told."""
        for process in processes:
            process.dead = True
            if process.process:
                process.process = DEAD

    def with_ranks(self):
        return [self.registry.process_of_rank[rank] for rank in sorted(self.registry.process_of_rank)]


@pytest.mark.parametrize("world", ["w2", "w1", ""], ids=["named", "of the same store", "without a name"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (2, 0, 3, 1)], ids=str)
def test_a_restart_that_only_one_node_counts_is_one_new_attempt(world, order):
    nodes = Nodes()
    old = nodes.first_world("w1" if world else "")
    nodes.end(*old)
    new = {rank: nodes.start(rank, rank // 2, restart=rank // 2) for rank in order}
    for process in new.values():
        nodes.joins(process, world)
    assert nodes.with_ranks() == [new[rank] for rank in range(4)]
    assert nodes.registry.attempt == 1
    assert not nodes.registry.refusals.rows()


def test_ranks_of_a_node_that_restarts_wait_for_those_of_the_others_to_be_gone():
    nodes = Nodes()
    old = nodes.first_world()
    nodes.end(*old[2:])
    new = [nodes.start(rank, 1, restart=1) for rank in (2, 3)]
    nodes.beats(new[0])
    assert nodes.with_ranks()[:2] == old[:2]
    nodes.end(*old[:2])
    nodes.beats(new[0])
    assert nodes.with_ranks() == new[:1]
    assert nodes.registry.reseated == new[:1]


@pytest.mark.parametrize("world", ["w2", "w1"], ids=["named", "of the same store"])
def test_a_world_that_shrinks_leaves_nobody_of_a_node_that_nothing_is_heard_of(world):
    nodes = Nodes()
    old = nodes.first_world()
    for process in old:
        process.last_step = 7
    nodes.end(*old[:2])  # the node of the others is cut off: they are not known to be gone
    new = [nodes.start(rank, 0, world_size=2) for rank in (0, 1)]
    for process in new:
        nodes.joins(process, world)
    assert nodes.with_ranks() == new
    assert nodes.registry.world_size == 2
    nodes.beats(old[3])
    nodes.joins(old[2], "w1")
    assert nodes.with_ranks() == new, "who comes back late is of the world before"
    assert world == "w1" or not nodes.registry.refusals.rows()


def test_a_world_that_grows_and_ranks_with_other_numbers_begin_a_new_attempt():
    nodes = Nodes(2)
    first = [nodes.start(rank, 0, world_size=2) for rank in (0, 1)]
    for process in first:
        nodes.joins(process, "w1")
    nodes.end(*first)
    # the machine that came has the lower numbers now; those of the other are 2 and 3
    new = {rank: nodes.start(rank, 1 - rank // 2) for rank in (3, 0, 1, 2)}
    for process in new.values():
        nodes.joins(process, "w2")
    assert nodes.with_ranks() == [new[rank] for rank in range(4)]
    assert (nodes.registry.world_size, nodes.registry.attempt, nodes.registry.node_count) == (4, 1, 2)
    assert not nodes.registry.refusals.rows()


def test_ranks_that_live_are_displaced_by_nobody_who_names_another_world():
    nodes = Nodes()
    old = nodes.first_world()
    stranger = nodes.start(0, 0, world_size=2, world="w2", stage=STAGE_GROUP)
    nodes.beats(stranger)
    assert nodes.with_ranks() == old
    assert nodes.registry.world_size == 4


def test_a_hub_that_starts_anew_knows_which_world_was_the_last():
    nodes = Nodes()
    old = nodes.first_world()
    nodes.end(*old)
    new = [nodes.start(rank, rank // 2) for rank in range(4)]
    for process in new:
        nodes.joins(process, "w2")
    again = Registry("run", 4, "host0")
    again.add_recorded([*old, *new])
    assert [again.process_of_rank[rank] for rank in range(4)] == new
    late = nodes.say(old[2].hello.pid, 2, 1, world="w1")
    assert again.process_of_rank[2] is new[2]
    again.assign_rank(late, nodes.now)
    assert again.process_of_rank[2] is new[2]


@pytest.mark.parametrize("world", ["w2", "w1"], ids=["named anew", "of the same store"])
def test_ranks_that_run_another_program_are_a_new_attempt_and_what_they_lost_before_stays_counted(world):
    nodes = Nodes()
    old = nodes.first_world()
    for process in old:
        process.last_step = process.steps = 60
        process.records = 58
    new = [nodes.say(process.hello.pid, process.rank, process.hello.through, began_us=9) for process in old]
    for process in new:
        nodes.say(process.hello.pid, process.rank, process.hello.through, world=world, began_us=9)
    assert nodes.with_ranks() == new
    assert nodes.registry.attempt == 1
    assert not nodes.registry.refusals.rows()
    assert sorted((process.attempt, process.lost_records) for process in nodes.registry.processes.values()) == [
        *[(0, 2)] * 4,
        *[(1, 0)] * 4,
    ]
    restored = Registry("run", 4, "host0")
    restored.add_recorded([*old, *new])
    assert len(restored.processes) == 8
    assert [restored.process_of_rank[rank] for rank in range(4)] == new


def test_ranks_that_run_another_program_before_their_first_step_are_the_same_attempt():
    nodes = Nodes()
    (old,) = [nodes.start(0, 1)]
    old.seq = 7
    new = nodes.say(old.hello.pid, 0, 1, began_us=9)
    assert (new.id, new.attempt, new.seq) == (old.id, 0, 0)
    assert list(nodes.registry.processes.values()) == nodes.with_ranks() == [new]
