"""Two runs side by side: what is claimed, and what is not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.analysis.compare import EXCLUDED_FIRST_STEPS, MIN_COMPARED_STEPS, compare_runs, first_settled_step
from ddpmon.analysis.difference import format_ratio, interval, notes, sentence
from ddpmon.analysis.statistics.resampling import Ratio
from ddpmon.analysis.steps.summary import summarise
from ddpmon.messages import Finding
from tests.findings import judged
from tests.worlds import own_times, world_with


def run(own=None, *, steps=300, ranks=4, late_ms=0.0, seed=0, **told):
    """The world of a run; late_ms: rank 2's data takes so much longer."""
    if own is None:
        own = own_times(steps, ranks, noise=0.05, seed=seed)
        own[:, 2, 0] += late_ms
    return world_with(own, **told)


def falling(steps, begin=2.0, rate=0.01, ranks=4, seed=0):
    """Losses that fall with every step."""
    noise = 0.01 * np.random.default_rng(seed).standard_normal((steps, ranks))
    return begin * np.exp(-rate * np.arange(steps))[:, None] + noise


def explained(a, b):
    """The comparison with what was found in each."""
    return compare_runs(a, b, judged(a), judged(b))


def test_a_fix_that_helped_is_told_with_its_reason():
    found = explained(run(late_ms=20), run(seed=1))
    assert found.outcome == "faster"
    assert found.median.value == pytest.approx(54.2 / 34.7, rel=0.02)
    assert found.median.low < 54.2 / 34.7 < found.median.high * 1.02
    assert found.median.high - found.median.low < 0.03
    assert [f.kind for f in found.gone] == ["straggler"]
    assert not found.new
    told = sentence(found)
    assert told.startswith("B is 1.56x as fast as A (95% 1.5")
    assert ": rank 2's data, 19." in told
    assert told.endswith(" ms a step in A, is gone")


def test_a_regression_is_told_with_its_reason():
    found = explained(run(seed=1), run(late_ms=20))
    assert found.outcome == "slower"
    assert found.slower_by == pytest.approx(0.56, abs=0.02)
    assert [f.kind for f in found.new] == ["straggler"]
    assert sentence(found).startswith("B takes 1.56x as long as A (95% 1.5")
    assert sentence(found).endswith(" ms a step in B, is new")


def test_what_no_finding_explains_is_told_by_the_phase_of_the_critical_rank():
    faster = own_times(300, 4, noise=0.05)
    faster[..., 2] *= 0.6
    found = compare_runs(run(), run(faster))
    assert found.outcome == "faster"
    assert ": backward of the slowest rank takes " in sentence(found)
    assert found.a.path_ms.sum() == pytest.approx(found.a.step_ms_mean, rel=1e-3)


def test_a_finding_that_cost_little_is_no_reason():
    a, b = run(), run(own_times(300, 4, noise=0.05) * 0.5)
    small = Finding("straggler", "warn", "rank 1 is slow", [1], "data", cost_ms=0.4)
    assert "rank 1" not in sentence(compare_runs(a, b, [small], []))
    large = Finding("straggler", "warn", "", [1], "data", cost_ms=9.0)
    assert "rank 1's data, 9.0 ms a step in A, is gone" in sentence(compare_runs(a, b, [large], []))


def test_the_same_again_is_no_difference():
    found = compare_runs(run(), run(seed=1))
    assert found.outcome == "same"
    assert found.slower_by == 0
    assert sentence(found).startswith("295 steps show no significant difference (B is ")


def test_a_difference_smaller_than_that_of_two_runs_of_the_same_is_none():
    own = own_times(2000, 2)
    own += 0.002 * np.random.default_rng(0).standard_normal(own.shape)
    found = compare_runs(run(own), run(own * 0.996))
    assert found.median.is_certain
    assert found.outcome == "same"
    assert sentence(found).startswith("A and B are equally fast, to within 1%: B is 1.003")


