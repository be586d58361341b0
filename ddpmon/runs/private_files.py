"""Writes private files of a run atomically. Standard library only."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write(path: Path, content: object, *, new: bool = False) -> None:
    """Write JSON into a file that only this user can read, atomically. new: raise FileExistsError if it exists."""
    write_text(path, json.dumps(content, indent=1), new=new)


def write_text(path: Path, text: str, *, new: bool = False) -> Path:
    """Write a text into a private file, as `write` does; return the path."""
    draft = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        if not new or not _linked(draft, path):
            draft.replace(path)
        return path
    finally:
        draft.unlink(missing_ok=True)


def _linked(draft: Path, path: Path) -> bool:
    """Link a file to a new name; return False if links are not supported. Raise FileExistsError if the name exists."""
    try:
        os.link(draft, path)
    except OSError:
        if path.exists():
            raise FileExistsError(path) from None
        return False
    return True
