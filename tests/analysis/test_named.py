"""Test the phases that scripts name: means of each rank, and which name explains a straggler."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.steps.named_phases import MAX_REPORTED_NAMES, NamedPhases
from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.messages import Step
from tests.findings import judged, unfold
from tests.worlds import own_times, records, world_of


def steps(told, **names):
    """The same records; names: per name its µs, one for each rank."""
    return {
        rank: [msgspec.structs.replace(s, named_us={name: us[rank] for name, us in names.items()}) for s in records]
        for rank, records in told.items()
    }


def rows_of(told):
    return Rows(tuple(told), [list(row) for row in zip(*told.values(), strict=True)])


def found(own, **names):
    told = steps(records(own), **names)
    named = NamedPhases(len(own))
    rows = rows_of(told)
    named.append(rows.steps_at(slice(0, 7)))
    named.append(rows.steps_at(slice(7, None)))
    return judged(world_of(told), Evidence(named=named))


def late(rank=2, ms=20):
    own = own_times(100, 4, noise=0.02)
    own[:, rank, 0] += ms
    return own


def test_a_straggler_is_told_with_the_name_it_loses_its_time_in():
    (finding,) = found(late(), augment=[1500, 1400, 21_500, 1500], other=[900] * 4)
    assert finding.evidence["named"] == "augment"
    assert finding.evidence["named_ms"] == pytest.approx(21.5)
    assert finding.evidence["peers_named_ms"] == pytest.approx(1.5)
    assert finding.advice.startswith(
        "Look in augment: rank 2 spends 21.5 ms a step there, and its peers spend 1.5 ms. Its batches"
    )


def test_time_outside_of_all_phases_is_described_by_what_is_around_it():
    (finding,) = found(late(), **{"before backward": [1500, 1400, 21_500, 1500]})
    assert finding.advice.startswith("Look at what runs between forward and backward: rank 2 spends 21.5 ms a step")


def test_of_names_inside_each_other_the_innermost_is_told():
    (finding,) = found(late(), load=[3000, 3000, 23_500, 3000], augment=[1500, 1500, 21_500, 1500])
    assert finding.evidence["named"] == "augment"


def test_a_name_that_explains_less_than_half_is_not_told():
    (finding,) = found(late(), augment=[1500, 1500, 9000, 1500])
    assert "named" not in finding.evidence


def test_a_name_only_the_late_rank_has_is_told():
    told = records(late())
    for step in told[2]:
        step.named_us = {"checkpoint": 20_000}
    named = NamedPhases(100)
    named.append(rows_of(told))
    (finding,) = judged(world_of(told), Evidence(named=named))
    assert (finding.evidence["named"], finding.evidence["peers_named_ms"]) == ("checkpoint", 0.0)


def test_late_ranks_are_compared_with_those_that_are_not():
    own = late()
    own[:, 3, 0] += 19
    (both,) = found(own, augment=[1500, 1500, 21_500, 20_500])
    assert (both.ranks, both.evidence["named"]) == ([2, 3], "augment")
    assert both.evidence["named_ms"] == pytest.approx(21.5)
    assert both.evidence["peers_named_ms"] == pytest.approx(1.5)
    assert both.advice.startswith("Look in augment: rank 2 spends 21.5 ms a step there, and its peers spend 1.5 ms.")


def test_the_name_stays_when_the_slowdown_is_over():
    own = own_times(300, 4, noise=0.02)
    own[100:200, 2, 0] += 20
    told = records(own)
    for rank, each in told.items():
        for place, step in enumerate(each):
            step.named_us = {"augment": 21_500 if rank == 2 and 100 <= place < 200 else 1500}
    named = NamedPhases(300)
    named.append(rows_of(told))
    moments = unfold(world_of(told), Evidence(named=named), every=50)
    over = [f.advice for moment in moments for f in moment.findings if f.until_step is not None]
    assert len(over) == 2
    name = "Look in augment: rank 2 spends 21.5 ms a step there, and its peers spend 1.5 ms."
    assert set(over) == {
        f"{name} The slowdown has ended. Look at what else ran on the machine of rank 2 at that time, and at its log."
    }


NAMES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9000))


def named_in(told, kept):
    """Names of so many last steps, and the world of all steps. told: names of each rank in each step."""
    named = NamedPhases(kept)
    steps = [[Step(number, 0, 0, 0, 0, 0, 0, 0, named_us=names) for names in row] for number, row in enumerate(told, 1)]
    ranks = range(len(told[0]))
    for step in steps:
        named.append(Rows(ranks, [step]))
    return named, split_waits(Rows(ranks, steps))


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=30))
def test_means_are_over_all_steps_of_the_window(told):
    named, world = named_in(told, 1000)
    means = named.mean_ms(world)
    for name in "abc":
        for rank in (0, 1):
            total = sum(row[rank].get(name, 0) for row in told) / 1e3
            assert means.get(name, [0.0] * 2)[rank] * len(told) == pytest.approx(total, rel=1e-5)


def test_only_the_last_steps_are_kept():
    named, world = named_in([[{"a": number * 1000}] for number in range(1, 101)], 10)
    assert len(named._named) == 10
    assert named.mean_ms(world.last_steps(10))["a"][0] == pytest.approx(95.5)
    assert named.mean_ms(world.last_steps(2))["a"][0] == pytest.approx(99.5)


def test_a_script_that_names_every_step_anew_gets_the_largest():
    named, world = named_in([[{f"step {number}": number}] for number in range(1, 201)], 1000)
    assert set(named.mean_ms(world)) == {f"step {n}" for n in range(201 - MAX_REPORTED_NAMES, 201)}


def test_time_before_forward_that_is_worth_having_is_told():
    """Loading without a DataLoader: it is nobody's fault, and no warning."""
    own = own_times(100, 4, noise=0.02)
    own[:, :, 4] += 12
    (finding,) = found(own, **{"before forward": [12_000] * 4})
    assert (finding.kind, finding.severity, finding.phase) == ("gap", "info", "other")
    assert finding.evidence["gap_ms"] == pytest.approx(12)
    assert finding.text.startswith("12.0 ms of each step pass before forward, outside of any DataLoader: 2")
    assert found(own_times(100, 4, noise=0.02), **{"before forward": [1_000] * 4}) == []


def test_a_gap_as_long_as_the_step_gains_no_nonsense():
    own = own_times(100, 4)
    own[:, :, 4] += 12
    length = own[0, 0].sum() + 6
    for beyond in (0, 5):
        gap = next(
            one for one in found(own, **{"before forward": [round((length + beyond) * 1000)] * 4}) if one.kind == "gap"
        )
        assert gap.evidence["gain"] > 1


def test_a_gap_before_backward_is_one_with_a_forward_that_nobody_measures():
    """Nor does one long step of a hundred make a gap of each."""
    own = own_times(100, 4, noise=0.02)
    own[:, :, 4] += 30
    told = steps(records(own), **{"before backward": [30_000] * 4})
    named = NamedPhases(100)
    named.append(rows_of(told))
    evidence = Evidence(named=named, unmeasured=["forward"])
    (gap,) = [one for one in judged(world_of(told), evidence) if one.kind == "gap"]
    assert gap.text == "30.0 ms of each step pass before backward, the forward included: 47%"
    assert "DataLoader" not in gap.advice
    assert "ddpmon.phase" in gap.advice
    own = own_times(100, 4, noise=0.02)
    own[7, :, 4] += 3000
    assert found(own, **{"before backward": [30_000] * 4}) == []
