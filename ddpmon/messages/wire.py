"""Encoder and decoders of the messages. Each decoder raises a WireError that names the first invalid value.

The structs declare types and ranges, and check in `__post_init__` that their fields fit together. Steps and the ranks
of a snapshot are checked here instead, because code that needs no check also makes great numbers of them. Screens can
rely on three facts, even for a snapshot that was made from a damaged recording: lists that belong together are equally
long, ranks are listed in order and complete, and moments are finite. Control characters in text are not removed here,
but where the text is written to a terminal.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ddpmon.messages.ranks import Batch, BatchHead, FromRank, ToRank
from ddpmon.messages.steps import check_step
from ddpmon.messages.view_requests import FromViewer
from ddpmon.messages.viewers import Snapshot
from ddpmon.messages.vocabulary import WireError, require

_encoder = msgspec.msgpack.Encoder()
_from_rank: msgspec.msgpack.Decoder[FromRank] = msgspec.msgpack.Decoder(FromRank)
_batch_head = msgspec.msgpack.Decoder(BatchHead)
_to_rank: msgspec.msgpack.Decoder[ToRank] = msgspec.msgpack.Decoder(ToRank)
_from_viewer: msgspec.msgpack.Decoder[FromViewer] = msgspec.msgpack.Decoder(FromViewer)
_snapshot = msgspec.msgpack.Decoder(Snapshot)

encode = _encoder.encode

_T = TypeVar("_T")


def decode(decoder: msgspec.msgpack.Decoder[_T], frame: bytes) -> _T:
    """Decode a frame, and raise WireError if the frame is not a message of this decoder's type."""
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from None


def decode_from_rank(frame: bytes) -> FromRank:
    """Decode and check a message of a rank."""
    message = decode(_from_rank, frame)
    if isinstance(message, Batch):
        for step in message.steps:
            check_step(step)
    return message


def decode_lenient(frame: bytes) -> tuple[FromRank, str]:
    """Decode and check a message of a rank, but accept a batch with an invalid record.

    Returns:
        The message, and an error text that is "" if the message is valid. A batch with an invalid record is returned
        without any records, so that the rank can continue after this batch.

    Raises:
        WireError: a message other than a batch is invalid.

    """
    try:
        return decode_from_rank(frame), ""
    except WireError as error:
        try:
            head = decode(_batch_head, frame)
        except WireError:
            raise error from None
        return Batch(*msgspec.structs.astuple(head)), str(error)


def decode_to_rank(frame: bytes) -> ToRank:
    """Decode a message of the hub to a rank."""
    return decode(_to_rank, frame)


def decode_from_viewer(frame: bytes) -> FromViewer:
    """Decode a message of a viewer."""
    return decode(_from_viewer, frame)


def decode_snapshot(frame: bytes) -> Snapshot:
    """Decode and check a snapshot."""
    shot = decode(_snapshot, frame)
    check_ranks(shot)
    return shot


def check_ranks(shot: Snapshot) -> None:
    """Check that a snapshot has every rank of the world, in the order of their numbers, or raise WireError."""
    require(len(shot.ranks) == shot.run.world_size, f"ranks of {shot.run.world_size}", len(shot.ranks))
    for place, view in enumerate(shot.ranks):
        if view.rank != place:
            raise WireError(f"rank {view.rank} in the place of rank {place}")


def validated_snapshot(shot: Snapshot) -> Snapshot:
    """Encode, decode and check a snapshot that this process made from a recording, as if a hub had sent it.

    Raises:
        WireError: the snapshot cannot be encoded, or its parts do not fit together.

    """
    try:
        frame = encode(shot)
    except (UnicodeEncodeError, OverflowError, TypeError, msgspec.MsgspecError) as error:
        raise WireError(str(error)) from None
    return decode_snapshot(frame)
