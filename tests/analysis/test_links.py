"""A rank whose link is slow arrives with the others and leaves after them."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.messages import SYNC_GRADIENTS, Step, Sync
from tests.findings import judged
from tests.worlds import own_times, world_of, world_with


def slow_links(own, over_ms):
    """{rank: [Step]} where ranks leave each all-reduce so much later than the others, and begin the next step then."""
    own_us, over_us = np.round(own * 1e3).astype(int), (np.array(over_ms) * 1e3).astype(int)
    told, now = {rank: [] for rank in range(own.shape[1])}, 1_000_000
    for i in range(len(own)):
        last = int((own_us[i].sum(axis=1) + over_us).max())
        length = last + 6000
        now += length
        for rank, steps in told.items():
            arrival = int(own_us[i, rank].sum())
            sync = Sync(SYNC_GRADIENTS, arrival, length, 1 << 20)
            steps.append(Step(2 + i, now + int(over_us[rank]), length, *own_us[i, rank].tolist(), [sync]))
    return told


@pytest.mark.parametrize("over", [[0, 0, 5, 0], [0, 4, 0, 6, 0, 0]])
def test_its_transfer_is_named_and_not_its_work(over):
    own = own_times(120, len(over), noise=0.02)
    network = {False: {"sent": 8e8, "received": 9e8}, True: {"sent": 3e7, "received": 4e7}}
    conditions = [
        Conditions(rank, "far" if ms else "near", means=network[bool(ms)]) for rank, ms in enumerate(over)
    ]  # fmt: skip
    (finding,) = judged(world_of(slow_links(own, over)), Evidence(conditions=conditions))
    late = [rank for rank, ms in enumerate(over) if ms]
    assert (finding.kind, finding.severity, finding.ranks, finding.phase) == ("slow_link", "warn", late, "transfer")
    assert finding.cost_ms == pytest.approx(max(over), abs=0.5)
    assert "on far" in finding.text
    who = "ranks 1, 3 leave" if len(late) > 1 else "rank 2 leaves"
    assert f"but {who} each all-reduce" in finding.advice
    assert (finding.evidence["sent_bytes_per_s"], finding.evidence["peers_sent_bytes_per_s"]) == (3e7, 8e8)
    assert (finding.evidence["received_bytes_per_s"], finding.evidence["peers_received_bytes_per_s"]) == (4e7, 9e8)
    assert len(finding.text) <= 76


@pytest.mark.parametrize(("starved", "named"), [(0.02, True), (None, True), (0.35, False)])
def test_a_rank_that_waits_for_a_core_when_it_may_go_on_has_no_slow_link(starved, named):
    """Four ranks on two cores wait so."""
    conditions = [Conditions(rank, "here", starved_share=starved) for rank in range(4)]
    own = own_times(120, 4, noise=0.02)
    told = judged(world_of(slow_links(own, [0, 0, 0, 5])), Evidence(world_size=4, conditions=conditions))
    assert [finding.kind for finding in told] == ["slow_link"] * named


@pytest.mark.parametrize(
    ("gpu", "where"), [("", "look at its cores, and what else runs on them."), ("H100", "look at the PCIe lanes")]
)
def test_on_one_machine_nobody_looks_at_cables(gpu, where):
    conditions = [Conditions(rank, "here", device_name=gpu) for rank in range(4)]
    own = own_times(120, 4, noise=0.02)
    (finding,) = judged(world_of(slow_links(own, [0, 0, 0, 5])), Evidence(conditions=conditions))
    assert f"all ranks are on one machine, with no network between them: {where}" in finding.advice
    assert "ethtool" not in finding.advice


def test_a_rank_that_leaves_later_than_others_is_not_named_while_all_wait_for_another():
    own = own_times(120, 4, noise=0.02)
    own[:, 2, 1] += 30
    told = judged(world_of(slow_links(own, [0, 0, 0, 5])), Evidence())
    assert [(finding.kind, finding.ranks) for finding in told] == [("straggler", [2])]


def test_without_a_slow_link_nobody_is_named():
    for seed in range(2):
        for ranks in (2, 3, 8):
            assert (
                judged(world_of(slow_links(own_times(120, ranks, noise=0.2, seed=seed), [0] * ranks)), Evidence()) == []
            )


def test_of_two_ranks_it_is_not_told_whose_link_it_is():
    own = own_times(120, 2, noise=0.02)
    assert judged(world_of(slow_links(own, [0, 3])), Evidence()) == []


def test_some_long_transfers_are_no_slow_link():
    rng = np.random.default_rng(0)
    for _ in range(4):
        own = own_times(120, 4, noise=0.05)
        told = slow_links(own, [0, 0, 0, 0])
        for step in rng.integers(0, 120, 12):
            record = told[1][step]
            record.end_us += 40_000
        assert [f for f in judged(world_of(told), Evidence()) if f.kind == "slow_link"] == []


def even_transfer(transfer, hosts, means=None, **evidence):
    """All ranks arrive together and transfer for long: what is found."""
    conditions = [
        Conditions(rank, host, means=means[host] if means else {"sent": 2e8, "received": 2e8})
        for rank, host in enumerate(hosts)
    ]
    world = world_with(own_times(120, len(hosts), noise=0.02), transfer=transfer)
    return judged(world, Evidence(world_size=len(hosts), conditions=conditions, **evidence))


def test_a_transfer_that_holds_several_hosts_back_says_that_none_of_their_links_can_be_told_from_here():
    (finding,) = even_transfer(30.0, ["a", "a", "b", "b"])
    assert (finding.kind, finding.ranks) == ("communication_bound", [0, 1, 2, 3])
    assert "ddpmon cannot tell whether one of the 2 hosts has a slower link" in finding.advice
    (alone,) = even_transfer(30.0, ["a"] * 4)
    assert "hosts" not in alone.advice


def test_a_host_whose_network_carries_more_than_the_run_s_is_named():
    means = {
        "a": {"sent": 2e8, "received": 2e8},
        "b": {"sent": 3e8, "received": 8e8},
        "c": {"sent": 2e8, "received": 2e8},
    }
    (finding,) = even_transfer(30.0, ["a", "a", "b", "b", "c", "c"], means)
    assert finding.evidence["busy_host"] == "b"
    assert "The network of b carries 1.0 GiB/s, and the networks of the other hosts carry 381 MiB/s" in finding.advice
    alike = {"a": {"sent": 2e8, "received": 2e8}, "b": {"sent": 3e8, "received": 3e8}}
    (finding,) = even_transfer(30.0, ["a", "a", "b", "b"], alike)
    assert "busy_host" not in finding.evidence
    idle = {"a": {"sent": 1e5, "received": 1e5}, "b": {"sent": 1e6, "received": 1e6}}
    (finding,) = even_transfer(30.0, ["a", "a", "b", "b"], idle)
    assert "busy_host" not in finding.evidence


def test_a_transfer_shorter_than_the_clocks_of_hosts_are_known_is_not_told():
    assert even_transfer(30.0, ["a", "a", "b", "b"], clocks_within_ms=29.0)
    assert even_transfer(30.0, ["a", "a", "b", "b"], clocks_within_ms=31.0) == []
    world = world_of(slow_links(own_times(120, 4, noise=0.02), [0, 0, 5, 0]))
    assert [finding.kind for finding in judged(world, Evidence(clocks_within_ms=4.0))] == ["slow_link"]
    assert judged(world, Evidence(clocks_within_ms=6.0)) == []
