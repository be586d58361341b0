"""Events of Chrome's trace format, which ui.perfetto.dev and chrome://tracing open. Times are in µs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def named_track(process: int, process_name: str, track: int, track_name: str) -> Iterator[dict[str, Any]]:
    """Yield the names of a track and of its process; tracks are sorted by their number."""
    for kind, args in (
        ("process_name", {"name": process_name}),
        ("thread_name", {"name": track_name}),
        ("thread_sort_index", {"sort_index": track}),
    ):
        yield {"ph": "M", "name": kind, "pid": process, "tid": track, "args": args}


def time_slice(process: int, track: int, name: str, category: str, start: int, length: int) -> dict[str, Any]:
    """Return a stretch of time on a track.

    Args:
        process: Number of the process that the track belongs to.
        track: Number of the track.
        name: Name of the stretch.
        category: Category of the stretch.
        start: Beginning in µs.
        length: Length in µs.

    """
    return {"ph": "X", "pid": process, "tid": track, "name": name, "cat": category, "ts": start, "dur": length}
