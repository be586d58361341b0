"""Decodes a message of a rank in which some value is impossible: that value alone is left out.

A field of another type than ours, or out of its range, gets its default; a record that cannot do without it is left
out of its batch. What a message cannot be read without (who sent it, its number) is never made up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from ddpmon.messages.ranks import (
    Batch,
    Bye,
    Digest,
    Failure,
    FromRank,
    Hello,
    Layout,
    Meeting,
    Pause,
    Sample,
    Scalar,
    Stack,
    Step,
)
from ddpmon.messages.vocabulary import MAX_STEPS_PER_BATCH
from ddpmon.messages.wire import (
    WireError,
    check_digest,
    check_head,
    check_layout,
    check_pause,
    check_sample,
    check_scalar,
    check_step,
    decode_from_rank,
)

MOST_FIELDS = 64
"""Of a message: a later version may say more than ours."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_raw_items = msgspec.msgpack.Decoder(list[msgspec.Raw])
_tag = msgspec.msgpack.Decoder(str)
_MESSAGES: dict[str, type[msgspec.Struct]] = {
    "hello": Hello, "batch": Batch, "failure": Failure, "bye": Bye, "stack": Stack, "meeting": Meeting,
}  # fmt: skip
_RECORDS: dict[str, tuple[type[msgspec.Struct], Callable[[Any], None], str]] = {
    "steps": (Step, check_step, "step"),
    "samples": (Sample, check_sample, "sample"),
    "scalars": (Scalar, check_scalar, "logged value"),
    "digests": (Digest, check_digest, "digest"),
    "layouts": (Layout, check_layout, "layout"),
    "closing_pauses": (Pause, check_pause, "pause"),
}
"""The lists of a batch: the type of a record, its check, and what people call it."""


def decode_what_can_be(frame: bytes) -> tuple[FromRank, list[str]]:
    """Decode and check what a rank sent; with it, what was left out: "total_steps", "samples of a step", "a step".

    WireError if too little of it can be.
    """
    try:
        return decode_from_rank(frame), []
    except WireError as error:
        wrong = error
    items = _items(frame, MOST_FIELDS) or []
    kind = _MESSAGES.get(_decoded(_tag, items[0])) if items else None
    if kind is None:
        raise wrong
    left_out: list[str] = []
    lists = _RECORDS if kind is Batch else {}
    message = _mended(kind, items[1:], check_head, "", left_out, frozenset(lists))
    if message is None:
        raise wrong
    for name, field in zip(kind.__struct_fields__, items[1:], strict=False):
        if name in lists:
            setattr(message, name, _records(name, field, left_out))
    if not left_out:
        raise wrong
    return cast("FromRank", message), left_out


def _records(name: str, field: msgspec.Raw, left_out: list[str]) -> list[Any]:
    """The records of a list that are possible."""
    kind, check, called = _RECORDS[name]
    items = _items(field, MAX_STEPS_PER_BATCH)
    if items is None:
        left_out.append(name)
        return []
    read = (_record(kind, item, check, called, left_out) for item in items)
    return [record for record in read if record is not None]


def _record(
    kind: type[_Struct], item: msgspec.Raw, check: Callable[[Any], None], called: str, left_out: list[str]
) -> _Struct | None:
    try:
        record = _decoder(kind).decode(item)
        check(record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, WireError):
        fields = _items(item, MOST_FIELDS)
        record = None if fields is None else _mended(kind, fields, check, f" of a {called}", left_out, frozenset())
        if record is None:
            left_out.append(f"a {called}")
    return cast("_Struct | None", record)


def _mended(
    kind: type[_Struct],
    fields: list[msgspec.Raw],
    check: Callable[[Any], None],
    of_what: str,
    left_out: list[str],
    beside: frozenset[str],
) -> _Struct | None:
    """A struct with those of its fields that are possible; None if it lacks one that it must have.

    beside: fields that the caller sees to.
    """
    by_name = dict(zip(kind.__struct_fields__, fields, strict=False))
    wrong = []
    values: dict[str, Any] = {}
    must = kind.__struct_fields__[: len(kind.__struct_fields__) - len(kind.__struct_defaults__)]
    for name, field in by_name.items():
        if name in beside:
            continue
        try:
            values[name] = _decoder(_types(kind)[name]).decode(field)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            wrong.append(name)
    try:
        mended = kind(**{name: values[name] for name in must})
        check(mended)
    except (KeyError, WireError):
        return None
    for name in values.keys() - set(must):
        candidate = msgspec.structs.replace(mended, **{name: values[name]})
        try:
            check(candidate)
        except WireError:
            wrong.append(name)
        else:
            mended = candidate
    left_out += sorted(f"{name}{of_what}" for name in wrong)
    return mended


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def _decoded(decoder: msgspec.msgpack.Decoder[str], item: msgspec.Raw) -> str:
    try:
        return decoder.decode(item)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _items(field: bytes | msgspec.Raw, most: int) -> list[msgspec.Raw] | None:
    """The parts of an array, undecoded; None where it is none, or has more than `most`: each costs memory."""
    head = bytes(memoryview(field)[:5])
    if not head:
        return None
    if head[0] >> 4 == 0x9:
        count = head[0] & 0xF
    elif head[0] in {0xDC, 0xDD}:
        count = int.from_bytes(head[1 : 3 if head[0] == 0xDC else 5], "big")
    else:
        return None
    if not 0 <= count <= most:
        return None
    try:
        return _raw_items.decode(field)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
