"""Step records as rows of fixed width, as hubs send them, recordings store them and the analysis aligns them.

A step with further data (buckets, named phases, pauses, many synchronisations) does not fit and remains a `Step`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.messages import OWN_PHASES, Step, Sync

SYNCS = 2
"""Number of synchronisations in a row: DDP's broadcast of buffers, and the gradient synchronisation after it."""
PHASE_FIELDS = tuple(f"{phase}_us" for phase in OWN_PHASES)
COUNTS = ("length_us", *PHASE_FIELDS, "gc_us", "samples", "tokens", "backwards")
"""Fields of a row with 32 bits each."""
HAS_LOSS, HAS_RATE = 1, 2
"""Bits of the field `has`."""
_SYNC = np.dtype([("kind", "u1"), ("arrival_us", "<u4"), ("end_us", "<u4"), ("payload_bytes", "<u8")])
ROW = np.dtype(
    [
        ("step", "<u8"), ("end_us", "<u8"), *((name, "<u4") for name in COUNTS), ("loss", "<f8"),
        ("learning_rate", "<f8"), ("has", "u1"), ("sync_count", "u1"), ("syncs", _SYNC, (SYNCS,)),
    ]
)  # fmt: skip
_row = struct.Struct("<QQ" + "I" * len(COUNTS) + "ddBB" + "BIIQ" * SYNCS)
assert _row.size == ROW.itemsize  # noqa: S101  The two definitions describe the same layout.
_head = attrgetter("step", "end_us", *COUNTS)
KIND, ARRIVAL, END, PAYLOAD = range(4)
"""Columns of the array that `Rows.syncs` returns, in the order of a row's fields."""
_NO_SYNC = (0, 0, 0, 0)
"""The values in place of a missing synchronisation."""

Table = NDArray[np.void]
"""[N] Rows of the type ROW."""


def row_of(step: Step) -> bytes | None:
    """Pack a step into a row; return None if it does not fit into one."""
    syncs = step.syncs
    if step.buckets or step.named_us or step.pauses or len(syncs) > SYNCS:
        return None
    loss, rate = step.loss, step.learning_rate
    numbers: tuple[int, ...] = ()
    for sync in syncs:
        numbers += (sync.kind, sync.arrival_us, sync.end_us, sync.payload_bytes)
    try:
        return _row.pack(
            *_head(step),
            0.0 if loss is None else loss,
            0.0 if rate is None else rate,
            (loss is not None and HAS_LOSS) | (rate is not None and HAS_RATE),
            len(syncs),
            *numbers,
            *_NO_SYNC * (SYNCS - len(syncs)),
        )
    except struct.error:
        return None


def table_of(rows: bytes) -> Table:
    """Decode rows from their bytes; raise ValueError if the last row is incomplete."""
    return np.frombuffer(rows, ROW)


def column_bytes(table: Table) -> bytes:
    """Return the bytes of rows, transposed: adjacent similar bytes compress to half the size."""
    return np.frombuffer(table.tobytes(), np.uint8).reshape(len(table), ROW.itemsize).T.tobytes()


def from_column_bytes(raw: bytes) -> Table:
    """Decode rows from the bytes of `column_bytes`; raise ValueError if the bytes do not make up whole rows."""
    by_place = np.frombuffer(raw, np.uint8).reshape(ROW.itemsize, -1)
    return np.ascontiguousarray(by_place.T).view(ROW).reshape(-1)


def concatenate_rows(tables: Sequence[Table]) -> Table:
    """Concatenate rows. NumPy's own function is slower, because it copies field by field."""
    return table_of(b"".join(table.data for table in tables)) if len(tables) != 1 else tables[0]


def steps_of(table: Table) -> list[Step]:
    """Convert rows to step records."""
    count = len(COUNTS)
    made = []
    for (step, end, *rest), syncs in zip(table.tolist(), table["syncs"].tolist(), strict=True):
        length, data, forward, backward, optimizer, other, gc, samples, tokens, backwards = rest[:count]
        loss, rate, has, sync_count, _ = rest[count:]
        made.append(
            Step(
                step,
                end,
                length,
                data,
                forward,
                backward,
                optimizer,
                other,
                [Sync(*sync) for sync in syncs[:sync_count]],
                loss if has & HAS_LOSS else None,
                samples,
                tokens,
                rate if has & HAS_RATE else None,
                gc,
                backwards=backwards,
            )
        )
    return made


def losses_of(table: Table) -> tuple[Floats, Bools]:
    """Return the loss of each row, and whether the row has one, because NaN may be a real loss."""
    has_loss: Bools = table["has"] & HAS_LOSS != 0
    return np.where(has_loss, table["loss"], np.nan), has_loss


def learning_rates(table: Table) -> NDArray[Any]:
    """Return the learning rate of each row; None where it is unknown."""
    values = table["learning_rate"].astype(object)
    values[table["has"] & HAS_RATE == 0] = None
    return values


