"""A host all of whose ranks are late together is one finding about the host; anything less stays with ranks."""

from types import SimpleNamespace

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds.slow_words import gain_words
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.messages import OWN_PHASES
from tests.findings import judged, unfold
from tests.worlds import own_times, world_with

DATA, BACKWARD = OWN_PHASES.index("data"), OWN_PHASES.index("backward")


def placed(ranks, each, **values):
    """Conditions of ranks, `each` so many on a host. values: one for all, or by rank."""
    given = [{k: v[rank] if isinstance(v, list) else v for k, v in values.items()} for rank in range(ranks)]
    return [Conditions(rank, f"host{rank // each}", **more) for rank, more in enumerate(given)]


def world(ranks, late, *, ms=8.0, phase=DATA, noise=0.05, seed=0, steps=200, **made):
    own = own_times(steps, ranks, noise=noise, seed=seed)
    own[:, list(late), phase] += ms
    return world_with(own, **made)


def found(ranks, each, late, before=(), conditions=None, **made):
    evidence = Evidence(world_size=ranks, conditions=conditions or placed(ranks, each))
    told = judged(world(ranks, late, **made), evidence, before)
    assert all(len(finding.text) <= 76 for finding in told)
    return [finding for finding in told if finding.severity != "info"]


@pytest.mark.parametrize(("ranks", "each"), [(4, 2), (6, 2), (32, 8)])
def test_a_host_whose_ranks_are_all_late_is_one_finding_about_it(ranks, each):
    late = list(range(each, 2 * each))
    (finding,) = found(ranks, each, late)
    assert (finding.kind, finding.subject, finding.ranks, finding.phase) == ("slow_host", "host1", late, "data")
    assert finding.since_step <= 6
    assert finding.cost_ms == pytest.approx(8.0, abs=1.0)
    assert finding.evidence["gain"] == pytest.approx(1 + 8 / (27 + 6 + 2), abs=0.06)
    assert finding.evidence["phase_excess_ms"] == pytest.approx(8.0, abs=0.5)
    whose = "both ranks" if each == 2 else f"all {each} ranks"
    assert finding.text.startswith(f"host1 is slow: {whose} +")
    assert "host1" in finding.advice


@pytest.mark.parametrize(
    ("ranks", "each", "late"),
    [
        (16, 8, (0, 1)),  # two of eight
        (16, 8, (0, 1, 2, 3)),  # half
        (4, 2, (1,)),
        (8, 2, (0, 2)),  # one on each of two
        (4, 1, (2,)),  # the only one there
        (4, 4, (0, 1)),  # a run of one machine
        (2, 1, (1,)),
    ],
)
def test_less_than_all_of_a_host_stays_with_its_ranks(ranks, each, late):
    told = found(ranks, each, late)
    assert {finding.kind for finding in told} == {"several_stragglers" if len(late) > 1 else "straggler"}
    assert sorted(rank for finding in told for rank in finding.ranks) == list(late)


def test_the_only_rank_of_a_host_is_named_and_its_host_with_it():
    (finding,) = found(4, 1, (2,))
    assert finding.text.startswith("rank 2 is slow")
    assert "It is the only rank on host2" in finding.advice


@pytest.mark.parametrize("seed", range(2))
def test_noise_that_all_ranks_of_a_host_share_makes_no_slow_host(seed):
    rng = np.random.default_rng(seed)
    own = own_times(400, 8, noise=0.03, seed=seed)
    together = np.zeros((400, 2))
    for step in range(1, 400):
        together[step] = 0.9 * together[step - 1] + 0.44 * rng.standard_normal(2)
    own *= 1 + 0.05 * np.repeat(together, 4, axis=1)[..., None]
    told = judged(world_with(own), Evidence(world_size=8, conditions=placed(8, 4)))
    assert [finding for finding in told if finding.severity != "info"] == []


def test_ranks_that_have_more_to_do_are_not_a_slow_host():
    own = own_times(200, 6, noise=0.02)
    own[:, :2] *= 1.3
    samples = [84, 84, 64, 64, 64, 64]
    told = judged(world_with(own, samples=samples), Evidence(world_size=6, conditions=placed(6, 2)))
    assert {finding.kind for finding in told} == {"load_imbalance"}


def test_a_rank_elsewhere_that_is_late_too_is_told_beside_it():
    own = own_times(300, 16, noise=0.03)
    own[:, :4, DATA] += 10
    own[:, 9, BACKWARD] += 11
    told = judged(world_with(own), Evidence(world_size=16, conditions=placed(16, 4)))
    by_kind = {finding.kind: finding for finding in told if finding.severity != "info"}
    assert by_kind.keys() == {"slow_host", "straggler"}
    assert (by_kind["slow_host"].ranks, by_kind["straggler"].ranks) == ([0, 1, 2, 3], [9])
    for finding in by_kind.values():
        assert finding.evidence["gain_together"] > finding.evidence["gain"]
    assert by_kind["slow_host"].evidence["with_ranks"] == [9]
    assert by_kind["straggler"].evidence["with_ranks"] == [0, 1, 2, 3]


