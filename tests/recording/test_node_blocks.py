"""Batches in one piece, and back: nothing of them is lost, and what cannot be is refused."""

import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.messages import (
    PAUSES,
    SYNC_KINDS,
    Batch,
    Bucket,
    Pause,
    Sample,
    Scalar,
    Step,
    Sync,
    WireError,
    encode,
)
from ddpmon.recording.node_blocks import check_rows, decode_block, pack_batches

US = st.integers(0, 1 << 40)
SMALL = st.integers(0, 10**6)


@st.composite
def steps(draw, number):
    parts = [draw(SMALL) for _ in range(5)]
    syncs = []
    at = sum(parts)
    for _ in range(draw(st.integers(0, 4))):
        end = at + draw(SMALL)
        syncs.append(Sync(draw(st.integers(0, len(SYNC_KINDS) - 1)), at, end, draw(st.integers(0, 1 << 50))))
        at = end
    length = at + draw(st.sampled_from([0, 1, 1 << 33]))
    pauses = [Pause(draw(st.integers(0, len(PAUSES) - 1)), 0, draw(st.integers(0, length)))] * draw(st.integers(0, 1))
    return Step(
        number, length + draw(US), length, *parts, syncs, draw(st.none() | st.floats()), draw(US), draw(SMALL),
        draw(st.none() | st.floats(allow_nan=False)), draw(SMALL), [Bucket(1, 2, 3)] * draw(st.integers(0, 1)),
        draw(st.sampled_from([{}, {}, {"augment": 7}])), pauses, draw(st.integers(0, 1 << 20)),
    )  # fmt: skip


@st.composite
def batches(draw):
    first = draw(st.integers(1, 1 << 47))
    told = [draw(steps(first + place)) for place in range(draw(st.integers(0, 4)))]
    samples = [Sample(draw(US), draw(st.none() | st.floats(0, 100)), draw(st.none() | SMALL))] * draw(st.integers(0, 2))
    scalars = [Scalar(first, "accuracy", 0.5)] * draw(st.integers(0, 1))
    return Batch(
        draw(SMALL) % (1 << 17), 1 + draw(SMALL), 1 + draw(SMALL), draw(US), 4, first, 0, steps=told, samples=samples,
        scalars=scalars, total_steps=draw(st.none() | st.integers(1, 10)), beats=draw(SMALL),
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.lists(batches(), max_size=4))
def test_batches_come_back_as_they_were(sent):
    block = decode_block(pack_batches(sent))
    assert encode([block.whole_batch(place) for place in range(len(sent))]) == encode(sent)


def plain(step=7, **changes):
    record = Step(step, 10**9, 1000, 1, 2, 3, 4, 5, [Sync(0, 15, 1000, 64)], 0.5)
    return Batch(3, 99, 1, 10**9, 4, step, 0, steps=[msgspec.structs.replace(record, **changes)])


def test_a_step_of_the_common_kind_is_a_row():
    block = decode_block(pack_batches([plain(), plain(8)]))
    assert len(block.table) == 2
    assert [batch.steps for batch in block.batches] == [[], []]


@pytest.mark.parametrize(
    "changes",
    [
        {"end_us": 999},
        {"step": 0},
        {"forward_us": 1500},
        {"syncs": [Sync(0, 15, 1002, 64)]},
        {"syncs": [Sync(9, 1, 2, 0)]},
    ],
)
def test_a_step_that_cannot_be_is_refused(changes):
    with pytest.raises(WireError):
        check_rows(decode_block(pack_batches([plain(), plain(**changes)])).table)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1],
        lambda raw: [raw[0], [2], raw[2]],
        lambda raw: [raw[0], [1, 0], raw[2]],
        lambda raw: [raw[0], [-1], raw[2]],
        lambda raw: [raw[0], raw[1], raw[2][:-1]],
        lambda raw: [[], [], raw[2]],
    ],
)
def test_a_block_whose_parts_do_not_fit_together_is_refused(change):
    raw = msgspec.msgpack.decode(zlib.decompress(pack_batches([plain()])))
    with pytest.raises(WireError):
        decode_block(zlib.compress(encode(change(raw))))


@pytest.mark.parametrize("frame", [b"", b"no zlib", pack_batches([plain()])[:-3]])
def test_what_is_no_block_is_refused(frame):
    with pytest.raises(WireError):
        decode_block(frame)


def test_a_block_that_grows_without_end_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr("ddpmon.recording.node_blocks.MAX_BLOCK_BYTES", 1 << 16)
    with pytest.raises(WireError, match="too large"):
        decode_block(zlib.compress(bytes(1 << 20)))
