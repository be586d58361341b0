"""Of a message that cannot be as a whole, what can be is taken."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.messages import Batch, Bye, Failure, Sample, Scalar, WireError, decode_what_can_be, encode
from ddpmon.messages.mending import _RECORDS
from ddpmon.messages.wire import check_message
from tests.test_messages import BATCH, FROM_RANK, FULL, HELLO, STACK, STEP


def plain(message):
    """A message as lists and numbers, its fields after its tag."""
    return msgspec.msgpack.decode(encode(message))


def decoded(message, **changes):
    """What is made of a message in which some fields are other ones."""
    values = plain(message)
    for name, value in changes.items():
        values[1 + message.__struct_fields__.index(name)] = value
    return decode_what_can_be(msgspec.msgpack.encode(values))


def step(**changes):
    values = plain(STEP)
    for name, value in changes.items():
        values[STEP.__struct_fields__.index(name)] = value
    return values


@pytest.mark.parametrize("message", FROM_RANK, ids=lambda m: type(m).__name__)
def test_of_a_sound_message_nothing_is_left_out(message):
    assert decode_what_can_be(encode(message)) == (message, [])


@pytest.mark.parametrize("total", [1000.0, 0, -1, "many", [], 1 << 60, True], ids=repr)
def test_a_total_that_cannot_be_is_left_out_of_its_batch(total):
    message, left_out = decoded(BATCH, total_steps=total)
    assert left_out == ["total_steps"]
    assert message == msgspec.structs.replace(BATCH, total_steps=None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("samples", -1),
        ("samples", 2.5),
        ("tokens", "x"),
        ("gc_us", -1),
        ("learning_rate", "fast"),
        ("loss", []),
        ("syncs", [[0, 5, 4]]),
        ("named_us", {"x" * 65: 1}),
        ("named_us", {"": 1}),
        ("buckets", [[1]]),
        ("pauses", [[9, 0, 1]]),
        ("backwards", 1 << 63),
    ],
)
def test_a_field_of_a_step_that_cannot_be_is_left_out_and_the_step_is_kept(field, value):
    message, left_out = decoded(BATCH, steps=[plain(STEP), step(step=4, **{field: value})])
    assert left_out == [f"{field} of a step"]
    default = msgspec.structs.replace(STEP, step=4, **{field: getattr(type(STEP)(*[0] * 8), field)})
    assert message.steps == [STEP, default]


@pytest.mark.parametrize(
    "changes", [dict(step=0), dict(step="3"), dict(end_us=-1), dict(data_us=99_999), dict(end_us=None)]
)
def test_a_step_without_what_it_must_have_is_left_out_alone(changes):
    message, left_out = decoded(BATCH, steps=[step(**changes), plain(STEP), [1, 2]])
    assert left_out == ["a step", "a step"]
    assert message.steps == [STEP]


def test_values_of_a_sample_that_are_no_numbers_are_left_out():
    sample = [5, math.nan, 1 << 30, math.inf, -4]
    message, left_out = decoded(BATCH, samples=[sample, plain(Sample(6, 50.0))])
    assert sorted(left_out) == [
        "cpu_percent of a sample",
        "gpu_memory_used_bytes of a sample",
        "gpu_percent of a sample",
    ]
    assert message.samples == [Sample(5, rss_bytes=1 << 30), Sample(6, 50.0)]


def test_a_logged_value_that_cannot_be_does_not_take_the_others_with_it():
    message, left_out = decoded(BATCH, scalars=[[3, "x" * 257, 1.0], [3, "accuracy", 0.5], ["a"], 7])
    assert left_out == ["a logged value"] * 3
    assert message.scalars == [Scalar(3, "accuracy", 0.5)]


@pytest.mark.parametrize("name", _RECORDS)
def test_a_record_that_cannot_be_is_left_out_whatever_else_is_wrong_with_its_batch(name):
    sound = plain(FULL)[1 + FULL.__struct_fields__.index(name)]
    message, left_out = decoded(FULL, total_steps=0, **{name: [*sound, [-1] * 64]})
    assert left_out == ["total_steps", f"a {_RECORDS[name][2]}"]
    assert message == msgspec.structs.replace(FULL, total_steps=None)


def test_every_list_of_a_batch_is_mended_record_by_record():
    lists = {
        field.name
        for field in msgspec.structs.fields(Batch)
        if msgspec.inspect.type_info(field.type).__class__ is msgspec.inspect.ListType
    }
    assert lists == _RECORDS.keys()


@pytest.mark.parametrize("steps", [7, "steps", {}, [[]] * 5000, None], ids=["int", "str", "map", "too many", "nil"])
def test_a_list_that_cannot_be_is_left_out_as_a_whole(steps):
    message, left_out = decoded(BATCH, steps=steps)
    assert left_out == ["steps"]
    assert message == msgspec.structs.replace(BATCH, steps=[])


def test_texts_that_are_too_long_are_left_out():
    assert decoded(HELLO, notes=["x" * 20_000]) == (msgspec.structs.replace(HELLO, notes=[]), ["notes"])
    failure = Failure(1, 4321, 99, "ValueError: x", "Traceback")
    assert decoded(failure, traceback="x" * 40_000) == (msgspec.structs.replace(failure, traceback=""), ["traceback"])
    assert decoded(STACK, own=9)[1] == ["own"]
    assert decoded(Bye(1, 4321, 7), dropped=1 << 63) == (Bye(1, 4321, 7), ["dropped"])


@pytest.mark.parametrize("changes", [dict(rank=-1), dict(pid=0), dict(seq=1 << 60), dict(seq="7"), dict(now_us=-1)])
def test_who_sent_it_and_its_number_are_never_made_up(changes):
    with pytest.raises(WireError):
        decoded(BATCH, **changes)


def test_a_newer_peer_that_says_more_and_something_wrong_is_understood_as_far_as_it_goes():
    values = [*plain(BATCH)[:11], *plain(FULL)[11:], "a new field", ["another"]]
    values[1 + BATCH.__struct_fields__.index("total_steps")] = 0
    message, left_out = decode_what_can_be(msgspec.msgpack.encode(values))
    assert (left_out, message.steps) == (["total_steps"], [STEP])


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x91" * 200_000, b"\xdd\x00\x10\x00\x00" + b"\x90" * (1 << 20), b"\xdd\xff\xff\xff\xff", b"\x91\xa5batch"],
    ids=["nothing", "deep", "wide", "cut short", "a word"],
)
def test_what_is_no_message_stays_none(frame):
    with pytest.raises(WireError):
        decode_what_can_be(frame)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(data=st.data())
def test_whatever_a_field_holds_what_is_taken_is_in_range_and_the_rest_as_it_was(data):
    message = data.draw(st.sampled_from([*FROM_RANK, FULL]))
    values = plain(message)
    place = data.draw(st.integers(1, len(values) - 1))
    values[place] = data.draw(VALUES)
    try:
        taken, _ = decode_what_can_be(msgspec.msgpack.encode(values))
    except WireError:
        return
    check_message(taken)
    changed = message.__struct_fields__[place - 1]
    names = [name for name in message.__struct_fields__ if name != changed]
    if isinstance(message, Batch) or changed not in {"rank", "world_size", "frames"}:  # of which others must fit
        assert [repr(getattr(taken, name)) for name in names] == [repr(getattr(message, name)) for name in names]
