"""Names the files of a log that the run's drain rotates. Standard library only.

stdout.log          the latest output
stdout.log.1        the output before that, once the log has grown past half of its limit
stdout.log.first    the first lines, once output was deleted; its last line says how many bytes are missing
"""

from __future__ import annotations

import os
from pathlib import Path

from ddpmon.runs.plain_file import opened


def older(log: Path) -> Path:
    """Return the path of the file that was last rotated out of a log."""
    return log.with_name(f"{log.name}.1")


def first(log: Path) -> Path:
    """Return the path of the file with a log's first lines, if the log has passed its limit."""
    return log.with_name(f"{log.name}.first")


def tail(log: Path, most_bytes: int) -> str:
    """Return the end of a log, even if it was just rotated; "" if there is no log."""
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
