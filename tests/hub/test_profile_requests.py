"""The hub has ranks profiled when a viewer asks, makes one answer of theirs, and says why a rank has none."""

import json
from types import SimpleNamespace

import pytest

from ddpmon.hub.profile_requests import ProfileRequests
from ddpmon.messages import Finding, Operator, Profile, ProfileOutcome, ProfileRequest, ProfileSteps, Track
from tests.worlds import own_times, world_with

RANKS = 4


@pytest.fixture
def made(tmp_path):
    """(Requests, the store that they look at, which ranks were asked for what)."""
    own = own_times(60, RANKS, noise=0.01)
    own[:, 2] *= 1.05  # rank 2 is in the middle of the others
    own[:, 0] *= 1.1
    own[:, 3] *= 1.3
    by_rank = {
        rank: SimpleNamespace(
            rank=rank, gone=False, profile=None, hello=SimpleNamespace(host="a", device_clock=False, pid=rank + 10)
        )
        for rank in range(RANKS)
    }
    registry = SimpleNamespace(process_of_rank=by_rank, world_size=RANKS)
    store = SimpleNamespace(
        state="running", findings=[], world=world_with(own), registry=registry, run=SimpleNamespace(world_size=RANKS),
        profile=None, common_us=lambda rank, us: us + 1000 * rank,
    )  # fmt: skip
    asked = []
    requests = ProfileRequests(store, lambda process, request: asked.append((process.rank, request)), tmp_path)
    return requests, store, asked


def profiled(rank, outcome=ProfileOutcome.PROFILED):
    if outcome != ProfileOutcome.PROFILED:
        return Profile(rank, rank + 10, outcome)
    operators = [Operator("aten::mm", 1, 10, 50_000 if rank == 3 else 1_000, 0)]
    tracks = [Track("phases", [0, 1], [5, 20], [10, 30]), Track("training thread", [2], [7], [3])]
    return Profile(
        rank, rank + 10, outcome, "", 40, 45, steps=5, begin_us=10**6, span_us=200_000, step_us=40_000, start_us=70_000,
        end_us=30_000, operators=operators, names=["forward", "backward", "aten::mm"], tracks=tracks, left_out=0,
    )  # fmt: skip


def whys(store):
    return [one.why for one in store.profile.ranks]


def test_without_ranks_the_slow_one_and_a_peer_are_asked_also_by_their_own_time(made):
    requests, store, asked = made
    requests.request_profiles([], 5, 0.0)
    assert [rank for rank, _ in asked] == [3, 2]
    assert asked[0][1] == ProfileSteps(5, 20.0)
    assert store.profile.waits
    asked.clear()
    store.profile = None
    named = Finding("straggler", "warn", "", ranks=[1], phase="forward", evidence={"pattern": "lasting"}, advice="")
    store.findings = [named]
    for process in store.registry.process_of_rank.values():
        process.gone = process.rank == 3
    requests.process_answers(1.0)
    store.registry.process_of_rank[2].profile = profiled(2)
    requests.process_answers(2.0)
    requests.request_profiles([], 5, 3.0)
    assert [rank for rank, _ in asked] == [1, 0]


def test_answers_become_a_table_and_a_trace_of_all_ranks_on_one_clock(made):
    requests, store, _ = made
    requests.request_profiles([3, 0], 5, 0.0)
    store.registry.process_of_rank[3].profile = profiled(3)
    assert requests.process_answers(1.0)
    assert store.profile.waits
    assert store.profile.rows == []
    store.registry.process_of_rank[0].profile = profiled(0)
    assert requests.process_answers(2.0)
    view = store.profile
    assert not view.waits
    assert [(row.name, row.phase, row.self_ms, row.calls) for row in view.rows] == [
        ("aten::mm", "forward", [10.0, 0.2], [2.0, 2.0])
    ]
    assert [(one.answered, one.step_ms, one.cost_ms, one.first_step) for one in view.ranks] == [
        (True, 40.0, 100.0, 40)
    ] * 2
    with open(view.trace) as file:
        events = json.load(file)["traceEvents"]
    slices = [(e["pid"], e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [
        (4, 1, "forward", 3005, 10), (4, 1, "backward", 3025, 30), (4, 2, "aten::mm", 3007, 3),
        (1, 1, "forward", 5, 10), (1, 1, "backward", 25, 30), (1, 2, "aten::mm", 7, 3),
    ]  # fmt: skip


def test_a_request_in_the_middle_of_a_profile_changes_nothing(made):
    requests, store, asked = made
    requests.request_profiles([3], 5, 0.0)
    requests.request_profiles([0], 2, 1.0)
    assert [rank for rank, _ in asked] == [3]
    assert (store.profile.number, store.profile.request) == (1, ProfileRequest((3,), 5))


def test_a_rank_that_cannot_be_profiled_has_one_line_and_the_others_their_profile(made):
    requests, store, asked = made
    store.registry.process_of_rank[1].gone = True
    del store.registry.process_of_rank[2]
    requests.request_profiles([0, 1, 2, 9], 5, 0.0)
    assert [rank for rank, _ in asked] == [0]
    assert whys(store)[1:] == [
        "rank 1 has ended",
        "rank 2 sends nothing to this machine, so it cannot be profiled",
        "rank 9 does not exist: the run has ranks 0 to 3",
    ]
    store.registry.process_of_rank[0].profile = profiled(0, ProfileOutcome.OWN_PROFILER)
    requests.process_answers(1.0)
    assert whys(store)[0].startswith("rank 0: the script uses torch.profiler itself")
    assert (store.profile.waits, store.profile.trace, store.profile.rows) == (False, "", [])


def test_ranks_that_end_or_hang_while_they_are_profiled_are_not_waited_for_for_ever(made):
    requests, store, _ = made
    requests.request_profiles([3, 0], 5, 0.0)
    store.registry.process_of_rank[3].gone = True
    requests.process_answers(1.0)
    assert whys(store) == ["rank 3 ended before its profile was finished", ""]
    assert not requests.process_answers(70.0)
    assert requests.process_answers(1000.0)
    assert whys(store)[1] == "rank 0 did not answer: it hangs in a profiled step, or an older ddpmon runs in it"
    assert not store.profile.waits


def test_a_run_that_stands_still_is_not_profiled(made):
    requests, store, asked = made
    store.state = "stalled"
    requests.request_profiles([], 5, 0.0)
    assert asked == []
    assert "the run stands still" in whys(store)[0]
