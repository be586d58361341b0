"""Steps with pauses are set apart, and the time of both is counted."""

from __future__ import annotations

import pytest

from ddpmon.analysis.steps.pauses import PauseFilter, Times
from ddpmon.analysis.steps.table import Rows
from ddpmon.messages import CHECKPOINT, EVALUATION, OUT_OF_DATA, PAUSE, PROFILING, Pause, Step

STEP_US = 40_000


def record(number: int, length_us: int = STEP_US, *pauses: tuple[int, int], data_us: int = 0) -> Step:
    """pauses: kind and length of each, one after the other from the start of the step."""
    told, at = [], 0
    for kind, us in pauses:
        told.append(Pause(kind, at, at + us))
        at += us
    length_us += at
    return Step(number, 10**9 + number * 10**6, length_us, data_us, 0, 0, 0, length_us - at - data_us, pauses=told)


def rows(*steps: list[Step]) -> Rows:
    return Rows((0, 1), list(steps))


def plain(first: int, last: int) -> Rows:
    return rows(*([record(number), record(number)] for number in range(first, last + 1)))


def numbers(kept: Rows | None) -> list[int]:
    return kept.step_numbers() if kept else []


def test_a_step_before_which_one_rank_evaluated_is_no_training_step() -> None:
    pauses = PauseFilter()
    pauses.training_steps(plain(2, 20))
    waits = record(21, STEP_US + 12_000_000)
    kept = pauses.training_steps(rows([record(21, STEP_US, (EVALUATION, 12_000_000)), waits], [record(22), record(22)]))
    assert numbers(kept) == [22]
    times = pauses.times
    assert (times.counts[EVALUATION], times.paused_s[EVALUATION]) == (1, 12.0)
    assert times.training_s == pytest.approx(21 * 0.04)
    (pause,) = times.latest
    assert (pause.kind, pause.step, pause.ranks) == ("evaluation", 21, (0,))


def test_steps_that_end_late_on_one_rank_add_no_training_time() -> None:
    pauses = PauseFilter()
    pauses.training_steps(rows(*([record(n), record(n, STEP_US + (5_000 if n % 2 else -5_000))] for n in range(2, 42))))
    assert pauses.times.training_s == pytest.approx(40 * 0.04)


def test_a_pause_is_as_long_as_on_the_rank_that_took_longest_and_kinds_are_told_apart() -> None:
    pauses = PauseFilter()
    pauses.training_steps(
        rows(
            [
                record(2, STEP_US, (EVALUATION, 1_000_000), (CHECKPOINT, 500_000), (EVALUATION, 250_000)),
                record(2, STEP_US, (EVALUATION, 2_000_000)),
            ]
        )
    )
    assert pauses.times.paused_s[:2] == [2.0, 0.5]
    assert [pause.ranks for pause in pauses.times.latest] == [(0, 1), (0,)]


def test_a_long_step_that_comes_seldom_is_a_pause_of_the_rank_that_had_it() -> None:
    pauses = PauseFilter()
    pauses.training_steps(plain(2, 40))
    kept = pauses.training_steps(
        rows([record(41, 3_000_000), record(41, 3_000_000, data_us=2_900_000)], [record(42), record(42)])
    )
    assert numbers(kept) == [42]
    (pause,) = pauses.times.latest
    assert (pause.kind, pause.ranks, pause.phase) == ("pause", (0,), "other")
    assert pauses.times.paused_s[PAUSE] == pytest.approx(2.96)


def test_what_takes_long_beside_a_reported_pause_is_counted_too() -> None:
    """An epoch ends with a checkpoint, and then something else takes a minute."""
    pauses = PauseFilter()
    pauses.training_steps(plain(2, 40))
    saves = record(41, 60_000_000, (CHECKPOINT, 5_000_000), data_us=59_000_000)
    assert pauses.training_steps(rows([saves, record(41, 65_000_000)])) is None
    times = pauses.times
    assert times.paused_s[CHECKPOINT] == 5.0
    assert times.paused_s[PAUSE] == pytest.approx(59.96)
    assert times.training_s == pytest.approx(40 * 0.04)
    (_, unknown) = times.latest
    assert (unknown.kind, unknown.phase) == ("pause", "other")


def test_long_steps_that_come_often_are_how_the_run_trains() -> None:
    pauses = PauseFilter()
    kept: list[int] = []
    for number in range(2, 122):
        length = 3_000_000 if number > 20 and number % 5 == 0 else STEP_US
        kept += numbers(pauses.training_steps(rows([record(number, length), record(number, length)])))
    assert len(kept) >= 110, "a few at the beginning, before it was known"
    assert pauses.times.counts[PAUSE] <= 4


def test_steps_that_are_longer_from_now_on_are_no_pauses() -> None:
    pauses = PauseFilter()
    pauses.training_steps(plain(2, 60))
    kept = pauses.training_steps(rows(*([record(number, 5_000_000)] * 2 for number in range(61, 101))))
    assert len(numbers(kept)) >= 36


def test_where_most_steps_pause_they_are_kept() -> None:
    pauses = PauseFilter()
    kept: list[int] = []
    for number in range(2, 102):
        kept += numbers(pauses.training_steps(rows([record(number, STEP_US, (EVALUATION, 10_000)), record(number)])))
    assert kept == list(range(21, 102))
    assert pauses.times.counts[EVALUATION] == 100


def test_what_was_counted_before_is_not_counted_again() -> None:
    """A hub that takes a run up goes through steps that the one before it has seen."""
    first = PauseFilter()
    first.training_steps(plain(2, 30))
    before = first.times.training_s
    second = PauseFilter(Times(first.times.last, first.times.training_s))
    second.training_steps(plain(20, 31))
    assert second.times.training_s == pytest.approx(before + 0.04)


def test_steps_without_a_rank_that_is_out_of_data_are_set_apart_and_told_once_an_epoch() -> None:
    """However many there are: its means would be of steps that it did not train in."""
    pauses = PauseFilter()
    for first in (2, 100):
        pauses.training_steps(plain(first, first + 18))
        alone = [[record(n), record(n, STEP_US, (OUT_OF_DATA, 5_000))] for n in range(first + 19, first + 98)]
        assert pauses.training_steps(rows(*alone)) is None
    assert pauses.times.counts[OUT_OF_DATA] == 2
    assert pauses.times.paused_s[OUT_OF_DATA] == pytest.approx(2 * 79 * 0.005)
    assert [told.step for told in pauses.times.latest] == [99, 197]
    assert [told.event_text(2) for told in pauses.for_events] == [
        f"rank 1 ran out of data after step {last}; the other ranks continue to train" for last in (20, 118)
    ]


def test_profiled_steps_are_set_apart_even_if_most_steps_are_profiled() -> None:
    pauses = PauseFilter()
    pauses.training_steps(plain(2, 20))
    profiled = [[record(number, STEP_US, (PROFILING, 0)), record(number)] for number in range(21, 70)]
    assert pauses.training_steps(rows(*profiled)) is None
    assert numbers(pauses.training_steps(plain(70, 71))) == [70, 71]
    assert pauses.times.counts[PROFILING] == 49


def test_times_of_a_recording_without_the_newest_kinds_of_pauses_go_on() -> None:
    older = Times(20, 1.0, [1.0] * PROFILING, [1] * PROFILING)
    assert PauseFilter(older).times.counts == [*[1] * PROFILING, 0]
