"""Test that a rank's values are limited to what is possible at that moment."""

import pytest

from ddpmon.messages import STAGE_TRAINING, Batch, Digest, Hello, Layout, Sample, Scalar, Step
from ddpmon.recording.plausible import AHEAD_US, LEAST_STEP_US, STEPS_AHEAD, leave_out
from ddpmon.store.processes import RankProcess

NOW_US = 1_000_000_000
HELLO = Hello(1, "run", 0, 0, 1, 0, "here", 40, STAGE_TRAINING)


def process(last=10):
    """One that told of the steps up to `last`, each of 1 ms; the last ended a second ago."""
    return RankProcess(
        1, 0, HELLO, last_step=last, steps=last, records=last, hole=False, last_end_us=NOW_US - 1_000_000
    )


def steps(*numbers, end_us=NOW_US):
    """The last of them ends at a moment, the others a millisecond apart before it."""
    last = len(numbers) - 1
    return [Step(n, end_us - 1000 * (last - i), 1000, 0, 0, 0, 0, 1000) for i, n in enumerate(numbers)]


def told(rank, *numbers, step=None, **fields):
    """A batch, what was left out of it, and the numbers of the steps that were taken."""
    batch = Batch(0, 40, 1, NOW_US, STAGE_TRAINING, step or rank.last_step + len(numbers), 0)
    batch.steps = steps(*numbers)
    for name, value in fields.items():
        setattr(batch, name, value)
    left_out = leave_out(rank, batch, NOW_US)
    rank.count_new_steps(batch.steps)
    rank.dropped = batch.dropped
    return batch, left_out, [one.step for one in batch.steps]


def test_steps_that_follow_are_taken():
    assert told(process(), 11, 12, 13)[1:] == ([], [11, 12, 13])


def test_steps_that_are_known_are_no_news_and_nothing_wrong():
    assert told(process(), 9, 10, 11)[1:] == ([], [9, 10, 11])


@pytest.mark.parametrize("number", [12, 300, 1 << 47])
def test_a_step_that_is_not_the_next_one_is_left_out(number):
    assert told(process(), 11, number)[1:] == (["a step"] if number > 12 else [], [11, number][: 1 + (number == 12)])


def test_steps_go_on_behind_one_that_was_left_out():
    rank = process()
    assert told(rank, 11, 300, 13, 14)[1:] == (["a step"], [11, 13, 14])
    assert told(rank, 15)[1:] == ([], [15])


def test_a_jump_is_taken_once_the_next_batch_goes_on_from_it():
    """Whatever made the rank count on from elsewhere: it is not left out for ever."""
    rank = process()
    assert told(rank, 300)[2] == []
    assert told(rank, 301, 302)[1:] == ([], [301, 302])


def test_as_many_steps_may_be_missing_as_the_rank_says_it_dropped():
    assert told(process(), 16, dropped=5)[1:] == ([], [16])
    assert told(process(), 17, dropped=5)[1:] == (["a step"], [])


def test_after_batches_that_are_lost_any_step_may_be_next_that_time_can_hold():
    rank = process()
    rank.hole = True
    most = 10 + 1 + 1_000_000 // LEAST_STEP_US
    assert told(rank, most + 1)[2] == []
    rank.hole = True
    assert told(rank, most)[2] == [most]


def test_a_step_or_a_sample_of_the_future_is_left_out():
    later = NOW_US + AHEAD_US
    batch, left_out, _ = told(process(), steps=steps(11, end_us=later + 1), samples=[Sample(later), Sample(later + 1)])
    assert left_out == ["a step", "a sample"]
    assert [sample.time_us for sample in batch.samples] == [later]


def test_of_another_machine_the_clock_is_its_own():
    batch = Batch(0, 40, 1, 5_000_000_000, STAGE_TRAINING, 11, 0, steps=steps(11, end_us=5_000_000_000))
    assert leave_out(process(), batch, None) == []
    assert leave_out(process(), Batch(0, 40, 1, 500, STAGE_TRAINING, 11, 0, samples=[Sample(1 << 50)]), None) == [
        "a sample"
    ]


def test_a_number_of_finished_steps_far_beyond_the_records_is_left_out():
    batch, left_out, _ = told(process(), 11, step=12 + STEPS_AHEAD)
    assert (left_out, batch.step) == (["number of finished steps"], 11)


def test_values_and_digests_of_steps_to_come_are_left_out():
    batch, left_out, _ = told(
        process(),
        11,
        scalars=[Scalar(12, "a", 1.0), Scalar(13, "a", 1.0)],
        digests=[Digest(12, 0, 1), Digest(1 << 40, 0, 1)],
    )
    assert left_out == ["a logged value", "a digest"]
    assert ([one.step for one in batch.scalars], [one.step for one in batch.digests]) == ([12], [12])


def test_layouts_are_kept_in_bounded_memory():
    rank = process()
    rank.layouts = {number: Layout(number, 0, 0, 1) for number in range(8192)}
    batch, left_out, _ = told(rank, 11, layouts=[Layout(9000, 0, 0, 1)])
    assert (left_out, batch.layouts) == (["layouts"], [])
