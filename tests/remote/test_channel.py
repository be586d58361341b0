"""The frames of a line: whole messages come out of any pieces, and garbage is refused without being stored."""

import dataclasses
import math
import os
import struct
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.messages import ViewRequest, WireError
from ddpmon.remote import channel
from ddpmon.remote.channel import (
    Beat,
    Framer,
    Printed,
    Remark,
    RunsThere,
    RunThere,
    Shot,
    Unframer,
    Want,
    from_here,
    from_there,
    greeting,
)
from ddpmon.remote.relay import _newest
from ddpmon.runs import Run
from ddpmon.runs.logs import LAUNCHER, Said

SAID = [Beat(1.5, True, False), Shot(b"x" * 100_000), Remark("no run"), Shot(b""), Beat(0.0, False, True)]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50))
def test_messages_come_out_of_any_pieces_in_their_order(sizes):
    framer, unframer = Framer(), Unframer()
    stream = b"".join(framer.frame(message) for message in SAID)
    found = []
    while stream:
        size = sizes[len(found) % len(sizes)]
        found += unframer.feed(stream[:size])
        stream = stream[size:]
    assert [from_there(each) for each in found] == SAID


def test_what_repeats_itself_is_short():
    framer = Framer()
    changes = os.urandom(5000).hex().encode()
    assert len(framer.frame(Shot(changes))) > 5000
    assert len(framer.frame(Shot(changes))) < 200


@given(st.binary(max_size=2000))
def test_garbage_is_refused_or_waited_for(data):
    unframer = Unframer()
    try:
        unframer.feed(data)
    except WireError:
        return
    assert len(unframer._buffer) <= len(data)


def test_a_frame_that_would_fill_the_memory_is_refused_before_it_does():
    with pytest.raises(WireError, match="4,294,967,295 bytes"):
        Unframer().feed(b"\xff" * 8)
    packer = zlib.compressobj(9)
    bomb = packer.compress(bytes(channel.MAX_MESSAGE_BYTES * 4)) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert len(bomb) < channel.MAX_MESSAGE_BYTES
    with pytest.raises(WireError, match="an incomplete message"):
        Unframer().feed(struct.pack(">I", len(bomb)) + bomb)
    with pytest.raises(WireError, match="a message of"):
        Framer().frame(Shot(b"x" * channel.MAX_MESSAGE_BYTES))


def test_a_message_of_a_newer_ddpmon_is_told_from_those_of_this_one():
    with pytest.raises(WireError):
        from_there(b"\x92\xa7brandnew\x01")
    with pytest.raises(WireError):
        from_here(b"\xff\xff")
    assert from_here(b"\x91\xa4want") == Want(ViewRequest())  # an older one says less
    assert from_there(b"\x95\xa4beat\xcb" + bytes(8) + b"\xc3\xc2\xa4more") == Beat(
        0.0, True, False
    )  # a newer one more


RUN = Run("20260101-000000-aaaa", "mnist", [], "train.py", [], "/", "gpu07", "", 1.7e9, 4)


@pytest.mark.parametrize(
    "message",
    [
        Beat(math.inf, True, True),
        Beat(math.nan, True, True),
        Beat(-1.0, True, True),
        Printed([Said(0, "out", ["x"]), Said(0, "stdout", ["x"])]),
        Printed([Said(-2, "out", ["x"])]),
        Printed([Said(1 << 40, "err", ["x"])]),
        RunsThere([RunThere(dataclasses.replace(RUN, created_at=1e300), "done", "", "")]),
        RunsThere([RunThere(dataclasses.replace(RUN, nnodes=0), "done", "", "")]),
    ],
)
def test_a_value_that_cannot_be_is_refused_before_a_screen_meets_it(message):
    with pytest.raises(WireError):
        from_there(msgspec.msgpack.encode(message))
    for sound in (
        Beat(3.0, True, True),
        Printed([Said(LAUNCHER, "launcher", ["x"])]),
        RunsThere([RunThere(RUN, "done", "", "")]),
    ):
        assert from_there(msgspec.msgpack.encode(sound)) == sound


def test_the_greeting_is_found_behind_whatever_a_login_prints():
    for before in (b"", b"Welcome to gpu07\n", b"no line break", b"\x1b[31m<<ddpmon\n", b"\xff" * 999):
        found = channel.GREETING.search(before + greeting() + b"the rest")
        assert found
        assert int(found[1]) == channel.CHANNEL_PROTOCOL


def test_what_many_ranks_print_at_once_fits_and_says_what_is_left_out():
    said = [Said(rank, "out", ["x" * 1000] * 800) for rank in range(1024)]
    told = _newest(said)
    assert sum(len(line) for each in told for line in each.lines) < channel.MAX_MESSAGE_BYTES // 2
    assert told[5].lines[0] == f"… {800 - len(told[5].lines) + 1} earlier lines are missing"
    (few,) = _newest([Said(0, "out", ["a", "b"])])
    assert few.lines == ["a", "b"]
