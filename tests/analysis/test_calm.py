"""Runs that unfold and are judged as a hub judges: what is told is true, and is told once."""

from math import inf

import numpy as np
import pytest

from ddpmon.analysis.events import News
from ddpmon.analysis.evidence import Cpu, Evidence
from ddpmon.analysis.kinds.cpu_starved import HARMFUL
from ddpmon.analysis.statistics.arrays import running_total
from ddpmon.analysis.statistics.change_points import ENOUGH, step_up
from ddpmon.analysis.statistics.excess import over_peers, steady
from ddpmon.analysis.statistics.wandering import wandering as fitted
from ddpmon.analysis.steps.turns import turns
from ddpmon.analysis.steps.window import Window
from ddpmon.messages import Finding
from tests.analysis.noise import bursts, heavy_tails, wandering
from tests.findings import judged
from tests.worlds import OWN, own_times, world_with

STEP_MS = sum(OWN) + 6
SLOWLY = {"share": 0.05, "lasts": 33}


def unfolds(own, every=20, first=2):
    """Findings at each moment, and all events; ends are told at once."""
    world, window, before, moments, events = world_with(own, first=first), Window(600), [], [], []
    news = News()
    for at in range(0, len(world), every):
        window.append(world.between(at, at + every))
        found = judged(window.world(30.0), Evidence(world_size=own.shape[1]), before, window.world())
        events += [(event.severity, event.text) for event in news.of(before, found, inf)]
        moments.append(found)
        before = found
    return moments, events


def late(found):
    return [f for f in found if f.kind == "straggler" and f.severity == "warn" and f.until_step is None]


