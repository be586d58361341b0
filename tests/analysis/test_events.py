"""Test the events of findings that come and go."""

from math import inf

import msgspec
import pytest

from ddpmon.analysis.episodes import RETURN_S
from ddpmon.analysis.events import WORSE, Announcer
from ddpmon.analysis.kinds import KINDS
from ddpmon.messages import Finding


def straggler(rank=1, kind="straggler", until=None, severity="warn"):
    return Finding(
        kind, severity, f"rank {rank} is slow", [rank], since_step=101, until_step=until, cost_ms=20.0,
        cost_s=10.0 if until is None else (until - 100) * 0.02,
    )  # fmt: skip


def changes(before, now):
    """Severity and sentence of each event between two moments of a run that is over with the second."""
    news = Announcer()
    news.announce([], before, 0.0)
    return [(event.severity, event.text) for event in news.announce(before, now, inf)]


def unfolding(*moments):
    """Return the events of a run. moments: (seconds, findings)"""
    news, before, told = Announcer(), [], []
    for seconds, now in moments:
        told += [(seconds, event.text) for event in news.announce(before, now, seconds)]
        before = now
    return told


def costing(cost_ms, severity="warn", phase="forward"):
    return Finding(
        "straggler", severity, f"it costs {cost_ms}", [1], phase, since_step=101, cost_ms=cost_ms, cost_s=10.0
    )


def test_what_is_gone_and_back_within_a_minute_was_never_gone():
    there = [costing(20.0)]
    told = unfolding(
        (0, there), (10, []), (20, there), (30, []), (30 + RETURN_S.enter - 1, []), (100, there), (200, there)
    )
    assert told == [(0, "it costs 20.0")]


def test_what_stays_away_for_a_minute_is_gone_and_then_told_anew():
    there = [costing(20.0)]
    told = unfolding((0, there), (10, []), (10 + RETURN_S.enter, []), (100, there))
    assert told == [
        (0, "it costs 20.0"),
        (10 + RETURN_S.enter, "rank 1 has recovered; it cost 10.0 s"),
        (100, "it costs 20.0"),
    ]


def test_the_same_rank_late_in_another_phase_is_told_though_it_was_gone_for_seconds_only():
    told = unfolding((0, [costing(20.0)]), (10, []), (20, [costing(21.0, phase="data")]))
    assert [text for _, text in told] == ["it costs 20.0", "it costs 21.0"]


def test_what_becomes_clearly_worse_is_told_once_and_not_with_each_digit():
    costs = [20.0, 25.0, WORSE.enter * 25.0 - 1, WORSE.enter * 25.0, 55.0, 39.0, 51.0, 60.0]
    told = unfolding(*((40 * place, [costing(cost)]) for place, cost in enumerate(costs)))
    assert told == [(0, "it costs 20.0"), (120, "worse: it costs 50.0")]


def test_a_cost_that_the_first_minute_shows_better_is_not_worse():
    told = unfolding(*((second, [costing(20.0 + second)]) for second in range(0, 100, 10)))
    assert told == [(0, "it costs 20.0")]


def test_what_becomes_graver_is_told_and_not_again_when_it_was_less_grave_in_between():
    severities = ["info", "warn", "info", "warn", "critical", "critical", "warn", "critical"]
    told = unfolding(*((second, [costing(20.0, severity)]) for second, severity in enumerate(severities)))
    assert [second for second, _ in told] == [0, 1, 4]


def test_a_late_rank_with_other_evidence_or_found_to_have_more_work_is_the_same_late_rank():
    assert changes([straggler()], [straggler(kind="load_imbalance")]) == []
    of_one_host = msgspec.structs.replace(straggler(), evidence={"host": "node01"})
    assert changes([straggler()], [of_one_host]) == changes([of_one_host], [straggler()]) == []


def test_a_burst_that_was_over_when_it_showed_is_told_once():
    over = straggler(until=150, severity="info")
    assert changes([], [over]) == [("info", "rank 1 is slow")]


def test_a_burst_of_what_was_there_within_the_minute_is_no_news():
    news = Announcer()
    news.announce([], [straggler()], 0.0)
    assert news.announce([straggler()], [], 10.0) == []
    over = straggler(until=150, severity="info")
    assert news.announce([], [over], 20.0) == []
    (end,) = news.announce([over], [over], 80.0)
    assert end.text.startswith("rank 1 has recovered")


def test_a_cause_of_the_whole_world_stays_one_when_ranks_join_in():
    before = Finding("moving_straggler", "warn", "another rank is late each step", [0, 1])
    assert changes([before], [Finding("moving_straggler", "warn", "x", [0, 1, 2])]) == []
    assert changes([before], []) == [("info", "the rotation of slow ranks has ended")]


def test_the_gravest_is_told_first_and_a_failure_by_whoever_hears_of_it():
    found = [
        straggler(),
        Finding("loss_not_finite", "critical", "loss is nan", [0]),
        Finding("rank_failed", "critical", ""),
    ]
    assert [text for _, text in changes([], found)] == ["loss is nan", "rank 1 is slow"]


def test_each_host_whose_ranks_wait_for_cores_is_a_finding_of_its_own():
    here, there = (Finding("cpu_starved", "warn", f"{host} is full", [0], subject=host) for host in ("a", "b"))
    assert changes([here], [here, there]) == [("warn", "b is full")]
    assert changes([here, there], [here]) == [("info", "ranks are no longer starved of cores")]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.subject == "rank" and kind.is_announced])
def test_of_a_kind_that_ranks_have_each_for_themselves_every_rank_is_told_and_its_end(kind):
    first, second = straggler(1, kind.name), straggler(2, kind.name)
    assert changes([], [first, second]) == [("warn", "rank 1 is slow"), ("warn", "rank 2 is slow")]
    ((severity, text),) = changes([first, second], [second])
    assert severity == "info"
    assert text.startswith("rank 1 ")


def test_the_end_of_what_a_host_had_names_the_host():
    late = Finding("slow_host", "warn", "host1 is slow", [2, 3], "data", 10, cost_ms=1.0, subject="host1")
    ((severity, text),) = changes([late], [])
    assert severity == "info"
    assert text.startswith("host1 has recovered")


def test_the_line_behind_a_finding_is_told_once_it_is_known():
    there = [costing(20.0)]
    known = [msgspec.structs.replace(there[0], evidence={"line": "dataset.py:57 load"})]
    assert unfolding((0, there), (5, known), (6, known), (90, known)) == [
        (0, "it costs 20.0"),
        (5, "the line that slows rank 1 down is in dataset.py:57 load"),
    ]
    assert unfolding((0, known), (5, known)) == [(0, "it costs 20.0")], "its own sentence has it"
