"""Finds functions in the memory of another process, as its dynamic linker does. Standard library only.

This module reads the tables that the process itself has loaded. It does not read the files, which may be in a container
or may have been replaced since the process started. So the debugger needs no symbols; loading the symbols of torch
would take it many seconds.
elf(5) describes ELF, and https://flapenguin.me/elf-dt-gnu-hash describes the hash table.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from ddpmon import proc

Read = Callable[[int, int], bytes]
"""Function that returns memory of the process. Arguments: address, number of bytes."""

_LINE = re.compile(rb"([0-9a-f]+)-[0-9a-f]+ \S+ ([0-9a-f]+) \S+ \d+ +(/.*)")
_LOAD, _DYNAMIC = 1, 2
_STRTAB, _SYMTAB, _GNU_HASH = 5, 6, 0x6FFFFEF5
_PROGRAM = struct.Struct("<II6Q")
_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTION = 2
_MOST_ENTRIES = 512
_LONGEST_CHAIN = 4096


class NoSymbolError(Exception):
    """A file lacks a table of symbols, or its table lacks the symbol."""


@dataclass(frozen=True)
class Image:
    """A file that a process has mapped, with the address of the file's first byte."""

    base: int
    path: PurePosixPath


def images(pid: int) -> list[Image]:
    """Return every file that is mapped from its beginning, ordered by address. Raises OSError."""
    found = []
    for line in proc.mapped(pid).splitlines():
        match = _LINE.fullmatch(line)
        if match and int(match[2], 16) == 0:
            path = match[3].decode(errors="surrogateescape").removesuffix(" (deleted)")
            found.append(Image(int(match[1], 16), PurePosixPath(path)))
    return found


def find(image: Image, names: tuple[str, ...], read: Read) -> dict[str, int]:
    """Return {name: address} for each function in `names` that a mapped file exports.

    Raises:
        NoSymbolError: The file has no table of exported symbols.
        OSError: The memory of the process cannot be read.

    """
    try:
        tables = _tables(image, read)
        return {name: address for name in names if (address := _address(tables, name, read)) is not None}
    except struct.error:
        raise NoSymbolError(f"{image.path} is only partly in the memory of the process") from None


@dataclass(frozen=True)
class _Tables:
    bias: int
    """Difference between an address in memory and the same address in the file."""
    symbols: int
    strings: int
    hashes: int


def _tables(image: Image, read: Read) -> _Tables:
    header = read(image.base, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise NoSymbolError(f"{image.path} is not a 64-bit program")
    (at,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    raw = read(image.base + at, size * count)
    programs = [_PROGRAM.unpack_from(raw, number * size) for number in range(count)]
    first = next((address for kind, _, offset, address, *_ in programs if kind == _LOAD and offset == 0), None)
    dynamic = next((address for kind, _, _, address, *_ in programs if kind == _DYNAMIC), None)
    if first is None or dynamic is None:
        raise NoSymbolError(f"{image.path} exports nothing")
    bias = image.base - first
    values: dict[int, int] = {}
    for number in range(_MOST_ENTRIES):
        tag, value = struct.unpack("<QQ", read(bias + dynamic + 16 * number, 16))
        if tag == 0:
            break
        values[tag] = value
    if not {_STRTAB, _SYMTAB, _GNU_HASH} <= values.keys():
        raise NoSymbolError(f"{image.path} exports nothing")
    # The dynamic linker of glibc has replaced these offsets by addresses. The one of musl has not.
    symbols, strings, hashes = (
        value if value >= image.base else value + bias
        for value in map(values.__getitem__, (_SYMTAB, _STRTAB, _GNU_HASH))
    )
    return _Tables(bias, symbols, strings, hashes)


def _address(tables: _Tables, name: str, read: Read) -> int | None:
    """Return the address of a function, looked up as the dynamic linker does; None if the file does not export it."""
    buckets, offset, bloom, _ = struct.unpack("<4I", read(tables.hashes, 16))
    wanted = name.encode() + b"\0"
    code = _hash(name)
    chains = tables.hashes + 16 + 8 * bloom
    (number,) = struct.unpack("<I", read(chains + 4 * (code % buckets), 4)) if buckets else (0,)
    for index in range(number, number + _LONGEST_CHAIN) if number >= offset else ():
        (linked,) = struct.unpack("<I", read(chains + 4 * (buckets + index - offset), 4))
        if linked | 1 == code | 1:
            text, info, _, section, value, _ = _SYMBOL.unpack(read(tables.symbols + _SYMBOL.size * index, _SYMBOL.size))
            if info & 15 == _FUNCTION and section and read(tables.strings + text, len(wanted)) == wanted:
                return int(tables.bias + value)
        if linked & 1:
            break
    return None


def _hash(name: str) -> int:
    code = 5381
    for byte in name.encode():
        code = (code * 33 + byte) & 0xFFFFFFFF
    return code
