"""One rank through time beside its peers: right in every bin, honest where nothing is known, and in bounded memory."""

import dataclasses

import numpy as np
import pytest

from ddpmon.analysis.over_time.heat import Heat, LateSteps
from ddpmon.analysis.over_time.rank_history import own_courses, rank_courses, sync_courses
from ddpmon.messages import HEAT_STEPS, PHASES
from ddpmon.messages.cells import MOST, NOT_FINITE, NOTHING
from tests.worlds import OWN, own_times, world_with


def of(*parts):
    heat = Heat()
    for part in parts:
        heat.append(part)
    return heat


def fed(own, *, loss=None, parts=1, first=1):
    world = world_with(own, loss=loss, first=first)
    size = -(-len(world) // parts)
    return of(*(world.steps_between(begin, begin + size) for begin in range(0, len(world), size)))


def rows(made, rank, steps=1, columns=40, late=()):
    return {row.name: row for row in rank_courses(made, rank, steps, columns, late)}


def values(row, of="cells"):
    """Cells as milliseconds, NaN where nothing is known."""
    cells = np.frombuffer(getattr(row, of), np.uint8).astype(float)
    known = (cells != NOTHING) & (cells != NOT_FINITE)
    return np.where(known, (cells - 1) / (MOST - 1) * (row.high - row.low) + row.low, np.nan)


def slow(steps=100, ranks=4, begin=60, extra_ms=9.0):
    own = own_times(steps, ranks)
    own[begin:, 2, 1] += extra_ms
    return own


def test_each_phase_is_told_in_milliseconds_beside_the_peers():
    told = rows(fed(slow()), 2)
    assert list(told) == ["own", *PHASES, "step"]
    forward = told["forward"]
    assert values(forward) == pytest.approx([OWN[1] + 9.0] * 40, rel=0.01)
    assert values(forward, "peers") == pytest.approx([OWN[1]] * 40, abs=0.2)
    assert values(told["wait"]) == pytest.approx([0.0] * 40, abs=0.1)
    assert values(told["wait"], "peers") == pytest.approx([9.0] * 40, rel=0.02)


def test_it_says_since_when_a_phase_takes_longer_as_findings_do():
    finding = LateSteps(frozenset({2}), 61, None, "forward")
    since = {name: row.longer for name, row in rows(fed(slow()), 2, 8, late=[finding]).items() if row.longer}
    assert since == {"own": "since step 61", "forward": "since step 61"}
    about = rows(fed(slow()), 2, 8, late=[dataclasses.replace(finding, about=True)])
    assert about["own"].longer == "since about step 61"


@pytest.mark.parametrize("late", [(), [LateSteps(frozenset({1}), 61, None, "forward")], [
    LateSteps(frozenset({2}), 61, 80, "forward")]])  # fmt: skip
def test_without_a_finding_that_goes_on_it_says_nothing_of_a_rank(late):
    assert not any(row.longer for row in rows(fed(slow()), 2, late=late).values())


def test_it_does_not_matter_in_how_many_parts_the_steps_come():
    own = own_times(300, 3, noise=0.05)
    for steps in HEAT_STEPS:
        whole, parts = (rank_courses(fed(own, parts=n), 1, steps, 60) for n in (1, 77))
        assert len(whole) == len(parts)
        for a, b in zip(whole, parts, strict=True):
            assert a.high == pytest.approx(b.high, rel=1e-5)
            assert np.abs(np.frombuffer(a.cells, np.uint8).astype(int) - np.frombuffer(b.cells, np.uint8)).max() <= 1
            assert np.abs(np.frombuffer(a.peers, np.uint8).astype(int) - np.frombuffer(b.peers, np.uint8)).max() <= 1


def test_what_is_usual_on_very_many_peers_is_estimated_from_some_of_them():
    own = own_times(20, 300)
    own[:, 7, 0] += 9.0
    told = rows(fed(own), 7)
    assert values(told["own"])[-1] == pytest.approx(sum(OWN) + 9.0, rel=0.01)
    assert values(told["own"], "peers")[-1] == pytest.approx(sum(OWN), rel=0.01)


def test_the_loss_is_told_beside_the_peers_and_what_is_no_number_as_such():
    loss = np.tile(np.linspace(2.0, 1.0, 50)[:, None], (1, 3))
    loss[:, 1] += 0.5
    loss[40, 1] = np.nan
    loss[45, 1] = np.inf
    told = rows(fed(own_times(50, 3), loss=loss), 1, columns=50)["loss"]
    assert (told.low, told.high) == pytest.approx((1.0, 2.5))
    assert [place for place, cell in enumerate(told.cells) if cell == NOT_FINITE] == [40, 45]
    assert values(told)[0] == pytest.approx(2.5, abs=0.01)
    assert values(told, "peers")[0] == pytest.approx(2.0, abs=0.01)
    assert "loss" not in rows(fed(own_times(50, 3)), 1)


def test_peers_without_a_loss_are_left_out_of_its_median():
    world = world_with(own_times(30, 3), loss=np.ones((30, 3)), first=1)
    has = world.has_loss.copy()
    has[:, 0] = False
    made = of(dataclasses.replace(world, has_loss=has))
    assert set(rows(made, 1)["loss"].peers) - {NOTHING} == {1}
    assert "loss" not in rows(made, 0)


def test_one_rank_alone_has_no_peers():
    told = rows(fed(own_times(40, 1)), 0)
    assert set(told["own"].peers) == {NOTHING}


def test_one_very_slow_step_does_not_press_the_others_flat():
    own = own_times(60, 2)
    own[30, 0, 0] += 5000.0
    assert rows(fed(own), 0, columns=60)["own"].high < 100
    assert rows(fed(own), 0, columns=60)["own"].cells[30] == MOST


def test_nothing_is_known_before_the_first_step_or_of_a_rank_that_is_not_there():
    assert rank_courses(of(), 0, 1, 40) == []
    assert rank_courses(fed(own_times(10, 2)), 7, 1, 40) == []
    assert rank_courses(fed(own_times(10, 2)), 0, 3, 40) == []


def test_own_times_of_ranks_stand_on_one_scale_that_begins_below_what_is_usual():
    own = np.full((200, 3, 5), 2.0)
    own[100:, 1, 0] += 10.0
    heat = of(world_with(own, first=1))
    courses = own_courses(heat, [1, 2, 7], 8, 25)
    assert [course.rank for course in courses] == [1, 2]
    assert {(course.name, course.low, course.high) for course in courses} == {("own", 9.0, 20.0)}
    late, even = (list(course.cells) for course in courses)
    assert set(even) == {24}
    assert (late[0], late[-2]) == (24, 254)
    assert own_courses(heat, [1], 7, 25) == []
    assert own_courses(of(), [0], 1, 10) == []


def test_wait_transfer_and_efficiencies_are_those_of_each_bin():
    own = np.full((200, 4, 5), 2.0)
    own[100:, 1, 0] += 10.0
    heat = of(world_with(own, first=1))
    courses = {course.name: course for course in sync_courses(heat, 8, 25)}
    decoded = {
        name: [course.low + (cell - 1) / (MOST - 1) * (course.high - course.low) for cell in course.cells]
        for name, course in courses.items()
    }
    assert courses["wait"].high == courses["transfer"].high
    assert decoded["wait"][1] == pytest.approx(0.0, abs=0.05)
    assert decoded["wait"][-2] == pytest.approx(7.5, abs=0.1)
    assert decoded["load balance"][1] == pytest.approx(1.0, abs=0.01)
    assert decoded["load balance"][-2] == pytest.approx(12.5 / 20.0, abs=0.01)
    step = 20.0 + decoded["transfer"][-2]
    assert decoded["communication"][-2] == pytest.approx(20.0 / step, abs=0.01)
    assert decoded["parallel"][-2] == pytest.approx(12.5 / step, abs=0.01)
    alone = of(world_with(own[:, :1], first=1))
    assert sync_courses(alone, 8, 25) == []
