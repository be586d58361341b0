"""Who is found to be late in made-up worlds of many seeds, and that noise names nobody."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds import moving_straggler, straggler
from ddpmon.analysis.kinds.kind import Detection, Moment
from ddpmon.analysis.kinds.slow import Slow
from tests.analysis.noise import crowded, heavy_tails, spikes, wandering
from tests.findings import judged
from tests.worlds import OWN, own_times, records, world_of, world_with

SEEDS = 30
STEP_MS = sum(OWN) + 6


def found_in(own, before=(), **kwargs):
    return judged(world_with(own, **kwargs), Evidence(), before)


def above_info(world, before=()):
    return [finding.text for finding in judged(world, Evidence(), before) if finding.severity != "info"]


def clean(kind, steps, ranks, seed):
    own = own_times(steps, ranks, noise=0.03, seed=seed)
    if kind == "wandering":
        return own * wandering(steps, ranks, share=0.15, lasts=8, seed=seed)
    if kind == "slowly wandering":
        return own * wandering(steps, ranks, share=0.08, lasts=20, seed=seed)
    if kind == "garbage":
        own[..., 2] += spikes(steps, ranks, often=0.03, ms=60, seed=seed)
    if kind == "hiccups":
        own[..., 2] += heavy_tails(steps, ranks, seed=seed)
    if kind == "crowded":
        own = crowded(own, seed=seed)
    return own


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("kind", ["even", "wandering", "slowly wandering", "garbage", "hiccups", "crowded"])
def test_noise_names_nobody(kind, ranks):
    """At several moments of a run; of 30 seeds of the slowest noise, which is a straggler for a while, one may."""
    accused = 0
    for seed in range(SEEDS):
        world = world_with(clean(kind, 240, ranks, seed))
        accused += any(above_info(world.between(0, steps)) for steps in (20, 60, 240))
    assert accused <= (1 if kind == "slowly wandering" else 0)


@pytest.mark.parametrize(("size", "least"), [(0.1, 0.95), (0.25, 0.99), (1.0, 0.99)])
@pytest.mark.parametrize("kind", ["even", "garbage", "hiccups"])
def test_a_straggler_of_any_size_is_named_and_nobody_else(kind, size, least):
    right = 0
    for seed in range(SEEDS):
        rank, phase = seed % 4, seed % 5
        own = clean(kind, 240, 4, seed)
        own[100:, rank, phase] += size * STEP_MS
        warned = [f for f in found_in(own) if f.severity == "warn"]
        right += [(f.kind, f.ranks) for f in warned] == [("straggler", [rank])]
    assert right >= least * SEEDS


@pytest.mark.parametrize("size", [0.1, 0.25, 1.0])
@pytest.mark.parametrize("begin", [0, 60, 200])
def test_since_when_is_right_to_two_steps(size, begin):
    for seed in range(10):
        own = own_times(240, 4, noise=0.02, seed=seed)
        own[begin:, 1, 2] += size * STEP_MS
        (finding,) = found_in(own)
        assert abs(finding.since_step - (begin + 2)) <= 2


def test_ten_milliseconds_of_backward_show_through_noise_of_four_ranks():
    right = 0
    for seed in range(SEEDS):
        own = clean("wandering", 600, 4, seed)
        own[:, 2, 2] += 10
        right += [(f.ranks, f.phase) for f in found_in(own) if f.severity == "warn"] == [([2], "backward")]
    assert right >= 0.8 * SEEDS


@pytest.mark.parametrize("ranks", [2, 4])
def test_late_data_shows_in_its_phase_where_noise_hides_it_in_the_own_time(ranks):
    """The other phases stray from step to step by as much as the delay."""
    right = over = 0
    for seed in range(SEEDS // 3):
        own = clean("crowded", 300, ranks, seed)
        own[100:200, 1, 0] += 2 * STEP_MS
        found = found_in(own[:124])
        right += [(f.ranks, f.phase) for f in found if f.severity == "warn"] == [([1], "data")]
        over += [f.severity for f in found_in(own[:240], found) if f.ranks == [1]] == ["info"]
    assert right >= 0.9 * SEEDS // 3
    assert over >= 0.9 * SEEDS // 3


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_one_phase_has_more_and_another_less_makes_nobody_late(ranks):
    for seed in range(SEEDS // 3):
        own = clean("crowded", 240, ranks, seed) + np.array([0, 0, 2 * STEP_MS, 0, 0])
        own[:, 1] += np.array([2, 0, -2, 0, 0]) * STEP_MS
        world = world_with(own)
        assert not any(above_info(world.between(0, steps)) for steps in (20, 60, 240))


def test_it_is_named_within_a_few_steps_of_showing_and_withdrawn_within_a_few_of_its_end():
    own = own_times(300, 4, noise=0.03)
    own[150:230, 3, 1] += 12
    world = world_with(own)

    def warned(steps):
        return [found.ranks for found in judged(world.between(0, steps), Evidence()) if found.severity == "warn"]

    named = next(steps for steps in range(150, 230) if warned(steps) == [[3]])
    assert named <= 150 + 8 + 5
    before = judged(world.between(0, 230), Evidence())
    gone = next(steps for steps in range(230, 300) if not above_info(world.between(0, steps), before))
    assert gone <= 230 + 15


def test_a_burst_that_ended_is_told_with_its_first_and_last_step_and_is_no_alarm():
    own = own_times(300, 4, noise=0.03)
    own[100:160, 2, 0] += 12
    (finding,) = found_in(own)
    assert (finding.kind, finding.severity, finding.ranks, finding.phase) == ("straggler", "info", [2], "data")
    assert abs(finding.since_step - 102) <= 2
    assert abs(finding.until_step - 161) <= 2


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_two_late_ranks_are_both_named_and_it_is_said_that_one_alone_gains_nothing(ranks):
    own = own_times(200, ranks, noise=0.02)
    own[:, 1, 0] += 15
    own[80:, 2, 2] += 14
    first, second = found_in(own)
    assert {first.ranks[0], second.ranks[0]} == {1, 2}
    assert {f.ranks[0]: f.phase for f in (first, second)} == {1: "data", 2: "backward"}
    assert "only if rank" in first.text
    assert first.evidence["gain_together"] > 1.3
    assert min(f.evidence["gain"] for f in (first, second)) == pytest.approx(1, abs=0.01)
    assert max(f.evidence["gain"] for f in (first, second)) == pytest.approx(1, abs=0.04)
    assert {f.ranks[0]: f.since_step for f in (first, second)}[2] == pytest.approx(82, abs=2)


def test_of_two_ranks_the_slower_one_is_named():
    for seed in range(10):
        own = own_times(150, 2, noise=0.03, seed=seed)
        own[:, seed % 2, 2] += 8
        (finding,) = found_in(own)
        assert finding.ranks == [seed % 2]


def test_tokens_count_as_work_too():
    own = own_times(100, 4, noise=0.02)
    own[:, 1] *= 1.4
    told = records(own)
    for rank, steps in told.items():
        for step in steps:
            step.tokens = 1400 if rank == 1 else 1000
    (finding,) = judged(world_of(told), Evidence())
    assert (finding.kind, finding.ranks) == ("load_imbalance", [1])
    assert "40% more tokens" in finding.text
    assert "With 1,100 and 1,100, as fast as each is" in finding.advice


def test_what_was_not_measured_is_said():
    own = own_times(100, 4, noise=0.02)
    own[:, 1, 2] += 15
    (finding,) = found_in(own, samples=0)
    assert "not measured" in finding.advice


def test_every_text_fits_the_verdict():
    own = own_times(150, 6, noise=0.02) * 400
    own[50:, 1:4, 3] += 12_345
    for first in (2, 12_345_678):
        for finding in found_in(own, first=first):
            assert len(finding.text) <= 76


def test_a_rank_late_every_few_steps_is_found_with_its_rhythm():
    for seed, every in enumerate((2, 3, 7, 20, 50)):
        own = clean("garbage" if seed % 2 else "even", 300, 4, seed)
        own[every - 1 :: every, 0, 4] += 40
        (finding,) = [f for f in found_in(own) if f.kind == "periodic_straggler"]
        assert (finding.ranks, finding.phase, finding.evidence["every"]) == ([0], "other", every)
        assert finding.cost_ms == pytest.approx(40 / every, rel=0.25)
        assert len(finding.text) <= 76


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_straggler_that_moves_is_nobodys_fault(ranks):
    rng = np.random.default_rng(0)
    own = own_times(200, ranks, noise=0.03)
    own[np.arange(200), rng.integers(0, ranks, 200), 1] += 15
    (finding,) = found_in(own)
    assert (finding.kind, finding.severity, finding.phase) == ("moving_straggler", "warn", "forward")
    assert finding.evidence["load_balance_moving"] < 0.85
    assert finding.cost_ms == pytest.approx(15, abs=3)


@pytest.mark.parametrize(
    ("critical", "cost_ms", "until", "told"),
    [(0.5, 0.0, None, 1), (0.7, 0.0, None, 0), (0.5, 15.0, None, 0), (0.7, 15.0, 20, 1)],
)
def test_a_rank_that_is_waited_for_in_most_steps_or_costs_most_is_why_nobody_takes_turns(
    critical, cost_ms, until, told
):
    own = own_times(200, 4, noise=0.03)
    own[np.arange(200), np.random.default_rng(0).integers(0, 4, 200), 1] += 15
    facts = Slow(1.0, 1.0, 1.0, "lasting", 200, 50.0, critical_share=critical)
    single = Detection(straggler.KIND, "info", facts, [0], until_step=until, cost_ms=cost_ms)
    moment = Moment(Evidence(), world_with(own), detections=[single])
    assert len(list(moving_straggler.detect(moment))) == told


def test_uneven_work_of_each_step_is_named_as_what_moves():
    rng = np.random.default_rng(0)
    tokens = rng.integers(500, 1500, (200, 4))
    own = own_times(200, 4, noise=0.02) * (tokens / 1000)[..., None]
    told = records(own)
    for rank, steps in told.items():
        for i, step in enumerate(steps):
            step.tokens = int(tokens[i, rank])
    (finding,) = judged(world_of(told), Evidence())
    assert finding.kind == "moving_straggler"
    assert finding.text.startswith("uneven tokens")


@pytest.mark.parametrize(("steps", "lasts"), [(60, 8), (60, 24), (120, 8), (120, 40), (150, 24), (240, 16)])
def test_a_short_burst_is_told_in_the_report_of_a_short_run(steps, lasts):
    for seed in range(5):
        own = own_times(steps, 4, noise=0.03, seed=seed)
        first = steps // 3
        own[first : first + lasts, 2, 1] += 0.25 * STEP_MS
        (finding,) = found_in(own)
        assert (finding.severity, finding.ranks, finding.phase) == ("info", [2], "forward")
        assert abs(finding.since_step - (first + 2)) <= 2
        assert abs(finding.until_step - (first + lasts + 1)) <= 2


def test_a_quarter_of_a_step_shows_through_noise_that_wanders_once_the_window_is_long():
    """Noise of 15% that lasts 8 steps; a lull of the noise at the end of the window ends no stretch."""
    right = 0
    for seed in range(12):
        own = clean("wandering", 600, 4, seed)
        own[200:, 2, 2] += 0.25 * STEP_MS
        right += [f.ranks for f in found_in(own) if f.severity == "warn"] == [[2]]
    assert right >= 10


@pytest.mark.parametrize("ranks", [16, 48])
def test_of_many_ranks_none_is_told_of_because_there_are_many(ranks):
    told = 0
    for seed in range(10):
        own = clean("slowly wandering", 240, ranks, seed)
        told += bool(found_in(own)) + bool(above_info(world_with(own[:120])))
    assert told <= 2


def test_it_is_withdrawn_soon_after_its_end_although_the_noise_wanders():
    own = clean("wandering", 760, 4, 2)
    own[250:600, 1, 2] += STEP_MS
    world, before, named = world_with(own), [], []
    for end in range(560, 760, 10):
        before = judged(world.between(end - 500, end), Evidence(), before)
        named += [end for f in before if f.severity == "warn" and f.ranks == [1]]
    assert named[:4] == [560, 570, 580, 590]
    assert max(named) <= 630


@pytest.mark.parametrize("seed", [1, 14])
def test_a_stretch_ends_after_it_began_although_the_rank_was_later_by_more_long_before(seed):
    own = clean("even", 560, 4, seed) * wandering(560, 4, share=0.3, lasts=8, seed=seed)
    own[:20, 3, 2] += 40
    own[400:460, 3, 2] += 25
    world, before, told = world_with(own), [], []
    for end in range(420, 560, 10):
        over = [f for f in before if f.until_step is not None]
        before = judged(world.between(0, end), Evidence(), before)
        told += [f for f in before if f.until_step is not None and f not in over]
    assert any(f.since_step > 390 and f.text.startswith("rank 3 was slow from step 4") for f in told)
    assert all(f.since_step < f.until_step for f in told)
    # Once it was said that it is late since step 402, what ends is that.
    assert not any(f.until_step < 400 for f in told)


@pytest.mark.parametrize("seed", [1, 2])
def test_another_rank_late_each_step_is_told_and_nobody_accused_where_all_wander_by_more(seed):
    """The wandering of each is beside its neighbouring steps no lateness."""
    own = own_times(400, 8, noise=0.01, seed=seed) * wandering(400, 8, share=0.1, lasts=33, seed=seed)
    own[200 + np.arange(200), np.random.default_rng(seed).integers(0, 8, 200), 2] += 0.25 * sum(OWN)
    before, moments = [], []
    for end in range(220, 401, 20):
        before = judged(world_with(own[:end]), Evidence(), before)
        moments.append([(f.kind, f.phase) for f in before if f.severity != "info"])
    assert moments[4:] == [[("moving_straggler", "backward")]] * 6  # from the hundredth step on
    assert all(told in ([], moments[-1]) for told in moments)
    (last,) = [f for f in before if f.severity != "info"]
    assert abs(last.since_step - 202) <= 5
