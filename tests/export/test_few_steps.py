"""Runs of one step, and ranks that end before the others: what is known of them is told."""

import dataclasses

import pytest

from ddpmon.analysis.report import run_report as make_report
from ddpmon.analysis.steps.summary import DepartedRanks
from ddpmon.export import markdown, report
from ddpmon.messages import PHASES, PROTOCOL, STAGE_ENDED, Hello
from ddpmon.recording.recorded import recorded_report, recorded_snapshot
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from ddpmon.store.view import snapshot
from ddpmon.tui.widgets.ranktable import RankTable
from tests.recordings import BEGAN, record, story
from tests.worlds import own_times, records, world_with


@pytest.fixture
def one_step(home):
    return record(story(1, ranks=3, begin=0, end=1), loss=[[2.0, 3.0, 4.0]])


def test_a_run_of_one_step_shows_that_steps_values(one_step):
    made = recorded_report(one_step)
    assert (made["steps"]["count"], made["steps"]["window"]) == (1, [1, 1])
    own = [rank["own_ms"] for rank in made["ranks"]]
    assert own[2] - own[0] == pytest.approx(12, abs=2)
    for rank in made["ranks"]:
        length = sum(rank["phases_ms"][phase] for phase in PHASES)
        assert length == pytest.approx(made["steps"]["step_ms"]["mean"], rel=0.01)
    assert [rank["loss"] for rank in made["ranks"]] == [2.0, 3.0, 4.0]
    assert recorded_snapshot(one_step).loss == 3.0


def test_one_step_is_said_to_be_one(one_step):
    made = recorded_report(one_step)
    assert made["verdict"].startswith("done: 1 step in ")
    assert "steps 1, values of step 1;" in report.text(made)
    assert made["what_if"] == [], "what a first step holds is done once"


def uneven(run, steps):
    """A store whose ranks finish so many steps each, told in pieces as they come."""
    run = dataclasses.replace(run, world_size=len(steps))
    store = Store(run, Registry(run.id, len(steps), run.host), Clock(0, BEGAN))
    own = own_times(max(steps), len(steps))
    own[:, 1, 2] += 5
    told = records(own, first=1)
    for rank, count in enumerate(steps):
        hello = Hello(PROTOCOL, run.id, rank, rank, len(steps), 0, run.host, 4_000_000 + rank, STAGE_ENDED)
        process = RankProcess(rank + 1, 0, hello, stage=STAGE_ENDED, left=True, steps=count)
        store.registry.add_recorded([process])
    for first in range(0, max(steps), 10):
        for rank, count in enumerate(steps):
            process = store.registry.process_of_rank[rank]
            store.add_steps(process, process.count_new_steps(told[rank][first : min(count, first + 10)]))
        store.add_arrived()
    store.add_arrived(final=True)
    store.judge(BEGAN + 60, BEGAN + 60)
    return store


def test_a_rank_that_runs_out_of_inputs_keeps_what_was_known_of_it(one_step):
    store = uneven(one_step, (140, 100, 140))
    shot = snapshot(store, "e", 1, BEGAN + 60, BEGAN + 60)
    assert [view.window for view in shot.ranks] == [None, (2, 100), None]
    assert (shot.ranks[1].own_ms, shot.ranks[1].steps) == (pytest.approx(32), 100)
    assert shot.ranks[0].own_ms == pytest.approx(27)
    assert shot.step == 140
    assert shot.samples_per_s == pytest.approx(2 * 64 / 0.038, rel=0.01), "it trains no more"
    head = "".join(text for text, _ in RankTable().title("ranks", shot, 80))
    assert "ranks, rank 1 until step 100" in head


def test_a_rank_that_comes_back_is_of_the_world_again():
    world = world_with(own_times(30, 3))
    departed = DepartedRanks()
    departed.change_world(None, (0, 1, 2))
    departed.change_world(world, (0, 2))
    assert [(rank, column, summary.window) for rank, summary, column in departed] == [(1, 1, (2, 31))]
    departed.change_world(world, (0, 1, 2))
    assert list(departed) == []


def test_the_report_says_of_which_steps_it_tells(one_step):
    store = uneven(one_step, (140, 100, 140))
    made = make_report(snapshot(store, "e", 1, BEGAN + 60, BEGAN + 60), store.world, store.summary)
    assert [rank["window"] for rank in made["ranks"]] == [[101, 140], [2, 100], [101, 140]]
    said = "rank 1: means over 2 to 100, the last steps that the other ranks also have"
    assert said in report.text(made)
    assert said in markdown.report(made)
