"""Earlier runs of the same script: which of them count, and what is said of a run beside them."""

import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon import runs
from ddpmon.analysis.pace import Pace, difference
from ddpmon.hub.usual_speed import UsualSpeed
from ddpmon.messages import PHASES, STAGE_TRAINING, Hello
from ddpmon.recording.earlier_runs import compare_for_report, comparison_key, earlier_paces
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from tests.cli.conftest import made
from tests.export.test_report import built
from tests.worlds import own_times, records

__all__ = ["made"]  # a fixture


def pace(step_ms=100.0, samples=256.0, size=1e6, **phases_ms):
    return Pace(step_ms, tuple(phases_ms.get(name, 10.0) for name in PHASES), samples, size)


def test_a_run_is_slower_only_beyond_all_of_its_earlier_runs():
    earlier = [pace(96.0), pace(100.0), pace(104.0)]
    assert difference(pace(108.0), earlier).slower_by == 0.0
    assert difference(pace(92.0), earlier).slower_by == 0.0
    assert difference(pace(131.0), earlier).slower_by == pytest.approx(0.31)
    assert difference(pace(80.0), earlier).slower_by == pytest.approx(-0.2)


def test_a_difference_that_chance_may_explain_is_none():
    """Medians 20% apart: of a few scattered steps their intervals overlap, of many they do not."""
    few, many = (90.0, 125.0), (99.0, 101.0)
    usual = dataclasses.replace(pace(), interval_ms=many)
    now = pace(120.0)
    assert difference(dataclasses.replace(now, interval_ms=(119.0, 121.0)), [usual]).slower_by == pytest.approx(0.2)
    assert difference(dataclasses.replace(now, interval_ms=few), [usual]).slower_by == 0.0
    assert difference(now, [dataclasses.replace(usual, interval_ms=few)]).slower_by == 0.0
    assert difference(dataclasses.replace(usual, step_ms=80.0, interval_ms=few), [usual]).slower_by == 0.0


def test_the_report_has_the_interval_that_a_comparison_with_the_next_run_needs(made):
    """Steps of 54 ms, a few of them longer: the interval is around the median."""
    steps = built(records(own_times(400, 4, noise=0.1), samples=64))["steps"]
    low, high = steps["p50_interval_ms"]
    assert low <= steps["step_ms"]["p50"] <= high
    assert high - low < 0.05 * low
    assert built(records(own_times(20, 4), samples=64))["steps"]["p50_interval_ms"] is None


def test_the_sentence_names_the_phase_that_explains_it():
    slow = difference(pace(131.0, data=38.0, wait=60.0), [pace()] * 3)
    assert slow.sentence("train.py") == "31% slower than the median of your last 3 runs of train.py (data +28.0 ms)"
    assert difference(pace(131.0), [pace()]).sentence("a") == "31% slower than your last run of a"
    assert difference(pace(50.0, data=1.0), [pace()]).sentence("a") == "100% faster than your last run of a"
    assert difference(pace(101.0), [pace()]).sentence("a") == "about as fast as your last run of a"


@pytest.mark.parametrize("other", [pace(samples=512.0), pace(samples=0.0), pace(size=2e6), pace(size=0.0)])
def test_other_work_is_not_compared(other):
    assert difference(pace(), [other]) is None
    assert difference(pace(131.0), [other, pace()]).runs == 1


@pytest.fixture
def report():
    own = own_times(100, 4)
    return built(records(own, samples=64))


def save(run, report):
    (runs.run_dir(run.id) / "report.json").write_text(report if isinstance(report, str) else json.dumps(report))


def slower(report, factor):
    report = json.loads(json.dumps(report))
    report["steps"]["step_ms"] = {name: ms * factor for name, ms in report["steps"]["step_ms"].items()}
    report["steps"]["p50_interval_ms"] = [ms * factor for ms in report["steps"]["p50_interval_ms"]]
    report["steps"]["samples_per_s"] /= factor
    return report