def test_pauses_in_few_steps_show_in_the_mean():
    own = own_times(400, 4, noise=0.05)
    own[::20, 1, 4] += 400
    found = compare_runs(run(), run(own))
    assert found.by_mean
    assert found.outcome == "slower"
    assert found.slower_by > 0.3
    assert "in the mean of all steps" in sentence(found)
    assert any("a few long steps explain the difference" in note for note in notes(found))


def test_steps_that_end_late_on_one_rank_take_no_longer():
    even = run()
    shift = np.where(np.arange(len(even)) % 2, -5.0, 5.0)
    moved = {name: getattr(even, name).copy() for name in ("length_ms", "transfer_ms")}
    for array in moved.values():
        array[:, 1] += shift  # A step that ends 5 ms late on rank 1 begins late there.
    uneven = replace(even, **moved)
    found = compare_runs(even, uneven)
    assert found.b.step_ms_mean == pytest.approx(found.a.step_ms_mean, rel=1e-3)
    assert found.b.per_s("samples") == pytest.approx(found.a.per_s("samples"), rel=1e-3)
    compared = uneven.steps_between(found.b.left_out, len(uneven))
    assert found.b.step_ms_mean == pytest.approx(summarise(compared).step_ms_mean), "as the report and the screens say"
    assert found.b.step_ms_p50 == pytest.approx(summarise(compared).step_ms_p50)


def test_the_speed_names_the_median_step_where_the_mean_step_differs():
    own = own_times(400, 4, noise=0.05, seed=1)
    own[::20, 1, 4] += 40
    found = compare_runs(run(late_ms=20), run(own))
    assert not found.by_mean
    assert " as fast as A, in the median step (95% " in sentence(found)


def test_a_run_that_drifts_is_called_uneven_and_widens_the_interval():
    own = own_times(300, 4, noise=0.05)
    drifting = own * np.linspace(0.8, 1.4, 300)[:, None, None]
    found = compare_runs(run(), run(drifting))
    even = compare_runs(run(), run(seed=1))
    assert found.median.high - found.median.low > 5 * (even.median.high - even.median.low)
    (note,) = [note for note in notes(found) if "unevenly" in note]
    assert note.startswith("B ran unevenly: the median step took ")


def test_steps_until_a_run_has_settled_are_left_out():
    own = own_times(300, 4, noise=0.05)
    own[:60] *= 3
    found = compare_runs(run(own), run(seed=1))
    assert 60 <= found.a.left_out <= 75
    assert found.outcome == "same"
    assert found.b.left_out == EXCLUDED_FIRST_STEPS


def test_a_run_that_is_even_has_nothing_but_its_first_steps_left_out():
    left_out = [first_settled_step(run(seed=seed).step_ms) for seed in range(30)]
    assert np.mean([cut == 0 for cut in left_out]) > 0.8
    assert first_settled_step(np.full(300, 5.0)) == 0
    assert first_settled_step(np.r_[np.full(10, 50.0), np.full(12, 5.0)]) == 0


def test_worlds_of_different_sizes_are_compared_by_what_they_get_done():
    found = compare_runs(run(ranks=4), run(ranks=8))
    assert found.unit == "samples"
    assert found.speed.value == pytest.approx(2, rel=0.03)
    assert sentence(found).startswith("B is 1.9")
    assert " in samples/s (95% " in sentence(found)
    assert notes(found)[0] == "a step has 256 samples in A and 512 in B, so ddpmon compares samples/s"


def test_without_samples_only_steps_can_be_compared_and_that_is_said():
    found = compare_runs(run(ranks=4, samples=0), run(ranks=8, samples=0))
    assert found.unit == "steps"
    assert notes(found)[0].startswith("A has 4 ranks and B has 8")


def test_faster_with_a_higher_loss_is_said_in_the_same_sentence():
    a = run(late_ms=20, loss=falling(300))
    b = run(seed=1, loss=falling(300, rate=0.003, seed=1))
    found = compare_runs(a, b)
    assert found.losses.b_is == "higher"
    assert (found.losses.step_a, found.losses.same) == (301, "step")
    assert ", but the loss of B at step 301 is 0.8" in sentence(found)
    assert compare_runs(b, a).losses.b_is == "lower"
    assert "loss" not in sentence(compare_runs(b, a))


