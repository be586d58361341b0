"""A log and what was rotated out of it, as the run's drain leaves them. Standard library only.

stdout.log          what was printed last
stdout.log.1        what was printed before that, once the log grew past half of its bound
stdout.log.first    how it all began, once more than that was printed; its last line says how much is missing after it
"""

from __future__ import annotations

import os
from pathlib import Path

from ddpmon.runs.plain_file import opened


def older(log: Path) -> Path:
    """The file that was last rotated out of a log."""
    return log.with_name(f"{log.name}.1")


def first(log: Path) -> Path:
    """The beginning of a log whose bound was passed."""
    return log.with_name(f"{log.name}.first")


def tail(log: Path, most_bytes: int) -> str:
    """The end of a log, though it was rotated just now; "" where there is none."""
    last = _end(log, most_bytes)
    return (_end(older(log), most_bytes - len(last)) + last).decode(errors="replace")


def _end(path: Path, most_bytes: int) -> bytes:
    if most_bytes <= 0:
        return b""
    try:
        with opened(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes)
    except OSError:
        return b""
