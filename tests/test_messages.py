"""Test that damaged frames give WireError, and nothing else."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon import messages
from ddpmon.messages import (
    MAX_TEXT,
    Batch,
    Bucket,
    Bye,
    Collective,
    Digest,
    Failure,
    Hello,
    Layout,
    Loader,
    Model,
    RankView,
    RunView,
    Sample,
    Scalar,
    Series,
    Setup,
    Snapshot,
    Stack,
    Step,
    Sync,
    WireError,
    decode_from_rank,
    decode_from_viewer,
    decode_snapshot,
    decode_to_rank,
    encode,
)
from ddpmon.messages.vocabulary import MAX_STEPS_PER_BATCH

STEP = Step(3, 1_000_000, 40_000, 1000, 8000, 15_000, 1000, 500, [Sync(0, 20_000, 34_500, 4096)], 2.5, 64)
HELLO = Hello(1, "20261120-141502-7f3a", 1, 1, 4, 0, "node00", 4321, 1, notes=["NVML: not found"])
BATCH = Batch(1, 4321, 7, 1_000_500, 4, 3, 0, 2, [STEP], [Sample(5, 50.0, 1 << 30)], [Scalar(3, "accuracy", 0.9)], 100)
FULL = msgspec.structs.replace(
    BATCH,
    steps=[
        msgspec.structs.replace(
            STEP, buckets=[Bucket(1, 20_000, 30_000)], tokens=64, learning_rate=0.1, gc_us=40, named_us={"augment": 900}
        )
    ],
    samples=[Sample(5, starved_share=0.2, threads=9, gpu_throttled="thermal")],
    digests=[Digest(3, 0, 99, "0", 12, 4)],
    layouts=[Layout(1, 0, 0, 4096, ["0.weight"])],
    unsynchronised=2,
)
FRAMES = ["torch/autograd/graph.py:979 _engine_run_backward", "train.py:40 main"]
STACK = Stack(
    1, 4321, 900, 3, 100, 2, FRAMES, 1, Collective("barrier", "0", 12), blocked=True, issued={"0": 12}, timeout_s=600.0
)
SETUP = Setup(
    [Loader(2, True, 40, "DistributedSampler", 4, 1, 7, True, 1280, 2, 1)],
    [Model(0, 4, 20, 18, ["head.weight", "head.bias"], 2, ["body.weight"], 1, 4000, 3, 0)],
    *(8, ["detect_anomaly"], [0, 1, 8], [0]),
)
FROM_RANK = [
    HELLO,
    msgspec.structs.replace(HELLO, setup=SETUP),
    BATCH,
    Failure(1, 4321, 99, "ValueError: x", "Traceback …", 3),
    Bye(1, 4321, 7),
    FULL,
    STACK,
]


@pytest.mark.parametrize("message", FROM_RANK, ids=lambda m: type(m).__name__)
def test_a_message_comes_out_as_it_went_in(message):
    assert decode_from_rank(encode(message)) == message


@given(frame=st.binary(max_size=300))
def test_noise_gives_a_wire_error_at_most(frame):
    for decode in (decode_from_rank, decode_to_rank, decode_from_viewer, decode_snapshot):
        try:
            decode(frame)
        except WireError:
            pass


@given(data=st.data())
def test_a_damaged_message_gives_a_wire_error_or_values_in_range(data):
    frame = bytearray(encode(data.draw(st.sampled_from(FROM_RANK))))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(1, len(frame)))]
    try:
        message = decode_from_rank(bytes(frame))
    except WireError:
        return
    assert 0 <= message.rank < messages.MAX_WORLD
    if isinstance(message, Batch):
        for step in message.steps:
            assert step.step > 0
            assert 0 <= step.length_us <= step.end_us
            assert all(0 <= s.arrival_us <= s.end_us <= step.length_us + 1 for s in step.syncs)
            assert all(us >= 0 for us in step.named_us.values())


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (HELLO, dict(rank=4)),
        (HELLO, dict(world_size=1 << 40)),
        (HELLO, dict(pid=0)),
        (HELLO, dict(host="x" * (MAX_TEXT + 1))),
        (HELLO, dict(notes=["x"] * (MAX_TEXT + 1))),
        (BATCH, dict(seq=0)),
        (BATCH, dict(phase=5)),
        (BATCH, dict(epochs=1 << 48)),
        (BATCH, dict(steps=[STEP] * (MAX_STEPS_PER_BATCH + 1))),
        (BATCH, dict(samples=[Sample(-1)])),
        (BATCH, dict(scalars=[Scalar(1, "x" * 257, 0.0)])),
        (FROM_RANK[3], dict(traceback="x" * (2 * MAX_TEXT + 1))),
        (HELLO, dict(setup=Setup([Loader()] * 5))),
        (HELLO, dict(setup=Setup([], [Model(0, idle=["x" * 65])]))),
        (HELLO, dict(setup=Setup(cores=[1 << 20]))),
        (HELLO, dict(parallelism="x" * (messages.MAX_NAME + 1))),
        (HELLO, dict(unmeasured=["lunch"])),
        (HELLO, dict(unmeasured=["forward"] * (len(messages.PHASES) + 1))),
        (BATCH, dict(digests=[Digest(3, 0, 1, "x" * 257)])),
        (BATCH, dict(layouts=[Layout(0, 0, 0, 1)])),
        (BATCH, dict(layouts=[Layout(1, 0, 0, 1, ["x" * (MAX_TEXT + 1)])])),
        (STACK, dict(phase=9)),
        (STACK, dict(own=2)),
        (STACK, dict(frames=["x" * (MAX_TEXT + 1)])),
        (STACK, dict(frames=["x"] * (messages.MAX_FRAMES + 1))),
        (STACK, dict(timeout_s=0.0)),
        (STACK, dict(timeout_s=math.nan)),
        (STACK, dict(collective=Collective("x", "0", -1))),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_by_name(message, changes):
    with pytest.raises(WireError):
        decode_from_rank(encode(msgspec.structs.replace(message, **changes)))


@pytest.mark.parametrize(
    "changes",
    [
        dict(step=0),
        dict(end_us=-5),
        dict(length_us=2_000_000),
        dict(data_us=-1),
        dict(data_us=40_000),
        dict(samples=-1),
        dict(buckets=[Bucket(0, 1, 2)]),
        dict(buckets=[Bucket(1, 2, 1)]),
        dict(named_us={"": 1}),
        dict(named_us={"x" * (messages.MAX_NAME + 1): 1}),
        dict(named_us={"augment": -1}),
        dict(named_us={"augment": messages.MAX_US}),
        dict(named_us={str(i): 1 for i in range(messages.MAX_PHASE_NAMES + 1)}),
        dict(syncs=[Sync(3, 0, 1)]),
        dict(syncs=[Sync(0, 5, 4)]),
        dict(syncs=[Sync(0, 0, 50_000)]),
        dict(syncs=[Sync(0, 0, 1, -1)]),
    ],
    ids=str,
)
def test_a_step_whose_times_cannot_be_is_refused(changes):
    step = msgspec.structs.replace(STEP, **changes)
    with pytest.raises(WireError):
        decode_from_rank(encode(msgspec.structs.replace(BATCH, steps=[step])))


def number_types(type_, path=""):
    """Yield every int and float inside a type, with its path."""
    match type_:
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            yield path, type_
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            for field in fields:
                yield from number_types(field.type, f"{cls.__name__}.{field.name}")
        case msgspec.inspect.UnionType(types=types):
            for each in types:
                yield from number_types(each, path)
        case msgspec.inspect.ListType(item_type=item):
            yield from number_types(item, path)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            yield from number_types(key, path)
            yield from number_types(value, path)


def test_every_number_from_a_rank_has_a_range():
    numbers = list(number_types(msgspec.inspect.type_info(messages.FromRank)))
    unbounded = {
        path for path, kind in numbers if (kind.ge is None and kind.gt is None) or (kind.le is None and kind.lt is None)
    }
    below_0 = {path for path, kind in numbers if ((kind.gt if kind.ge is None else kind.ge) or 0) < 0}
    assert below_0 == {"Sample.gpu_temperature_c", "Loader.seed", "Hello.counter_fd", "GpuUser.rank"}
    assert unbounded == {"Step.loss", "Step.learning_rate", "Scalar.value"}


def test_of_a_batch_with_an_invalid_record_the_head_can_be_read():
    damaged = encode(msgspec.structs.replace(BATCH, samples=[Sample(-1)]))
    head, invalid = messages.decode_lenient(damaged)
    assert head == msgspec.structs.replace(BATCH, steps=[], samples=[], scalars=[], total_steps=None)
    assert "Expected `int` >= 0" in invalid
    assert messages.decode_lenient(encode(BATCH)) == (BATCH, "")
    for no_batch in (b"", encode(["hello", 1]), encode(["batch", 1, 4321, 0, 1_000_500, 4, 3, 0])):
        with pytest.raises(WireError):
            messages.decode_lenient(no_batch)


def test_as_many_values_as_a_script_logs_between_two_batches_travel():
    logged = [Scalar(3, f"metric {number}", 0.5) for number in range(10_000)]
    batch = msgspec.structs.replace(BATCH, scalars=logged)
    assert decode_from_rank(encode(batch)) == batch


def test_losses_that_are_no_numbers_travel():
    for loss in (math.nan, math.inf, -math.inf, None):
        batch = msgspec.structs.replace(BATCH, steps=[msgspec.structs.replace(STEP, loss=loss)])
        assert repr(decode_from_rank(encode(batch)).steps[0].loss) == repr(loss)


def test_a_newer_peer_that_says_more_is_understood_and_an_older_one_that_says_less():
    (tag, *fields) = msgspec.msgpack.decode(encode(BATCH))
    assert decode_from_rank(msgspec.msgpack.encode([tag, *fields, "a new field"])) == BATCH
    older = decode_from_rank(msgspec.msgpack.encode([tag, *fields[:7]]))
    assert (older.dropped, older.phase, older.steps, older.total_steps) == (0, 4, [], None)


def test_a_deeply_nested_frame_is_refused():
    with pytest.raises(WireError):
        decode_from_rank(b"\x91" * 200_000)


def test_a_snapshot_travels_whole():
    snapshot = Snapshot(
        "e", 3, 1.5, RunView("id", "name", 1), "running", "all well",
        ranks=[RankView(0, phases_ms=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), named_ms={"augment": 2.0})],
        loss_series=Series([1.0], [None], [2.0], [math.inf]),
        window=(2, 9),
    )  # fmt: skip
    assert decode_snapshot(encode(snapshot)) == snapshot