class Rows:
    """Consecutive steps of the same ranks, one row per step and one column per rank."""

    def __init__(self, ranks: Sequence[int], steps: Sequence[Sequence[Step]]) -> None:
        """Pack records into rows.

        Args:
            ranks: Rank of each column.
            steps: `steps[i][j]` is the record of `ranks[j]` in the i-th step.

        """
        flat = list(chain.from_iterable(steps))
        rows = [row_of(step) for step in flat]
        odd = {place: flat[place] for place, row in enumerate(rows) if row is None}
        table = np.frombuffer(b"".join(row or bytes(ROW.itemsize) for row in rows), ROW)
        self.ranks = tuple(ranks)
        self.table = table.reshape(len(steps), len(self.ranks))
        """[S, R] The packed records."""
        self.odd = odd
        """Records that do not fit into a row, by their index in the flattened table."""

    @classmethod
    def of_table(cls, ranks: tuple[int, ...], table: Table, odd: dict[int, Step]) -> Rows:
        """Wrap a table [S, R] without copying it."""
        rows = cls.__new__(cls)
        rows.ranks, rows.table, rows.odd = ranks, table, odd
        return rows

    def __len__(self) -> int:
        return len(self.table)

    def steps_at(self, places: slice | Sequence[int]) -> Rows:
        """Return only the steps at these indices."""
        chosen = np.arange(len(self))[places]
        width = len(self.ranks)
        to = {int(place): at for at, place in enumerate(chosen)}
        odd = {
            to[place // width] * width + place % width: step for place, step in self.odd.items() if place // width in to
        }
        return Rows.of_table(self.ranks, self.table[chosen], odd)

    def integer_field(self, name: str) -> Ints:
        """Return an integer field of each record, [S, R]."""
        values: Ints = self.table[name].astype(np.int64)
        if self.odd:
            read = attrgetter(name)
            values.reshape(-1)[list(self.odd)] = [read(step) for step in self.odd.values()]
        return values

    def step_numbers(self) -> list[int]:
        """Return the number of each step."""
        numbers: list[int] = self.integer_field("step")[:, 0].tolist()
        return numbers

    def losses(self) -> tuple[Floats, Bools]:
        """Return the losses [S, R], and whether each record has one."""
        values, has_loss = losses_of(self.table)
        for place, step in self.odd.items():
            values.reshape(-1)[place] = np.nan if step.loss is None else step.loss
            has_loss.reshape(-1)[place] = step.loss is not None
        return values, has_loss

    def rates(self) -> Floats:
        """Return the learning rates [S, R]; NaN where the rate is unknown."""
        values: Floats = np.where(self.table["has"] & HAS_RATE != 0, self.table["learning_rate"], np.nan)
        for place, step in self.odd.items():
            values.reshape(-1)[place] = np.nan if step.learning_rate is None else step.learning_rate
        return values

    def paused_us(self) -> Ints | None:
        """Return the time in pauses [S, R]; None if there were no pauses."""
        if not any(step.pauses for step in self.odd.values()):
            return None
        paused = np.zeros(self.table.size, np.int64)
        for place, step in self.odd.items():
            paused[place] = sum(pause.end_us - pause.start_us for pause in step.pauses)
        return paused.reshape(self.table.shape)

    def syncs(self) -> tuple[Ints, Ints]:
        """Return all synchronisations.

        Returns:
            [N] index of each synchronisation's record in the flattened table, rising; and [N, 4] its fields KIND,
            ARRIVAL, END and PAYLOAD.

        """
        flat = self.table.ravel()
        inside = np.arange(SYNCS) < flat["sync_count"][:, None]
        owner = np.nonzero(inside)[0]
        filled = flat["syncs"][inside]
        numbers = np.column_stack([filled[name].astype(np.int64) for name in _SYNC.names or ()])
        if not self.odd:
            return owner, numbers
        more = [
            (place, sync.kind, sync.arrival_us, sync.end_us, sync.payload_bytes)
            for place, step in self.odd.items()
            for sync in step.syncs
        ]
        further = np.array(more, np.int64).reshape(-1, 1 + len(_NO_SYNC))
        owner = np.concatenate([owner, further[:, 0]])
        order = np.argsort(owner, kind="stable")
        return owner[order], np.concatenate([numbers, further[:, 1:]])[order]

    def odd_records(self, place: int) -> dict[int, Step]:
        """Return the records of one step that do not fit into a row, by rank."""
        return self._odd_by_step.get(place, {})

    @cached_property
    def _odd_by_step(self) -> dict[int, dict[int, Step]]:
        by_step: dict[int, dict[int, Step]] = {}
        for at, step in sorted(self.odd.items()):
            place, column = divmod(at, len(self.ranks))
            by_step.setdefault(place, {})[self.ranks[column]] = step
        return by_step
