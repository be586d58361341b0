"""Files of a run that its user alone can read, written whole or not at all. Standard library only."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path


def write(path: Path, content: object, *, new: bool = False) -> None:
    """Write JSON into a file of this user alone, whole or not at all. new: FileExistsError if it is there."""
    write_text(path, json.dumps(content, indent=1), new=new)


def write_text(path: Path, text: str, *, new: bool = False) -> Path:
    """Write a text in the same way; returns the path."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        if not new or not _linked(draft, path):
            draft.replace(path)
        return path
    finally:
        draft.unlink(missing_ok=True)


def _linked(draft: Path, path: Path) -> bool:
    """Give a file another name that nothing has. False where there are no links, and nothing of that name."""
    try:
        os.link(draft, path)
    except OSError:
        if path.exists():
            raise FileExistsError(path) from None
        return False
    return True
