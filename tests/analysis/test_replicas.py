"""Replicas that are not the same any more, and gradients that were never synchronised."""

import pytest

from ddpmon.analysis.evidence import Evidence, Unsynchronised
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.replicas import Replicas
from ddpmon.messages import Digest


def digest(step, value, *, model=0, group="0", sequence=None):
    return Digest(step, model, value, group, step * 3 if sequence is None else sequence)


def found_in(told, world_size=4):
    """told: {rank: [Digest]}"""
    replicas = Replicas()
    for rank, digests in told.items():
        replicas.add(rank, digests)
    return all_findings(None, Evidence(world_size=world_size, difference=replicas.difference()))


def test_the_rank_that_differs_from_the_majority_is_named_since_when():
    told = {
        rank: [digest(step, step + 1000 * (rank == 2 and step >= 10)) for step in (1, 10, 100)] for rank in range(4)
    }
    (finding,) = found_in(told)
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == (
        "replicas_differ",
        "critical",
        [2],
        10,
    )
    assert finding.evidence["same_at_step"] == 1
    assert finding.text == "rank 2 has other weights than the rest since a step between 1 and 10"
    assert finding.advice


@pytest.mark.parametrize("values", [[1, 2], [1, 1, 2, 2], [1, 2, 3, 4]])
def test_without_a_majority_nobody_is_singled_out(values):
    (finding,) = found_in({rank: [digest(10, value)] for rank, value in enumerate(values)}, len(values))
    assert finding.ranks == list(range(len(values)))


def test_it_is_withdrawn_when_the_replicas_are_the_same_again():
    told = {rank: [digest(1, 5), digest(10, rank), digest(100, 8)] for rank in range(3)}
    assert found_in(told, 3) == []
    assert len(found_in({rank: digests[:2] for rank, digests in told.items()}, 3)) == 1


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({rank: [digest(step, step * 7) for step in (1, 10, 100)] for rank in range(4)}, "all are equal"),
        ({0: [digest(100, 1, sequence=300)], 1: [digest(100, 2, sequence=312)]}, "of uneven inputs: other moments"),
        ({0: [digest(10, 1), digest(100, 2)], 1: [digest(10, 1)]}, "one has not told of the second moment yet"),
    ],
)
def test_what_is_equal_or_of_different_moments_is_no_difference(told, why):
    assert found_in(told, len(told)) == [], why


def test_models_and_groups_are_compared_among_themselves():
    told = {
        rank: [digest(10, 50 + rank // 2, group=f"stage{rank // 2}"), digest(10, 9, model=1, group="all")]
        for rank in range(4)
    }
    assert found_in(told) == []
    told[3][1].value = 8
    (finding,) = found_in(told)
    assert finding.ranks == [3]
    assert "model 1" in finding.text


def unsynchronised(*counts, steps=200, last_at=200, told=(), all_came_on=True):
    """told: {rank: [Digest]}"""
    replicas = Replicas()
    for rank, digests in dict(told).items():
        replicas.add(rank, digests)
    every = [Unsynchronised(rank, count, last_at, steps) for rank, count in enumerate(counts)]
    return all_findings(
        None,
        Evidence(
            world_size=len(counts),
            step=steps if all_came_on else 0,
            unsynchronised=every,
            difference=replicas.difference(),
            same=replicas.last_comparison(),
        ),
    )


def apart(ranks, step=10, updates=10):
    """Digests of ranks that are all different."""
    return {rank: [digest(1, 7), Digest(step, 0, rank, "0", 30, updates)] for rank in ranks}


def test_gradients_that_ddp_never_reduced_are_critical_where_replicas_differ_and_tell_of_it_alone():
    told = {rank: [digest(1, 7), digest(10, rank == 1)] for rank in range(4)}
    (finding,) = unsynchronised(0, 150, 0, 0, told=told)
    assert (finding.kind, finding.severity, finding.ranks) == ("gradients_not_synchronised", "critical", [1])
    assert finding.text == "rank 1 updated weights 150 times with gradients DDP never reduced; replicas differ"
    assert (finding.since_step, finding.evidence["same_at_step"]) == (10, 1)
    assert "model.module" in finding.advice
    (everyone,) = unsynchronised(150, 150, told=apart(range(2)))
    assert everyone.text.startswith("every rank updated")


def test_without_a_comparison_they_are_no_more_than_a_hint():
    (finding,) = unsynchronised(150, 150)
    assert (finding.kind, finding.severity) == ("gradients_not_synchronised", "info")
    assert unsynchronised(0, 4, all_came_on=False) == [], "the other rank's first records are on their way"
    (finding,) = unsynchronised(150, 150, told={rank: [digest(100, 7)] for rank in range(2)})  # of before them
    assert (finding.severity, finding.evidence["same_at_step"]) == ("info", 100)


@pytest.mark.parametrize("same", [Digest(200, 0, 9, "0", 600), Digest(10, 0, 9, "0", 30, 10)])
def test_replicas_that_are_the_same_after_them_are_left_alone(same):
    """A script averages gradients by itself, or steps another model beside the one in DDP."""
    assert unsynchronised(150, 150, told={rank: [same] for rank in range(2)}) == []


def test_a_rank_that_differs_for_another_reason_is_told_beside_the_hint():
    told = {rank: [digest(10, rank == 2)] for rank in range(4)}
    found = {finding.kind: finding for finding in unsynchronised(150, 0, 0, 0, told=told)}
    assert (found["replicas_differ"].ranks, found["replicas_differ"].severity) == ([2], "critical")
    assert found["gradients_not_synchronised"].severity == "info"


def test_what_ranks_told_after_different_counts_of_such_steps_is_not_compared():
    """One rank trains a further model alone: what it tells in between is of no common moment."""
    told = {0: [Digest(10, 0, 1, "0", 30), Digest(10, 0, 2, "0", 30, 10)], 1: [Digest(10, 0, 1, "0", 30)]}
    assert unsynchronised(10, 0, told=told, steps=10, last_at=10) == []


def test_one_such_step_or_some_long_ago_are_no_finding():
    assert unsynchronised(0, 1) == []
    assert unsynchronised(0, 50, steps=5000, last_at=300) == []


def test_a_model_whose_weights_never_change_is_found():
    def seen(*values):
        replicas = Replicas()
        for place, value in enumerate(values):
            for rank in (0, 1):
                replicas.add(rank, [Digest(1 + 10 * (place // 2), 0, value, "0", 5 + 10 * (place // 2), place % 2)])
        return replicas.unchanged()

    assert (seen(7, 7, 7).first, seen(7, 7, 7).last) == (1, 11), "two of them in one step"
    assert seen(7, 7, 8) is None
    assert seen(7, 7) is None, "a single step shows nothing"


def test_a_digest_that_only_one_rank_has_sent_yet_changes_nothing():
    replicas = Replicas()
    for rank in (0, 1):
        replicas.add(rank, [Digest(1, 0, 7, "0", 5), Digest(10, 0, 7, "0", 30)])
    replicas.add(0, [Digest(100, 0, 7, "0", 300)])
    assert replicas.unchanged().last == 10
    replicas.add(1, [Digest(100, 0, 7, "0", 300)])
    assert replicas.unchanged().last == 100
