"""Test which findings made-up worlds have, and which they do not have."""

import pytest

from ddpmon.analysis.evidence import BadLoss, Evidence
from ddpmon.analysis.verdict import ended_sentence, running_sentence
from ddpmon.messages import OWN_PHASES, Loader, Setup
from tests.findings import judged
from tests.worlds import own_times, world_with

NOTHING = Evidence()


def found_in(own, before=(), **kwargs):
    return judged(world_with(own, **kwargs), NOTHING, before)


@pytest.mark.parametrize(("rank", "phase"), [(0, "data"), (3, "optimizer")])
def test_a_persistent_straggler_is_named_with_its_phase_cost_and_gain(rank, phase):
    own = own_times(80, 4, noise=0.02)
    own[:, rank, OWN_PHASES.index(phase)] += 20
    (finding,) = found_in(own)
    assert (finding.kind, finding.severity, finding.ranks, finding.phase) == ("straggler", "warn", [rank], phase)
    assert finding.cost_ms == pytest.approx(20, abs=1)
    assert finding.evidence["gain"] == pytest.approx(53 / 33, abs=0.05)
    assert finding.text.startswith(f"rank {rank} is slow: +")
    assert len(finding.text) <= 76
    assert finding.advice


def test_a_slow_rank_comes_before_a_mistake_whose_cost_is_not_measured():
    own = own_times(80, 2, noise=0.02)
    own[:, 1, 0] += 60
    setups = {rank: Setup([Loader(0, repeats=2)]) for rank in range(2)}
    found = judged(world_with(own), Evidence(world_size=2, setups=setups))
    assert [finding.kind for finding in found] == ["straggler", "same_order"]
    assert running_sentence(found, None).text.startswith("rank 1 is slow: ")
    assert ended_sentence("done", found, 80, 9.0, None).findings == (found[0],)


def test_too_few_steps_tell_nothing():
    """Noise could explain them. Six steps of twice the peers' time are another matter (test_calm.py)."""
    own = own_times(19, 4)
    own[:, 0, 0] += 5
    assert found_in(own) == []
    assert found_in(own[:5]) == []


@pytest.mark.parametrize(("attached", "since"), [(False, "from the start"), (True, "since the attach")])
def test_a_rank_that_is_slow_from_the_first_step_on_is_slow_since_the_attach_for_all_that_is_known(attached, since):
    own = own_times(200, 2, noise=0.02)
    own[:, 1, 2] += 20
    (finding,) = judged(world_with(own), Evidence(attached=attached))
    assert f"backward {since}" in finding.text


def test_a_rank_with_more_samples_is_a_matter_of_load_not_of_speed():
    own = own_times(80, 4, noise=0.02)
    own[:, 1] *= 1.5
    (finding,) = found_in(own, samples=[64, 96, 64, 64])
    assert (finding.kind, finding.ranks) == ("load_imbalance", [1])
    assert "50% more samples" in finding.text
    assert "96" in finding.advice
    assert len(finding.text) <= 76


def test_a_loss_that_is_no_number_anywhere_names_all_ranks():
    told = [BadLoss(rank, 1, float("nan")) for rank in (3, 0, 2, 1)]
    (finding,) = judged(None, Evidence(bad_losses=told, world_size=4))
    assert finding.text == "loss is nan on all 4 ranks since step 1"
    assert (finding.ranks, finding.evidence["first_steps"]) == ([0, 1, 2, 3], {str(rank): 1 for rank in range(4)})


def test_ranks_that_the_all_reduce_brought_it_to_are_not_named():
    told = [BadLoss(0, 121, float("nan")), BadLoss(2, 120, float("inf")), BadLoss(3, 120, float("nan"))]
    (finding,) = judged(None, Evidence(bad_losses=told, world_size=4))
    assert finding.text == "loss is inf or nan on ranks 2-3 since step 120"
    assert (finding.ranks, finding.evidence["first_steps"]) == ([2, 3], {"0": 121, "2": 120, "3": 120})


@pytest.mark.parametrize(("lost", "severity"), [(1, "info"), (50, "warn")])
def test_lost_telemetry_is_said_and_weighs_by_its_share(lost, severity):
    (finding,) = judged(None, Evidence(records=1000 - lost, lost=lost))
    assert (finding.kind, finding.severity) == ("telemetry_lost", severity)


def test_lost_telemetry_names_the_ranks_it_is_of_unless_it_is_of_all():
    (some,) = judged(None, Evidence(records=900, lost=100, lost_ranks=[2], world_size=4))
    assert some.text == "100 records of steps of rank 2 were lost (10.0%); the report leaves those steps out"
    assert some.ranks == [2]
    (every,) = judged(None, Evidence(records=900, lost=100, lost_ranks=[0, 1, 2, 3], world_size=4))
    assert every.text == "100 records of steps were lost (10.0%); the report leaves those steps out"
