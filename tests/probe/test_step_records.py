"""The record of a step says what its parts say, however many they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ddpmon.messages import CHECKPOINT, SYNC_COLLECTIVE, SYNC_GRADIENTS
from ddpmon.probe.records import RawPause, RawStep, RawSync
from ddpmon.probe.step_records import BEFORE_BACKWARD, BEFORE_FORWARD, StepRecords

MS = 1_000_000
whole_ms = st.integers(0, 50).map(lambda ms: ms * MS)
"""In whole milliseconds, so that nothing is lost by rounding."""


@st.composite
def part(draw: st.DrawFn) -> RawStep:
    """One that begins at 0: phases, then a pause, then a synchronisation, one after the other."""
    phases = [draw(whole_ms) for _ in range(5)]
    paused, blocked = draw(whole_ms), draw(whole_ms)
    own = sum(phases)
    end = own + paused + blocked
    return RawStep(
        0,
        end,
        [*phases, paused],
        [RawSync(SYNC_GRADIENTS, own + paused, end, 8)],
        [draw(st.sampled_from((0.5, 2.0)))],
        {0: [*(fed := [draw(st.integers(1, 9)), draw(st.integers(0, 9))]), 1, *fed]},
        draw(st.integers(0, 9)),
        0,
        0.1,
        draw(whole_ms),
        [],
        named=draw(st.sampled_from(({}, {"augment": 2 * MS}))),
        pauses=[RawPause(CHECKPOINT, own, own + paused)] if paused else [],
    )


def moved(part: RawStep, by: int) -> RawStep:
    """The same part, later."""
    return replace(
        part,
        start=part.start + by,
        end=part.end + by,
        syncs=[replace(sync, arrival=sync.arrival + by, end=sync.end + by) for sync in part.syncs],
        pauses=[replace(pause, start=pause.start + by, end=pause.end + by) for pause in part.pauses],
    )


@given(st.lists(part(), min_size=1, max_size=4), st.integers(0, 10**12))
def test_a_step_of_several_parts_adds_up_what_they_say(made: list[RawStep], start: int) -> None:
    every: list[RawStep] = []
    for one in made:
        every.append(moved(one, every[-1].end if every else start))
    *before, last = every
    step, losses = StepRecords().record(replace(last, step=7, before=tuple(before)))
    own = (step.data_us, step.forward_us, step.backward_us, step.optimizer_us, step.other_us)
    assert own == tuple(sum(one.phases[phase] for one in every) // 1000 for phase in range(5))
    blocked = sum(sync.end_us - sync.arrival_us for sync in step.syncs)
    paused = sum(pause.end_us - pause.start_us for pause in step.pauses)
    assert sum(own) + blocked + paused == step.length_us == (last.end - start) // 1000
    assert [sync.end_us for sync in step.syncs] == [(one.end - start) // 1000 for one in every]
    assert [pause.kind for pause in step.pauses] == [CHECKPOINT for one in every if one.pauses]
    assert step.samples == sum(one.fed[0][0] for one in every)
    assert step.tokens == sum(one.fed[0][1] for one in every)
    assert (step.loss, losses) == (sum(loss for one in every for loss in one.losses if isinstance(loss, float)), {})
    assert step.gc_us == sum(one.gc for one in every) // 1000
    assert step.named_us.get("augment", 0) == 2000 * sum(bool(one.named) for one in every)
    assert step.backwards == len(every)


def raw(**more: object) -> RawStep:
    """A step of 10 ms in which nothing happens but what is said."""
    return replace(RawStep(0, 10 * MS, [0] * 6, [], [], {}, 0, 0, None, 0, [], step=1), **more)


def test_gaps_that_are_a_part_of_the_step_have_a_name_and_small_ones_none() -> None:
    step, _ = StepRecords().record(raw(gaps=(MS, MS // 10)))
    assert step.named_us == {BEFORE_FORWARD: 1000}
    step, _ = StepRecords().record(raw(gaps=(0, MS), named={BEFORE_BACKWARD: 5 * MS}))
    assert step.named_us == {BEFORE_BACKWARD: 5000}, "what the script calls so goes before"


def test_what_began_before_the_step_or_never_ended_is_cut() -> None:
    syncs = [RawSync(SYNC_COLLECTIVE, -MS, 2 * MS, 4)]
    pauses = [RawPause(CHECKPOINT, 8 * MS, 20 * MS)]
    step, _ = StepRecords().record(raw(syncs=syncs, pauses=pauses, buckets=[[0, MS, 20 * MS], [1, 2 * MS, 0]]))
    assert [(sync.arrival_us, sync.end_us) for sync in step.syncs] == [(0, 2000)]
    assert [(pause.start_us, pause.end_us) for pause in step.pauses] == [(8000, 10_000)]
    assert [(bucket.layout, bucket.end_us) for bucket in step.buckets] == [(0, 10_000)]


def test_fetched_samples_tell_where_the_model_saw_more_than_was_trained_on() -> None:
    step, _ = StepRecords().record(raw(losses=[1.0], fed={0: [16, 0, 2, 8, 0]}, samples=8))
    assert step.samples == 8
    step, _ = StepRecords().record(raw(losses=[1.0], fed={0: [16, 0, 1, 16, 0]}, samples=8))
    assert step.samples == 16
    step, _ = StepRecords().record(raw(losses=[1.0], fed={0: [16, 0, 1, 16, 0]}, samples=8, marked_samples=3))
    assert step.samples == 3


def test_a_step_whose_batch_was_fetched_before_it_has_as_many_samples_as_the_others() -> None:
    made = StepRecords()
    for fetched, told in ((16, 16), (8, 8), (0, 8)):  # a loader that is one batch ahead
        step, _ = made.record(raw(losses=[1.0], fed={0: [16, 0, 2, 8, 0]}, samples=fetched))
        assert step.samples == told