def test_all_late_ranks_are_those_of_the_host_and_those_elsewhere():
    of_host = SimpleNamespace(
        slowdown=SimpleNamespace(ranks=(4, 5, 6, 7)), with_ranks=[9, 12], gain_together=1.3, world_size=16
    )
    assert gain_words(of_host, 41) == "; 1.30x faster if all 6 are fixed"
    assert gain_words(of_host, 51) == "; 1.30x faster only if ranks 9, 12 are fixed too"


CAUSES = [
    ("gpu_clock", BACKWARD, {"gpu_clock_mhz": [1750.0, 1745.0, 1200.0, 1210.0]}, "GPUs at 1,205 of 1,748 MHz"),
    ("gpu_throttled", BACKWARD, {"gpu_throttled": [(), (), ("thermal",), ("thermal",)]}, "GPUs throttled: thermal"),
    ("cpu_starved", BACKWARD, {"starved_share": [0.0, 0.01, 0.3, 0.3]}, "starved 30% of the time"),
    ("page_faults", DATA, {"major_faults_per_s": [0.0, 1.0, 220.0, 230.0]}, "225 page faults/s from disk"),
    ("loader_workers", DATA, {"loader_workers": [8, 8, 2, 2]}, "2 workers, peers 8"),
    ("reads", DATA, {"read_bytes_per_s": [1e5, 0.0, 84e6, 84e6]}, "reads 80.1 MiB/s from disk"),
    ("storage", DATA, {"io_wait_share": [0.01, 0.01, 0.6, 0.6]}, "waits 60% for storage"),
    ("gpu", BACKWARD, {"device_name": ["H100", "H100", "A100", "A100"]}, "on A100, others H100"),
]


@pytest.mark.parametrize(("name", "phase", "values", "words"), CAUSES)
def test_what_sets_its_machine_apart_is_its_cause(name, phase, values, words):
    (finding,) = found(4, 2, (2, 3), conditions=placed(4, 2, **values), phase=phase)
    assert finding.evidence["cause"] == name
    assert words in finding.text
    assert "host1" in finding.advice
    assert "this machine does not differ from the others" not in finding.advice
    (alike,) = found(4, 2, (2, 3), conditions=placed(4, 2, **{k: v[2] for k, v in values.items()}), phase=phase)
    assert "cause" not in alike.evidence
    assert "this machine does not differ from the others" in alike.advice


def test_what_its_machine_sends_and_reads_stands_beside_that_of_others():
    means = [{"sent": 4e6, "read": 1e6}, {"sent": 4e6, "read": 1e6}, {"sent": 1e6, "read": 2e6}, {"sent": 1e6}]
    (finding,) = found(4, 2, (2, 3), conditions=placed(4, 2, means=means))
    assert (finding.evidence["sent_bytes_per_s"], finding.evidence["peers_sent_bytes_per_s"]) == (1e6, 4e6)
    assert (finding.evidence["read_bytes_per_s"], finding.evidence["peers_read_bytes_per_s"]) == (2e6, 1e6)


def test_a_host_is_told_once_from_its_first_step_and_once_when_it_is_over():
    own = own_times(700, 8, noise=0.05)
    own[200:450, 4:, DATA] += 8
    moments = unfold(world_with(own), Evidence(world_size=8, conditions=placed(8, 4)), every=50)
    began, ended = (event.text for moment in moments for event in moment.events)
    assert began.startswith("host1 is slow: all 4 ranks +")
    assert ended.startswith("host1 has recovered")
    for moment in moments:
        lasting = [finding for finding in moment.findings if finding.until_step is None]
        assert bool(lasting) == (250 <= moment.steps <= 450)
        assert {(finding.kind, finding.since_step) for finding in lasting} <= {("slow_host", 202)}


def test_the_rest_of_a_host_that_becomes_slow_later_ends_nothing_that_was_told_of_its_first_rank():
    own = own_times(500, 8, noise=0.03)
    own[100:, 6, DATA] += 8
    own[300:, [4, 5, 7], DATA] += 8
    moments = unfold(world_with(own), Evidence(world_size=8, conditions=placed(8, 4)), every=50)
    texts = [event.text for moment in moments for event in moment.events]
    assert [text.partition(":")[0] for text in texts] == ["rank 6 is slow", "ranks 4-5, 7 are slow"]
