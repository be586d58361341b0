"""Snapshots as what changed in them since the one before: a few kilobytes where each is seventy.

A snapshot is a tree of what JSON knows. Lists of the same structure lie in it as columns, since neighbours that are
alike compress well. The values of ranks are rounded to what screens show; all others are left as they are.
A patch is one of

    ["r", value]                        another value
    ["d", {key: patch}, [key, …]]       keys that changed or came, and those that went
    ["l", place, removed, [value, …]]   a piece of a list, replaced
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ddpmon.messages import Snapshot, WireError, decode_snapshot, encode

WHOLE_AGAIN_BYTES = 32 << 20
"""After so many bytes of patches comes a whole snapshot, so that no reader's tree can grow for ever."""
_COARSE = ("percent", "_bytes", "_per_s", "_w", "_c")
"""Ends of the names of quantities of which three digits are shown; of the others four."""
_COLUMNS = "\0"
"""The key that tells columns from an object; its value is the number of rows."""


class Differ:
    """Makes patches, each from the snapshot before."""

    def __init__(self) -> None:
        self._last: Any = None
        self._made_bytes = 0

    def patch(self, shot: Snapshot) -> str:
        """The patch from the snapshot before to this one; the first one whole."""
        tree = msgspec.to_builtins(shot)
        tree["ranks"] = _rounded(tree["ranks"])
        new = _columns(tree)
        if self._made_bytes > WHOLE_AGAIN_BYTES:
            self._last, self._made_bytes = None, 0
        text = json.dumps(_diff(self._last, new), separators=(",", ":"))
        self._last = new
        self._made_bytes += len(text)
        return text


class Patcher:
    """Makes snapshots of patches."""

    def __init__(self) -> None:
        self._last: Any = None
        self._taken_bytes = 0

    def take(self, text: str) -> Snapshot:
        """The snapshot that a patch makes of the one before; WireError if it makes none."""
        try:
            patch = json.loads(text)
            self._taken_bytes = 0 if patch[0] == "r" else self._taken_bytes + len(text)
            if self._taken_bytes > 2 * WHOLE_AGAIN_BYTES:
                raise WireError("patches without an end")
            self._last = _applied(self._last, patch)
            shot = msgspec.convert(_rows(self._last), Snapshot)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise WireError(f"no patch of a snapshot: {error}") from None
        return decode_snapshot(encode(shot))  # whose checks are those of every other snapshot


def _rounded(value: Any, key: str = "") -> Any:
    """Values of ranks with the digits that are shown, by the unit in their name."""
    if isinstance(value, float):
        if key.endswith("_share") or key == "over_median":
            return round(value, 3)
        return float(f"{value:.{3 if key.endswith(_COARSE) else 4}g}")
    if isinstance(value, dict):
        return {name: _rounded(each, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each, key) for each in value]
    if isinstance(value, int) and key.endswith("_bytes"):
        return int(float(f"{value:.3g}"))
    return value


def _columns(value: Any) -> Any:
    """The tree with columns where rows of a list have the same keys."""
    if isinstance(value, dict):
        return {key: _columns(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        rows = list(value)
        if len(rows) > 1 and all(isinstance(row, dict) and row and row.keys() == rows[0].keys() for row in rows):
            return {_COLUMNS: len(rows), **{key: _columns([row[key] for row in rows]) for key in rows[0]}}
        return [list(row) if isinstance(row, tuple) else row for row in rows]
    return value


def _rows(value: Any) -> Any:
    """The inverse of `_columns`."""
    if not isinstance(value, dict):
        return value
    plain = {key: _rows(each) for key, each in value.items() if key != _COLUMNS}
    if _COLUMNS not in value:
        return plain
    count = value[_COLUMNS]
    if any(len(column) != count for column in plain.values()):
        raise ValueError("columns of different lengths")
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def _diff(old: Any, new: Any) -> list[Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        changed = {
            key: _diff(old[key], each) if key in old else ["r", each]
            for key, each in new.items()
            if key not in old or not _same(old[key], each)
        }
        return ["d", changed, [key for key in old if key not in new]]
    if isinstance(old, list) and isinstance(new, list):
        most = min(len(old), len(new))
        begin = next((place for place in range(most) if not _same(old[place], new[place])), most)
        end = next(
            (place for place in range(most - begin) if not _same(old[-1 - place], new[-1 - place])), most - begin
        )
        return ["l", begin, len(old) - begin - end, new[begin : len(new) - end]]
    return ["r", new]


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) and type(old) is type(new)


def _applied(old: Any, patch: Any) -> Any:
    kind, *operands = patch
    if kind == "r":
        (value,) = operands
        return value
    if kind == "l":
        place, removed, inserted = operands
        if not (isinstance(old, list) and 0 <= place <= place + removed <= len(old)):
            raise ValueError("a piece of no list")
        return [*old[:place], *inserted, *old[place + removed :]]
    if kind != "d" or not isinstance(old, dict):
        raise ValueError("no such change")
    changed, gone = operands
    remaining = {key: each for key, each in old.items() if key not in set(gone)}
    return remaining | {key: _applied(old.get(key), each) for key, each in changed.items()}