def test_the_last_three_runs_of_the_same_kind_count(made, report):
    for _ in range(4):
        save(made(), slower(report, 0.5))
    for _ in range(2):
        save(made(), report)
    now = made(script_args=["--lr", "0.2"])
    found = compare_for_report(now, slower(report, 1.5))
    assert (found["runs"], found["slower_by"], found["phase"]) == (3, 0.5, None)
    assert found["text"] == "50% slower than the median of your last 3 runs of mnist"
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("changes", [
    {"name": "other"}, {"script": "resnet.py"}, {"cwd": "/tmp"}, {"world_size": 2}, {"script_args": ["--lr"]},
    {"script_args": ["--momentum", "0.1"]}, {"ended_at": None}, {"nnodes": 2},
], ids=str)  # fmt: skip
def test_a_run_of_another_kind_does_not_count(made, report, changes):
    save(made(**changes), report)
    assert compare_for_report(made(), report) is None


@pytest.mark.parametrize("content", [
    "", "{", "[]", "null", '{"steps": 3}', '{"steps": {"step_ms": {"p50": "fast"}}}', '{"ranks": [{"phases_ms": []}]}',
    '{"steps": {"window": [1, 9], "step_ms": {"p50": 1.0}}, "ranks": [{"phases_ms": {}}]}', "{}", "9" * 400,
])  # fmt: skip
def test_a_report_that_cannot_be_read_does_not_count(made, report, content):
    save(made(), content)
    assert earlier_paces(made()) == []
    assert compare_for_report(made(), report) is None


def test_too_few_steps_are_not_compared(made):
    few = built(records(own_times(20, 4), samples=64))
    save(made(), few)
    assert compare_for_report(made(), few) is None


def test_numbers_among_arguments_may_differ_and_words_may_not(made):
    run = made(script_args=["--lr", "0.1", "--steps=1e3", "-b", "64", "data/a"])
    alike = dataclasses.replace(run, script_args=["--lr", ".02", "--steps=20", "-b", "128", "data/a"])
    assert comparison_key(run) == comparison_key(alike)
    assert comparison_key(run) != comparison_key(
        dataclasses.replace(run, script_args=[*run.script_args[:-1], "data/b"])
    )


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.none()


@given(numbers, numbers, numbers)
def test_no_number_in_a_report_raises(p50, mean, phase_ms):
    report = {
        "steps": {"window": [1, 100], "step_ms": {"p50": p50, "mean": mean}, "samples_per_s": mean},
        "ranks": [{"phases_ms": dict.fromkeys(PHASES, phase_ms)}],
        "all_reduce": {"bytes_per_step": p50},
    }
    run = runs.Run("20260101-000009-0001", "a", [], "a.py", [], "/", "h", "", 0.0, 1)
    assert compare_for_report(run, report) is None


def test_the_hub_says_it_once_when_it_has_lasted_and_again_when_it_is_over(made, report):
    """53 ms a step as in the earlier run, twice that from step 200 on, and again 53 ms from step 400 on."""
    save(made(), report)
    run = made(ended_at=None, exit_code=None)
    store = Store(run, Registry(run.id, 4, run.host), Clock(0, run.created_at), live=True)
    own = own_times(700, 4)
    own[200:400] *= 2
    told = records(own, samples=64)
    processes = {}
    for rank in told:
        hello = Hello(1, run.id, rank, rank, 4, 0, "n0", 100 + rank, STAGE_TRAINING)
        processes[rank] = RankProcess(rank + 1, 0, hello, stage=STAGE_TRAINING, steps=0)
    store.registry.add_recorded(list(processes.values()))
    usual = UsualSpeed(store)
    for first in range(0, 700, 10):
        for rank, steps in told.items():
            store.add_steps(processes[rank], processes[rank].count_new_steps(steps[first : first + 10]))
        store.add_arrived()
        store.judge(1000.0 + first, 1000.0 + first)
        usual.add_event_if_changed(1000.0 + first)
    texts = [event.text for event in store.events if event.text.startswith("this run is")]
    assert len(texts) == 2, texts
    assert re.fullmatch(r"this run is \d+% slower than your last run of mnist.*", texts[0])
    assert texts[1] == "this run is about as fast as your last run of mnist"
