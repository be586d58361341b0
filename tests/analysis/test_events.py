"""What is told of findings that come and go."""

from ddpmon.analysis.events import changes
from ddpmon.messages import Finding


def straggler(rank=1, kind="straggler", until=None, severity="warn"):
    return Finding(kind, severity, f"rank {rank} is slow", [rank], since_step=101, until_step=until, cost_ms=20.0)


def test_a_finding_is_told_once_however_its_numbers_change():
    first = straggler()
    assert changes([], [first]) == [("warn", "rank 1 is slow")]
    assert changes([first], [Finding("straggler", "warn", "rank 1 is slower", [1])]) == []


def test_a_rank_that_keeps_up_again_is_told_with_what_it_had_cost():
    assert changes([straggler()], [], last_step=600) == [("info", "rank 1 keeps up again; it cost 10.0 s")]
    over = straggler(until=150, severity="info")
    assert changes([straggler()], [over], last_step=600) == [("info", "rank 1 keeps up again; it cost 1.0 s")]
    assert changes([over], [over]) == []
    assert changes([over], []) == []


def test_a_late_rank_found_to_have_more_work_is_the_same_late_rank():
    assert changes([straggler()], [straggler(kind="load_imbalance")]) == []


def test_a_burst_that_was_over_when_it_showed_is_told_once():
    over = straggler(until=150, severity="info")
    assert changes([], [over]) == [("info", "rank 1 is slow")]


def test_another_rank_is_another_finding():
    assert changes([straggler(1)], [straggler(1), straggler(2)]) == [("warn", "rank 2 is slow")]


def test_a_cause_of_the_whole_world_stays_one_when_ranks_join_in():
    before = Finding("moving_straggler", "warn", "another rank is late each step", [0, 1])
    assert changes([before], [Finding("moving_straggler", "warn", "x", [0, 1, 2])]) == []
    assert changes([before], []) == [("info", "ranks no longer take turns in being late")]


def test_the_gravest_is_told_first_and_a_failure_by_whoever_hears_of_it():
    found = [
        straggler(),
        Finding("loss_not_finite", "critical", "loss is nan", [0]),
        Finding("rank_failed", "critical", ""),
    ]
    assert [text for _, text in changes([], found)] == ["loss is nan", "rank 1 is slow"]