def slowly_wandering(steps, ranks, seed):
    return own_times(steps, ranks, noise=0.01, seed=seed) * wandering(steps, ranks, **SLOWLY, seed=seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ranks_that_wander_are_not_slow(seed):
    _, events = unfolds(slowly_wandering(500, 8, seed))
    assert [text for severity, text in events if severity != "info"] == []


@pytest.mark.parametrize("seed", [12, 17, 38])
def test_hiccups_that_meet_in_a_few_steps_name_nobody(seed):
    own = own_times(620, 8, noise=0.03, seed=seed)
    own[..., 2] += 1.4 * heavy_tails(900, 8, seed=seed)[:620]
    _, events = unfolds(own)
    assert [text for severity, text in events if severity != "info"] == []


@pytest.mark.parametrize("seed", [12, 21, 30])
def test_bursts_of_some_steps_name_nobody(seed):
    """Another rank's, or a turn of all of them, may be told."""
    own = own_times(600, 8, noise=0.05, seed=seed) * bursts(600, 8, share=0.3, lasts=6, seed=seed)
    _, events = unfolds(own)
    assert [text for severity, text in events if severity != "info" and text.startswith("rank ")] == []


def test_of_two_late_ranks_the_one_that_is_less_late_is_told_while_the_window_is_short():
    own = own_times(60, 8, noise=0.03)
    own[:, 1] *= 1.3
    own[44:, 5] *= 1.15
    assert sorted(f.ranks for f in late(judged(world_with(own), Evidence()))) == [[1], [5]]


@pytest.mark.parametrize("seed", [110, 152])
def test_a_burst_while_the_window_is_too_short_to_show_others_names_nobody(seed):
    own = own_times(100, 8, noise=0.05, seed=seed)[:40] * bursts(100, 8, share=0.3, lasts=6, seed=seed)[:40]
    _, events = unfolds(own, 11)
    assert [text for severity, text in events if severity != "info"] == []


def test_a_burst_that_carries_the_mean_of_many_steps_is_no_delay_and_a_delay_of_that_mean_is():
    own = own_times(200, 8, noise=0.05)
    burst, delay = own.copy(), own
    burst[190:, 5, 2] += 3.0 * sum(OWN) * np.random.default_rng(3).exponential(0.5, 10)
    delay[190:, 5, 2] += 0.5 * sum(OWN)
    assert late(judged(world_with(burst), Evidence())) == []
    assert [f.ranks for f in late(judged(world_with(delay), Evidence()))] == [[5]]


def test_a_tenth_of_a_step_is_told_within_a_dozen_steps_while_the_window_is_short():
    """As where steps take seconds."""
    right = 0
    for seed in range(10):
        own = own_times(162, 8, noise=0.05, seed=seed)
        own[150:, 5, seed % 5] += 0.1 * STEP_MS
        right += [(f.ranks, f.since_step) for f in late(judged(world_with(own, first=2), Evidence()))] == [([5], 152)]
    assert right >= 9


def test_of_a_thousand_ranks_that_wander_one_is_far_out_and_not_slow():
    """Of so many normal values one is 3.8 standard deviations out in one of seven draws, and of few hardly ever."""
    factors = wandering(100, 1024, share=0.1, lasts=33, seed=1)
    factors[70:, 5, 0] = 1 + 0.1 * np.minimum(3.8, np.arange(30))
    world = world_with(own_times(100, 1024, noise=0.01) * factors)
    assert late(judged(world, Evidence())) == []


@pytest.mark.parametrize("seed", range(4))
def test_the_first_step_is_right_in_bursts_and_stays_so(seed):
    own = own_times(700, 8, noise=0.05, seed=seed) * bursts(700, 8, share=0.3, lasts=6, seed=seed)
    own[400:, 5, seed % 5] += 0.25 * STEP_MS
    moments, _ = unfolds(own)
    begun = {f.since_step for found in moments for f in late(found)}
    assert begun
    assert max(abs(step - 402) for step in begun) <= 5


@pytest.mark.parametrize("seed", [56, 82])
def test_a_rank_that_is_last_by_a_quarter_for_dozens_of_steps_is_not_slow_where_all_wander_by_a_tenth(seed):
    own = own_times(600, 8, noise=0.01, seed=seed) * wandering(600, 8, share=0.1, lasts=33, seed=seed)
    _, events = unfolds(own)
    assert [text for severity, text in events if severity != "info" and text.startswith("rank ")] == []


@pytest.mark.parametrize("phase", [0, 2, 4])
def test_a_tenth_of_a_step_shows_in_its_phase_where_ranks_wander_by_as_much_in_all_phases(phase):
    right = 0
    for seed in range(6):
        own = own_times(700, 8, noise=0.01, seed=seed) * wandering(700, 8, share=0.1, lasts=33, seed=seed)
        own[300:, 5, phase] += 0.12 * STEP_MS
        moments, _ = unfolds(own, every=40)
        told = [f for found in moments for f in late(found)]
        right += {f.ranks[0] for f in told} == {5} and abs(told[-1].since_step - 302) <= 5
    assert right >= 5


def test_a_quarter_of_a_step_shows_in_ranks_that_wander_and_its_first_step_stays_as_it_was_told():
    """Although the window has moved on by then, and holds nothing of the time before."""
    own = slowly_wandering(1100, 8, 4)
    own[300:, 5, 2] += 0.25 * STEP_MS
    moments, events = unfolds(own)
    told = [finding for found in moments for finding in late(found)]
    assert {finding.ranks[0] for finding in told} == {5}
    assert {finding.since_step for finding in told} == {302}
    assert len(told) >= 35  # of the 40 moments since
    assert len([text for severity, text in events if severity == "warn"]) == 1
    assert not any("has recovered" in text for _, text in events)


@pytest.mark.parametrize("step_ms", [5, 5000])
def test_six_steps_of_twice_its_peers_time_are_enough_from_the_start(step_ms):
    own = own_times(6, 4, noise=0.05) * (step_ms / STEP_MS)
    own[:, 2, 1] += sum(OWN) * step_ms / STEP_MS * 1.3
    (finding,) = judged(world_with(own), Evidence())
    assert (finding.kind, finding.severity, finding.ranks, finding.phase) == ("straggler", "warn", [2], "forward")
    assert "from the start" in finding.text
    assert judged(world_with(own[:5]), Evidence()) == []


def test_few_steps_in_which_another_rank_is_the_last_once_name_nobody():
    own = own_times(8, 4, noise=0.05)
    own[:, 2, 1] += 1.1 * sum(OWN)
    own[5, 0, 1] += 3 * sum(OWN)
    assert judged(world_with(own), Evidence()) == []


def test_what_gains_less_than_two_percent_is_not_told():
    own = own_times(300, 4, noise=0.02)
    own[:, 1, 2] += 3.5
    assert [f.ranks for f in late(judged(world_with(own), Evidence()))] == [[1]]
    assert late(judged(world_with(own, transfer=400.0), Evidence())) == []


def test_half_a_millisecond_is_told_where_it_is_a_tenth_of_a_step():
    """But not what the probe's own cost may differ by between ranks, however short a step."""
    own = own_times(300, 4, noise=0.03) * 5 / STEP_MS
    own[100:, 1, 2] += 0.5
    assert [(f.ranks, f.phase) for f in late(judged(world_with(own, transfer=1), Evidence()))] == [([1], "backward")]
    assert late(judged(world_with(own / 5, transfer=0.2), Evidence())) == []


@pytest.mark.parametrize("seed", [10, 11])
def test_a_rank_that_is_late_by_far_more_than_ranks_in_turn_is_told_before_three_turns_are_over(seed):
    own = slowly_wandering(640, 8, seed)
    own[600:, 5, 2] += 0.25 * STEP_MS
    moments, _ = unfolds(own)
    assert [f.ranks for f in late(moments[-1])] == [[5]]


def taking_turns(steps, ranks, lasts):
    own = own_times(steps, ranks, noise=0.03)
    for at in range(steps):
        own[at, at // lasts * 3 % ranks, 2] += 6
    return own


@pytest.mark.parametrize("longer", [1, 25, 125])
def test_ranks_that_take_turns_of_many_steps_are_told_once_with_cost_and_rhythm_however_long_a_step(longer):
    moments, events = unfolds(longer * taking_turns(900, 8, 40))
    (finding,) = [f for f in moments[-1] if f.kind == "moving_straggler"]
    assert finding.evidence["turn_steps"] == pytest.approx(40, rel=0.2)
    assert finding.cost_ms == pytest.approx(6 * longer, rel=0.25)
    severities = [severity for severity, text in events if "in turn" in text]
    assert severities in (["info"], ["info", "warn"])


def test_turns_do_not_begin_where_another_rank_was_late_each_step():
    world = world_with(taking_turns(400, 8, 40), first=1000)
    each_step = Finding("moving_straggler", "warn", "another rank is late each step", since_step=17)
    (finding,) = [f for f in judged(world, Evidence(world_size=8), [each_step]) if f.kind == "moving_straggler"]
    assert "turn_steps" in finding.evidence
    assert finding.since_step == 1000


def test_one_rank_that_is_late_from_some_step_on_takes_no_turns():
    own = own_times(400, 8, noise=0.1)
    own[200:, 3, 2] += 10
    world = world_with(own)
    assert turns(world, [], held=False) is None
    assert turns(world_with(taking_turns(400, 8, 40)), [], held=False).steps == pytest.approx(40, rel=0.2)


def test_how_far_many_ranks_lie_apart_is_learnt_from_all_of_them():
    """In a window shorter than the noise's memory a rank has one value: some of many ranks tell its spread badly."""
    for seed in range(20):
        means = over_peers(wandering(20, 1024, share=0.1, lasts=33, seed=seed)[..., 0])
        spread = means[2:-2].mean(axis=0).std()
        assert fitted(running_total(steady(means))).variances(np.array([16]))[0] ** 0.5 > 0.8 * spread


def test_the_memory_of_noise_is_fitted_and_its_means_stray_as_they_do():
    rng = np.random.default_rng(0)
    calm = fitted(running_total(rng.standard_normal((600, 8))))
    slow = fitted(running_total(over_peers(wandering(600, 8, share=1.0, lasts=33, seed=0)[..., 0])))
    # Of a mean over 64 steps: 1 / 64, and of noise that stays alike for 33 steps about a half.
    assert calm.variances(np.array(64)) < 2.5 / 64
    assert 0.4 < slow.variances(np.array(64)) < 1.5


def test_how_far_rare_means_stray_is_told_by_a_short_window_as_by_a_long_one():
    """Wherever its blocks are cut; and normal noise has none that stray further."""
    skewed = over_peers(bursts(4000, 8, share=0.3, lasts=6, seed=1)[..., 0])
    normal = over_peers(np.random.default_rng(0).standard_normal((4000, 8)))

    def tails(series, steps):
        parts = [series[at : at + steps] for at in range(0, 3200, 83)]
        return np.array([fitted(running_total(steady(part))).tails[0] for part in parts])

    short, long = tails(skewed, 180), tails(skewed, 600)
    assert np.median(short) == pytest.approx(np.median(long), rel=0.2)
    assert np.quantile(short, 0.1) > 1.25
    assert np.quantile(tails(normal, 180), 0.9) < 1.2


def test_a_step_up_is_dated_where_noise_wanders_and_noise_alone_has_none():
    noise = wandering(500, 12, share=1.0, lasts=33, seed=1)[..., 0]
    assert max(step_up(series, 1, 490)[1] for series in noise.T) < 2 * ENOUGH
    for series in noise.T:
        series[350:] += 4
        at, shows = step_up(series, 1, 490)
        assert abs(at - 350) <= 1
        assert shows > 2 * ENOUGH


def test_the_first_finding_stays_first_while_another_costs_about_as_much():
    own = own_times(200, 8, noise=0.02)
    own[:, 1, 0] += 15
    own[:, 2, 2] += 14.5
    before = judged(world_with(own), Evidence())
    own[:, 2, 2] += 1.5
    assert next(f.ranks[0] for f in judged(world_with(own), Evidence(), before)) == before[0].ranks[0]


def test_a_host_that_is_short_of_cores_stays_so_while_its_share_strays_around_the_threshold():
    def told(share, before=()):
        return judged(None, Evidence(cpu=[Cpu(0, "here", [share] * 10)]), before)

    first = told(1.1 * HARMFUL.enter)
    assert [f.severity for f in first] == ["warn"]
    assert [f.severity for f in told(0.9 * HARMFUL.enter, first)] == ["warn"]
    assert [f.severity for f in told(0.9 * HARMFUL.enter)] == ["info"]


@pytest.mark.parametrize(("often", "told"), [(13, False), (20, True)])
def test_a_long_step_of_another_rank_in_half_of_two_dozen_steps_is_chance_where_many_have_some(often, told):
    """Of 64 ranks of which each has one in 200 steps, some rank has one in a fourth of all steps."""
    rng = np.random.default_rng(1)
    own = own_times(100, 64, noise=0.03)
    for step in 76 + np.linspace(0, 23, often).round().astype(int):
        own[step, rng.integers(64), 2] += 40
    found = judged(world_with(own), Evidence())
    assert any(f.kind == "moving_straggler" and f.severity == "warn" for f in found) is told


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_rank_stays_late_where_only_its_noise_has_fallen_and_its_phase_shows_it(seed):
    """Hours after it began, when the window has no other steps."""
    factors = wandering(600, 8, share=0.05, lasts=33, seed=seed)
    factors[:46, 4], factors[46:, 4] = 1.2, 0.95
    own = own_times(600, 8, noise=0.01, seed=seed) * factors
    own[:, 4, 2] += 0.1 * STEP_MS
    before = [Finding("straggler", "warn", "", [4], "backward", 2, cost_ms=2.0)]
    found = judged(world_with(own, first=50_000), Evidence(world_size=8), before)
    assert [(f.since_step, f.until_step) for f in found if f.ranks == [4]] == [(2, None)]
