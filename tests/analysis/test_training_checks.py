"""Test which signs show that ranks train wrongly, and which only look so, in made-up steps and digests."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.replicas import Inputs, Replicas
from ddpmon.messages import DDP, FEW_WEIGHTS, INPUTS, NOT_PARALLEL, Digest
from tests.worlds import own_times, rows, split_of

STEPS, RANKS = 100, 4
RNG = np.random.default_rng(0)
FALLING = 2.0 * np.exp(-np.arange(STEPS) / 50)[:, None] * (1 + 0.1 * RNG.standard_normal((STEPS, 1)))


def told(kind, *, loss=None, rate=None, before=(), first=2, **evidence):
    """The finding of a kind, if there is one. loss, rate: [S, R]"""
    table = rows(own_times(STEPS, RANKS), loss=loss, first=first)
    if rate is not None:
        table["learning_rate"], table["has"] = rate, 3
    known = Evidence(**{"world_size": RANKS, "parallelism": DDP} | evidence)
    return next((one for one in all_findings(split_of(table), known, before) if one.kind == kind), None)


def alike(values):
    return np.broadcast_to(values, (STEPS, RANKS))


def test_losses_that_are_equal_to_the_last_bit_are_told_unless_chance_can_make_them_so():
    assert (
        told("same_data", loss=alike(FALLING)).text
        == "all 4 ranks train on the same samples: equal losses for 100 steps"
    )
    other = FALLING * np.ones((1, RANKS))
    other[:, 3] = np.nextafter(other[:, 3], 9.0)
    assert told("same_data", loss=other) is None
    few = np.round(FALLING / FALLING.max()) * 0.5  # 0 for most of the time
    assert told("same_data", loss=alike(few)) is None
    assert told("same_data", loss=alike(np.float64(0.6931))) is None
    coarse = FALLING.astype(np.float16).astype(np.float64)
    assert told("same_data", loss=alike(coarse)), "half precision has values enough while the loss moves"
    assert told("same_data", loss=alike(FALLING), parallelism=NOT_PARALLEL) is None


def test_losses_that_become_equal_after_a_gap_in_the_steps_are_counted_from_there():
    other = alike(FALLING).copy()
    other[:40, 3] += 1.0
    table = rows(own_times(STEPS, RANKS), loss=other)
    table["step"][40:] += 1000
    found = all_findings(split_of(table), Evidence(world_size=RANKS, parallelism=DDP))
    assert [one.since_step for one in found if one.kind == "same_data"] == [1042]


@pytest.mark.parametrize(
    ("inputs", "is_told"),
    [(Inputs(3, 3, 3), True), (Inputs(3, 2, 3), False), (Inputs(3, 3, 1), False)],
    ids=["the same", "other ones", "always these"],
)
def test_inputs_decide_where_they_were_compared(inputs, is_told):
    assert bool(told("same_data", loss=alike(FALLING), inputs=inputs)) == is_told


def test_inputs_alone_tell_it_of_ranks_with_dropout_of_their_own():
    other = FALLING * RNG.random((STEPS, RANKS))
    assert told("same_data", loss=other, inputs=Inputs(3, 3, 3)) is None
    assert told("same_data", loss=other, inputs=Inputs(4, 4, 4)).text.endswith("inputs were equal all 4 times")


def test_the_rank_with_another_rate_is_named_unless_weights_stay_the_same():
    rate = np.full((STEPS, RANKS), 0.1)
    rate[40:, 1] = 0.05
    finding = told("learning_rates_differ", rate=rate)
    assert (finding.severity, finding.ranks, finding.since_step) == ("warn", [1], 42)
    assert finding.text == "rank 1's learning rate is 0.05, the others' 0.1, since step 42"
    replicas = Replicas()
    for rank in range(RANKS):
        replicas.add(rank, [Digest(50, 0, 7, "0", 50)])
    assert told("learning_rates_differ", rate=rate, same=replicas.last_comparison()) is None
    rounded = np.full((STEPS, RANKS), 0.1) * (1 + 1e-15 * np.arange(RANKS))
    assert told("learning_rates_differ", rate=rounded) is None
    rate[-2:] = 0.1
    assert told("learning_rates_differ", rate=rate) is None
    assert told("learning_rates_differ", rate=np.full((STEPS, RANKS), np.nan)) is None


def test_a_rate_of_0_is_a_warning_after_training_and_a_hint_from_the_start():
    rate = np.full((STEPS, RANKS), 0.1)
    rate[60:] = 0.0
    assert told("learning_rate_zero", rate=rate).severity == "warn"
    assert told("learning_rate_zero", rate=rate[::-1]) is None, "a warm-up"
    assert told("learning_rate_zero", rate=rate * 0).severity == "info"
    assert told("learning_rate_zero", rate=rate * 0, first=500).severity == "warn"


def test_some_skipped_updates_are_usual():
    assert told("updates_skipped", skipped={0: 16}) is None
    assert told("updates_skipped", skipped={0: 20}).severity == "warn"
    assert told("updates_skipped", skipped={0: 95}).severity == "critical"


def test_what_is_meant_for_one_rank_is_no_difference():
    def differ(*values):
        return told("configuration_differs", configurations=dict(enumerate(values)))

    assert (
        differ(*({"--name": f"run-{rank}", "--local_rank": str(7 - rank), "--lr": "0.1"} for rank in range(4))) is None
    )
    hint = differ({"--lr": "0.1"}, {"--lr": "0.1"}, {"--lr": "0.2"}, {"--lr": "0.1"})
    assert (hint.severity, hint.ranks, hint.text) == ("info", [2], "rank 2 has --lr 0.2, the others 0.1")
    fault = differ({"torch": "2.7.0", "--lr": "1"}, {"torch": "2.7.0"}, {"torch": "2.6.0"}, {"torch": "2.7.0"})
    assert (fault.severity, fault.text) == ("warn", "rank 2 has torch 2.6.0, the others 2.7.0; 1 more differ")


def test_a_few_weights_narrow_down_since_when_all_of_them_differ():
    replicas = Replicas()
    for rank in range(2):
        replicas.add(rank, [Digest(100, 0, 5, "0", 300), Digest(150, 0, 6 + rank, "0", 450, of=FEW_WEIGHTS)])
        replicas.add(rank, [Digest(150, 0, rank, "0", 450, of=INPUTS)])
    difference = replicas.difference()
    assert (difference.same_at, difference.step) == (100, 150)
    assert replicas.input_comparison() == Inputs(1, 0, 1)
    text = told("replicas_differ", difference=difference).text
    assert text == "the weights of ranks 0-1 differ since a step between 100 and 150"
    for rank in range(2):
        replicas.add(rank, [Digest(200, 0, 8, "0", 600, of=FEW_WEIGHTS)])
    assert replicas.difference() is None
