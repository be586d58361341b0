"""The hub has a slow rank and a peer sampled, once, and again only where the samples did not tell."""

from types import SimpleNamespace

import numpy as np
import pytest

from ddpmon.hub.sample_requests import IRREGULAR_S, LEAST_S, WAITS_S, SampleRequests
from ddpmon.messages import Finding
from tests.worlds import own_times, world_with

RANKS = 4


def slow(ranks=(1,), phase="data", kind="straggler", severity="warn", **evidence):
    facts = {"pattern": "lasting", **evidence}
    return Finding(kind, severity, "", ranks=list(ranks), phase=phase, evidence=facts, advice="")


@pytest.fixture
def made():
    """(Requests, the store that they look at, which ranks were asked for how long)."""
    own = own_times(60, RANKS, noise=0.01)
    own[:, 2] *= 1.01  # rank 2 is neither the fastest nor the slowest of the others
    own[:, 3] *= 1.3
    by_rank = {
        rank: SimpleNamespace(rank=rank, gone=False, hello=SimpleNamespace(host="a", device_clock=False))
        for rank in range(RANKS)
    }
    store = SimpleNamespace(
        state="slow", findings=[], world=world_with(own), registry=SimpleNamespace(process_of_rank=by_rank)
    )
    asked = []
    return SampleRequests(store, lambda process, request: asked.append((process.rank, request.seconds))), store, asked


def test_the_slow_rank_and_one_in_the_middle_of_the_others_are_asked_once(made):
    requests, store, asked = made
    store.findings = [slow()]
    requests.send_requests(100.0)
    requests.send_requests(101.0)
    assert asked == [(1, LEAST_S), (2, LEAST_S)]


def test_they_are_asked_again_later_unless_a_line_was_found_and_not_for_ever(made):
    requests, store, asked = made
    store.findings = [slow()]
    for second in range(300):
        requests.send_requests(100.0 + second)
    assert len(asked) == 2 * len(WAITS_S)
    asked.clear()
    store.findings = [slow(ranks=[0], line="train.py:4 main")]
    requests.send_requests(1000.0)
    assert asked == []


@pytest.mark.parametrize(
    "finding",
    [
        slow(severity="info"),
        slow(kind="load_imbalance"),
        slow(kind="hang"),
        slow(phase="transfer"),
        slow(ranks=[7]),
    ],
)
def test_nobody_is_asked_about_what_is_no_slow_work_of_a_rank(made, finding):
    requests, store, asked = made
    store.findings = [finding]
    requests.send_requests(100.0)
    assert asked == []


def test_nobody_is_asked_while_no_rank_is_slow(made):
    requests, store, asked = made
    store.findings, store.state = [slow()], "running"
    requests.send_requests(100.0)
    assert asked == []


def test_on_a_gpu_only_what_the_host_does_is_sampled(made):
    requests, store, asked = made
    for process in store.registry.process_of_rank.values():
        process.hello.device_clock = True
    store.findings = [slow(phase="backward")]
    requests.send_requests(100.0)
    assert asked == []
    store.findings = [slow(phase="other")]
    requests.send_requests(200.0)
    assert len(asked) == 2


def test_a_rhythm_is_sampled_for_several_periods(made):
    requests, store, asked = made
    store.findings = [slow(pattern="seconds", every=5.0)]
    requests.send_requests(100.0)
    assert asked[0] == (1, 40.0)
    store.findings = [slow(ranks=[0], pattern="irregular")]
    requests.send_requests(200.0)
    assert asked[-2] == (0, IRREGULAR_S)


def test_where_all_ranks_wait_for_data_one_of_them_is_sampled(made):
    requests, store, asked = made
    bound = slow(ranks=range(RANKS), kind="data_bound")
    store.findings = [bound, slow(ranks=[0])]
    requests.send_requests(100.0)
    assert [rank for rank, _ in asked] == [0, 0, 2]


def test_a_rank_of_another_host_is_no_peer_while_there_is_one_of_the_same(made):
    requests, store, asked = made
    for rank in (0, 2):
        store.registry.process_of_rank[rank].hello.host = "b"
    store.findings = [slow()]
    requests.send_requests(100.0)
    assert [rank for rank, _ in asked] == [1, 3]
    assert np.isfinite(asked[0][1])
