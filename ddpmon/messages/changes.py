"""Delta encoding of snapshots: the fields that changed since the snapshot that a viewer has, compressed.

Changed ranks are sent as columns, one per field. The viewer keeps its old values for a rank that is in no column. In a
large world, each answer updates only some of the ranks; `hub.changes` selects these ranks.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ddpmon.messages.quantities import Sample
from ddpmon.messages.rank_view import RankView
from ddpmon.messages.viewers import Series, Snapshot
from ddpmon.messages.vocabulary import Count, Rank, WireError
from ddpmon.messages.wire import check_ranks, decode

LARGEST_BYTES = 1 << 28
"""Largest size of a decompressed answer in bytes; an answer about the largest world takes half of it."""
SERIES = ("loss_series", "own_series")
"""Fields of a snapshot that are series. If only the end of a series has changed, only the end is sent."""


class Changes(msgspec.Struct, array_like=True, tag="changes"):
    """An answer to a viewer that named the version of the snapshot it has."""

    base: int
    """Version of the snapshot to which the changes apply, or 0 if the answer is a whole snapshot."""
    epoch: str
    """Epoch of the hub process that counts the snapshot versions."""
    packed: bytes


class Tail(msgspec.Struct, array_like=True, frozen=True):
    """New end of a series: the first `kept` points of the viewer's series stay, and the points in `rest` follow."""

    kept: Count
    rest: Series


def _optional(kind: type[msgspec.Struct], leave_out: tuple[str, ...], column: bool) -> list[tuple[str, Any, Any]]:
    fields = [(field.name, field.type) for field in msgspec.structs.fields(kind) if field.name not in leave_out]
    return [(name, _column(type_) | UnsetType if column else type_ | UnsetType, UNSET) for name, type_ in fields]


def _column(type_: Any) -> Any:
    return list.__class_getitem__(type_)


Columns: Any = msgspec.defstruct(
    "Columns",
    [
        ("ranks", list[Rank], msgspec.field(default_factory=list)),
        *_optional(RankView, ("rank", "sample"), column=True),
        *_optional(Sample, ("time_us",), column=True),
    ],
)
"""Some ranks, and a column of values for each field that changed in at least one of these ranks."""
Changed: Any = msgspec.defstruct(
    "Changed",
    [
        *_optional(Snapshot, ("ranks", *SERIES), column=False),
        *((name, Tail | UnsetType, UNSET) for name in SERIES),
        ("rows", Columns, msgspec.field(default_factory=Columns)),
    ],
)
"""Changed fields of a snapshot, and the changed ranks as `Columns`."""

SAMPLE_COLUMNS = tuple(name for name in Sample.__struct_fields__ if name != "time_us")
"""Fields of a rank's sample. Each of these fields is a column of `Columns`."""
NO_SAMPLE = Sample(0)
"""Placeholder for the sample of a rank that has none."""

_changed = msgspec.msgpack.Decoder(Changed)
_answer: msgspec.msgpack.Decoder[Changes] = msgspec.msgpack.Decoder(Changes)
_ROW = tuple(name for name in Columns.__struct_fields__ if name != "ranks")
_HEAD = tuple(name for name in Changed.__struct_fields__ if name not in {"rows", *SERIES})


def apply_changes(base: Snapshot | None, frame: bytes) -> Snapshot:
    """Apply the changes in an answer to the snapshot that a viewer has, and return the new snapshot.

    Args:
        base: the snapshot that the viewer has.
        frame: the answer of the hub, a `Changes`.

    Raises:
        WireError: the answer is invalid, or does not apply to `base`.

    """
    answer = decode(_answer, frame)
    if answer.base and (base is None or (base.version, base.epoch) != (answer.base, answer.epoch)):
        raise WireError(f"changes to version {answer.base} of the view, which this viewer does not have")
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(answer.packed, LARGEST_BYTES)
    except zlib.error as error:
        raise WireError(str(error)) from None
    if not unpacking.eof:
        raise WireError("an answer that is too large or incomplete")
    news = decode(_changed, content)
    values = {name: value for name in _HEAD if (value := getattr(news, name)) is not UNSET}
    before = base if answer.base else None
    for name in SERIES:
        if (tail := getattr(news, name)) is not UNSET:
            values[name] = _longer(getattr(before, name) if before is not None else Series(), tail)
    if before is None:
        run = values.get("run")
        rows = [RankView(rank) for rank in range(run.world_size)] if run is not None else []
        try:
            shot = Snapshot(**values, ranks=_with_columns(rows, news.rows))
        except TypeError:
            raise WireError("an incomplete answer") from None
    else:
        shot = msgspec.structs.replace(before, **values, ranks=_with_columns(before.ranks, news.rows))
    check_ranks(shot)
    return shot


def _longer(before: Series, tail: Tail) -> Series:
    names = Series.__struct_fields__
    if any(tail.kept > len(getattr(before, name)) for name in names):
        raise WireError("the end of a series that this viewer does not have")
    return Series(*(getattr(before, name)[: tail.kept] + getattr(tail.rest, name) for name in names))


def _with_columns(before: list[RankView], columns: Any) -> list[RankView]:
    ranks = columns.ranks
    if not ranks:
        return before
    if ranks[-1] >= len(before) or any(one >= other for one, other in pairwise(ranks)):
        raise WireError("rows of unknown ranks, or rows that are not in order")
    present = {name: column for name in _ROW if (column := getattr(columns, name)) is not UNSET}
    if any(len(column) != len(ranks) for column in present.values()):
        raise WireError("columns of different lengths")
    sampled = [present.pop(name) if name in present else None for name in SAMPLE_COLUMNS]
    rows = list(before)
    for place, rank in enumerate(ranks):
        changed_values = {name: column[place] for name, column in present.items()}
        if any(column is not None for column in sampled):
            old = rows[rank].sample or NO_SAMPLE
            values = [
                getattr(old, name) if column is None else column[place]
                for name, column in zip(SAMPLE_COLUMNS, sampled, strict=True)
            ]
            sample = Sample(0, *values)
            changed_values["sample"] = None if sample == NO_SAMPLE else sample
        rows[rank] = msgspec.structs.replace(rows[rank], **changed_values)
    return rows
