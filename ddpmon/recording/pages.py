"""The pages of an SQLite file, whatever became of it: cells and records as far as they are whole.

The format is https://www.sqlite.org/fileformat2.html. Nothing that a page says is believed: what points out of the
file, or does not add up, gives nothing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

from ddpmon.runs import plain_file

MAGIC = b"SQLite format 3\0"
PAGE_BYTES = 4096
"""Size of a page where the header does not say it: SQLite's own choice."""
INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
RECORD_BYTES = 64 << 20
"""A record that claims to be longer is none."""
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INTEGERS = (0, 1, 2, 3, 4, 6, 8)
"""Bytes of an integer, by its serial type."""

Value: TypeAlias = int | float | str | bytes | None


class Cell(NamedTuple):
    """A row: of a table its number; a table WITHOUT ROWID, or an index, has none."""

    rowid: int | None
    record: tuple[Value, ...]


class DamagedError(ValueError):
    """Something does not add up."""


class Pages:
    """The pages of a database, those that its write-ahead log holds in place of the file's. OSError: no such file."""

    def __init__(self, path: Path) -> None:
        self._file = plain_file.descriptor(path)
        self._log = -1
        self._in_log: dict[int, int] = {}
        self._latest = 0, b""
        try:
            header = os.pread(self._file, 100, 0)
            self.size = _page_size(header) or PAGE_BYTES
            self._open_log(Path(f"{path}-wal"))
            self.count = max([-(-os.fstat(self._file).st_size // self.size), *self._in_log])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for file in (self._file, self._log):
            if file >= 0:
                os.close(file)
        self._file = self._log = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_log(self, path: Path) -> None:
        """Note which pages the log holds, up to its last commit; a frame of an earlier log ends it."""
        try:
            self._log = plain_file.descriptor(path)
        except OSError:
            return
        header = os.pread(self._log, _WAL_HEADER, 0)
        if len(header) < _WAL_HEADER or int.from_bytes(header[:4], "big") not in _WAL_MAGIC:
            return
        size = int.from_bytes(header[8:12], "big")
        if size != self.size:
            if os.pread(self._file, 16, 0) == MAGIC or not _is_page_size(size):
                return
            self.size = size
        salts = header[16:24]
        waiting: dict[int, int] = {}
        at, end = _WAL_HEADER, os.fstat(self._log).st_size
        while at + _FRAME_HEADER + size <= end:
            frame = os.pread(self._log, _FRAME_HEADER, at)
            if frame[8:16] != salts:
                break
            waiting[int.from_bytes(frame[:4], "big")] = at + _FRAME_HEADER
            if frame[4:8] != b"\0\0\0\0":
                self._in_log.update(waiting)
                waiting.clear()
            at += _FRAME_HEADER + size

    def page(self, number: int) -> bytes:
        """A page, the last one perhaps cut short; empty where there is none."""
        if number != self._latest[0]:
            self._latest = number, self._read(number) if 0 < number <= self.count else b""
        return self._latest[1]

    def _read(self, number: int) -> bytes:
        try:
            if (at := self._in_log.get(number)) is not None:
                return os.pread(self._log, self.size, at)
            return os.pread(self._file, self.size, (number - 1) * self.size)
        except OSError:
            return b""  # the disk cannot read it

    def kind(self, number: int) -> int:
        """What a page of a tree is; anything else than the four kinds is no such page."""
        page = self.page(number)
        at = 100 if number == 1 else 0
        return page[at] if len(page) > at + 12 else 0

    def free(self) -> set[int]:
        """Pages that hold nothing any more, as far as their list is whole."""
        pages: set[int] = set()
        trunk = int.from_bytes(self.page(1)[32:36], "big")
        while 0 < trunk <= self.count and trunk not in pages:
            pages.add(trunk)
            page = self.page(trunk)
            count = min(int.from_bytes(page[4:8], "big"), len(page) // 4 - 2)
            pages.update(struct.unpack_from(f">{max(0, count)}I", page, 8))
            trunk = int.from_bytes(page[:4], "big")
        return pages

    def children(self, number: int) -> list[int]:
        """Pages below one; none below a leaf."""
        if self.kind(number) not in (INDEX_INTERIOR, TABLE_INTERIOR):
            return []
        page, at = self.page(number), 100 if number == 1 else 0
        children = [int.from_bytes(page[place : place + 4], "big") for place in self._places(page, at, 12)]
        return [*children, int.from_bytes(page[at + 8 : at + 12], "big")]

    def cells(self, number: int) -> Iterator[Cell]:
        """The rows in a page that are whole."""
        kind = self.kind(number)
        if kind not in (INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF):
            return
        page, at = self.page(number), 100 if number == 1 else 0
        for place in self._places(page, at, 12 if kind == INDEX_INTERIOR else 8):
            try:
                yield self._cell(page, place + (4 if kind == INDEX_INTERIOR else 0), kind)
            except (DamagedError, IndexError, struct.error, UnicodeDecodeError):
                continue

    def _places(self, page: bytes, at: int, header: int) -> Iterator[int]:
        count = min(int.from_bytes(page[at + 3 : at + 5], "big"), (self.size - at - header) // 2)
        for i in range(count):
            place = int.from_bytes(page[at + header + 2 * i : at + header + 2 * i + 2], "big")
            if at + header + 2 * count <= place < len(page):
                yield place

    def _cell(self, page: bytes, at: int, kind: int) -> Cell:
        length, at = _varint(page, at)
        rowid = None
        if kind == TABLE_LEAF:
            rowid, at = _varint(page, at)
            rowid -= 1 << 64 if rowid >> 63 else 0
        if not 0 < length <= RECORD_BYTES:
            raise DamagedError("a record of no length, or of too much")
        least = (self.size - 12) * 32 // 255 - 23
        most = self.size - 35 if kind == TABLE_LEAF else (self.size - 12) * 64 // 255 - 23
        local_bytes = length
        if length > most:
            local_bytes = least + (length - least) % (self.size - 4)
            local_bytes = least if local_bytes > most else local_bytes
        payload = page[at : at + local_bytes]
        if len(payload) < local_bytes:
            raise DamagedError("a cell that leaves its page")
        if length > local_bytes:
            payload += self._overflow(
                int.from_bytes(page[at + local_bytes : at + local_bytes + 4], "big"), length - local_bytes
            )
        return Cell(rowid, _record(payload))

    def _overflow(self, number: int, length: int) -> bytes:
        parts = []
        while length > 0:
            page = self.page(number)
            part = page[4 : 4 + length]
            if not part:
                raise DamagedError("a chain of pages that ends too early")
            parts.append(part)
            length -= len(part)
            number = int.from_bytes(page[:4], "big")
        return b"".join(parts)


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65_536 and not size & (size - 1)


def _page_size(header: bytes) -> int | None:
    size = int.from_bytes(header[16:18], "big")
    size = 65_536 if size == 1 else size
    return size if header.startswith(MAGIC) and _is_page_size(size) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    return value << 8 | data[at + 8], at + 9


def _record(payload: bytes) -> tuple[Value, ...]:
    """The values of a record; DamagedError unless they fill it."""
    length, at = _varint(payload, 0)
    if not at <= length <= len(payload):
        raise DamagedError("a header that leaves its record")
    values: list[Value] = []
    place = length
    while at < length:
        kind = payload[at]
        if kind < 0x80:
            at += 1
        else:
            kind, at = _varint(payload, at)
        if kind >= 12:
            size = (kind - 12) >> 1
            part = payload[place : place + size]
            values.append(part.decode() if kind & 1 else part)
            place += size
        elif kind == 0:
            values.append(None)
        elif kind <= 6:
            size = _INTEGERS[kind]
            values.append(int.from_bytes(payload[place : place + size], "big", signed=True))
            place += size
        elif kind == 7:
            values.append(struct.unpack_from(">d", payload, place)[0])
            place += 8
        elif kind in (8, 9):
            values.append(kind - 8)
        else:
            raise DamagedError("a kind of value that there is none of")
    if place != len(payload) or at != length:
        raise DamagedError("a record that its values do not fill")
    return tuple(values)
