"""Writes one trace of all ranks that were profiled, on one clock, with ddpmon's phases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from ddpmon.analysis.trace_events import named_track, time_slice
from ddpmon.messages import Profile
from ddpmon.runs import writing
from ddpmon.store.store import Store

FOLDER = "profiles"
"""In a run's folder."""


def write_trace(folder: Path, store: Store, number: int, profiles: Sequence[Profile]) -> str:
    """Write the trace into the run's folder and return its path; empty: the disk does not take it."""
    first = min(profile.first_step for profile in profiles)
    path = folder / FOLDER / f"step-{first}-{number}.json"
    begins = [store.common_us(profile.rank, profile.begin_us) for profile in profiles]
    events: list[dict[str, Any]] = []
    for profile, begin in zip(profiles, begins, strict=True):
        events += _events(profile, begin - min(begins), store)
    content = msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": events})
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        writing.write_text(path, content.decode())
    except OSError as error:
        print(f"the trace {path} cannot be written: {error.strerror}", flush=True)
        return ""
    return str(path)


def _events(profile: Profile, begin: int, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the events of a rank: a process of the trace, with a track for each thread and stream."""
    process = store.registry.seats.get(profile.rank)
    name = f"rank {profile.rank}" + (f" on {process.hello.host}" if process else "")
    for number, track in enumerate(profile.tracks, start=1):
        yield from named_track(profile.rank + 1, name, number, track.name)
        starts = accumulate(track.starts_us)
        for index, start, length in zip(track.names, starts, track.lengths_us, strict=True):
            yield time_slice(profile.rank + 1, number, profile.names[index], track.name, begin + start, length)