def test_with_other_batches_losses_are_compared_after_as_many_samples():
    small = run(samples=64, loss=falling(300, rate=0.01))
    large = run(samples=128, loss=falling(300, rate=0.02, seed=1))
    found = compare_runs(small, large)
    assert found.losses.same == "samples"
    assert (found.losses.step_a, found.losses.step_b) == (301, 150)
    assert found.losses.b_is != "higher"


def test_a_loss_that_is_no_number_is_higher_than_one_that_is():
    lost = falling(300, seed=1)
    lost[280:] = np.nan
    found = compare_runs(run(loss=falling(300)), run(loss=lost))
    assert found.losses.b_is == "higher"
    assert "is nan, and the loss of A" in sentence(found)
    assert compare_runs(run(loss=lost), run(loss=lost)).losses.b_is != "higher"


def test_runs_without_a_step_in_common_have_no_losses_to_compare():
    late = world_with(own_times(100, 4), first=5000, loss=falling(100))
    found = compare_runs(run(steps=100, loss=falling(100)), late)
    assert found.losses is None
    assert any("does not compare losses" in note for note in notes(found))


def test_a_finding_in_both_is_neither_gone_nor_new():
    was = Finding("straggler", "warn", "a", [2], "data", cost_ms=20.0)
    now = Finding("straggler", "warn", "b", [2], "data", cost_ms=5.0)
    other = Finding("straggler", "warn", "c", [1], "data", cost_ms=5.0)
    seen = Finding("straggler", "info", "d", [3], "data", cost_ms=1.0)
    found = compare_runs(run(), run(seed=1), [was, seen], [other, now])
    assert found.kept == [(was, now)]
    assert found.new == [other]
    assert found.gone == []


def test_the_fewest_steps_are_enough_to_compare():
    fewest = EXCLUDED_FIRST_STEPS + MIN_COMPARED_STEPS
    found = compare_runs(run(steps=fewest, late_ms=30), run(steps=fewest, seed=1))
    assert found.outcome == "faster"
    assert found.a.steps == MIN_COMPARED_STEPS


step_times = st.lists(st.floats(0.5, 5000), min_size=30, max_size=120).map(
    lambda lengths: run(np.array(lengths)[:, None, None] * np.full((1, 2, 5), 0.2))
)


@settings(max_examples=10, deadline=None)
@given(step_times)
def test_a_run_never_differs_from_itself(world):
    found = compare_runs(world, world)
    assert found.outcome == "same"
    assert found.slower_by == 0
    assert found.median.value == found.mean.value == 1
    assert found.median.low <= 1 <= found.median.high


@settings(max_examples=10, deadline=None)
@given(step_times, step_times)
def test_the_other_way_round_everything_is_inverted(a, b):
    one, other = compare_runs(a, b), compare_runs(b, a)
    for mine, theirs in ((one.median, other.median), (one.mean, other.mean)):
        assert mine.value == pytest.approx(1 / theirs.value)
        assert (mine.low, mine.high) == pytest.approx((1 / theirs.high, 1 / theirs.low))
    assert {one.outcome, other.outcome} in ({"same"}, {"faster", "slower"})


@pytest.mark.parametrize(
    ("value", "told"),
    [(1.0, "1.000"), (1.0042, "1.004"), (0.95, "0.950"), (1.324, "1.32"), (9.999, "10.0"), (1234.5, "1,234.5")],
)
def test_ratios_have_the_digits_that_tell_them_from_1(value, told):
    assert format_ratio(value) == told


def test_an_interval_has_the_digits_that_tell_its_ends_apart():
    assert interval(Ratio(1.3, 1.29, 1.35)) == "95% 1.29 to 1.35"
    assert interval(Ratio(1.0, 0.99, 1.018)) == "95% 0.990 to 1.018"
    assert interval(Ratio(1.56, 1.559, 1.563)) == "95% 1.559 to 1.563"
    assert interval(Ratio(12.1, 5.381, 16.13)) == "95% 5.4 to 16.1"
