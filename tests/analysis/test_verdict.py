"""States and the sentence about them."""

import pytest

from ddpmon.analysis import verdict
from ddpmon.analysis.life import Signs, state
from ddpmon.analysis.summary import summarise
from ddpmon.analysis.verdict import Waiting
from ddpmon.messages import Finding
from tests.worlds import own_times, records, world_of


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        (Signs("running"), "waiting"),
        (Signs("running", steps=1), "running"),
        (Signs("running", steps=1, slow=True), "slow"),
        (Signs("running", steps=9, idle_s=10.1), "stalled"),
        (Signs("running", steps=9, idle_s=30, step_s=5), "running"),
        (Signs("running", steps=9, idle_s=41, step_s=5), "stalled"),
        (Signs("running", steps=9, idle_s=60, all_left=True), "running"),
        (Signs("done", steps=9, idle_s=99), "done"),
        (Signs("failed"), "failed"),
        (Signs("stopped", slow=True), "stopped"),
        (Signs("lost", steps=3), "lost"),
    ],
)
def test_the_state_follows_from_the_signs(signs, expected):
    assert state(signs) == expected


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Waiting(4), ["hub is up", "torchrun"]),
        (Waiting(4, launcher=True), ["torchrun is starting", "4 ranks to come"]),
        (Waiting(1, launcher=True), ["torchrun is starting", "1 rank to come"]),
        (Waiting(0), ["the command is about to start"]),
        (Waiting(0, launcher=True), ["the command is running; no rank was heard yet"]),
        (Waiting(4, True, {}, frozenset(range(4))), ["0/4 ranks connected", "importing torch: all"]),
        (Waiting(4, True, {0: 1, 1: 2}, frozenset(range(3))), ["2/4", "importing torch: 2", "not started: 3"]),
        (Waiting(4, True, {0: 1, 1: 2}, frozenset(range(3))), ["init_process_group: 0", "building the model: 1"]),
        (Waiting(2, True, {0: 3, 1: 3}, frozenset({0, 1})), ["2/2", "in the first step: all"]),
    ],
)
def test_while_waiting_it_says_for_what(facts, words):
    sentence = verdict.waiting(facts)
    for word in words:
        assert word in sentence


def test_many_ranks_are_named_in_few_words():
    assert verdict.rank_list([3, 1, 2, 7], 64) == "1-3 7"
    assert verdict.rank_list(range(64), 64) == "all"
    assert verdict.rank_list(range(0, 64, 2), 64) == "0 2 4 6 8 10 … (32)"


def test_a_clean_run_says_how_even_it_is():
    own = own_times(100, 4)
    own[:, 1, 0] += 1  # 4% of 27 ms
    sentence, severity = verdict.running([], summarise(world_of(records(own))))
    assert (sentence, severity) == ("all ranks within 5% of the median", "info")


def test_the_gravest_finding_speaks():
    minor = Finding("telemetry_lost", "info", "a few lost")
    slow = Finding("straggler", "warn", "rank 1 is slow")
    bad = Finding("loss_not_finite", "critical", "loss is nan")
    assert verdict.running([minor, slow, bad], None) == ("loss is nan", "critical")
    assert verdict.running([minor, slow], None) == ("rank 1 is slow", "warn")
    assert verdict.running([minor], None)[1] == "info"


def test_a_stall_names_the_rank_that_is_behind_or_where_each_is():
    behind = verdict.stalled(34, {0: 12, 1: 11, 2: 12}, {0: "backward", 1: "data", 2: "backward"}, 3)
    assert behind == "no rank finished a step for 34 s; rank 1 at step 11, the others at 12"
    even = verdict.stalled(34, {0: 12, 1: 12, 2: 12}, {0: "backward", 1: "data", 2: "backward"}, 3)
    assert even.endswith("; 1 in data; 0 2 in backward")


def test_a_run_that_ended_well_without_a_step_is_worth_a_look():
    sentence, severity = verdict.ended("done", [], 0, 3.0, None)
    assert sentence == "done in 3.0 s: no training step was seen"
    assert severity == "warn"


def test_a_run_that_ended_well_keeps_what_held_it_back():
    slow = Finding("straggler", "warn", "rank 1 is slow")
    assert verdict.ended("done", [slow], 1200, 192, None) == ("done: 1,200 steps in 3m12s; rank 1 is slow", "warn")
