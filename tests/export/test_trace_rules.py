"""The trace by the Trace Event Format's own rules, as Perfetto's importer and chrome://tracing hold events to them."""

from __future__ import annotations

import io
import json
import math
from collections import defaultdict

import msgspec
import pytest

from ddpmon.export import trace
from ddpmon.export.steps import pieces
from ddpmon.recording.recording import Recording
from tests.recordings import change_steps, record
from tests.worlds import own_times

METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
METADATA |= {"thread_sort_index": "sort_index", "process_labels": "labels"}
"""Names that viewers know, and the argument that each must have."""


def faults(text: str) -> list[str]:
    """Return what breaks a rule: fields that an event of its phase must have, slices of a track that lie across each
    other.

    Complete events and metadata alone: any other phase would need rules of its own here (B and E in pairs, flows with
    both ends), so it is a fault until it has them.
    """
    document = json.loads(text, parse_constant=lambda number: pytest.fail(f"{number} is no JSON"))
    assert document["displayTimeUnit"] in {"ms", "ns"}
    wrong: list[str] = []
    tracks: dict[tuple[int, int], list[tuple[float, float, str]]] = defaultdict(list)
    named = set()
    for event in document["traceEvents"]:
        if type(event.get("pid")) is not int or type(event.get("tid")) is not int or not event.get("name"):
            wrong.append(f"no track or name: {event}")
        elif event["ph"] == "M":
            argument = METADATA.get(event["name"])
            if argument is None or argument not in event["args"]:
                wrong.append(f"metadata that nobody reads: {event}")
            named.add((event["pid"], event["tid"]))
        elif event["ph"] == "X":
            begin, length = event.get("ts"), event.get("dur")
            if not all(isinstance(us, int | float) and math.isfinite(us) and us >= 0 for us in (begin, length)):
                wrong.append(f"no time: {event}")
                continue
            tracks[event["pid"], event["tid"]].append((begin, -length, event["name"]))
        else:
            wrong.append(f"a phase without rules here: {event}")
    wrong += [f"a track without a name: {track}" for track in tracks.keys() - named]
    for track, slices in tracks.items():
        around: list[tuple[float, str]] = []
        for begin, negative, name in sorted(slices):
            end = begin - negative
            while around and around[-1][0] <= begin:
                around.pop()
            if around and around[-1][0] < end:
                wrong.append(f"{name} from {begin} to {end} leaves {around[-1][1]} on {track}, which ends before")
            around.append((end, name))
    return wrong


def written(run) -> str:
    file = io.StringIO()
    with Recording(run) as recording:
        trace.write(pieces(recording, None), run.name, file)
    return file.getvalue()


def lose(process, step):
    return None if (process, step.step) == (2, 10) else step


def lengthen(process, step):
    """A step that would have begun in the one before, as only a recording that somebody wrote into can say."""
    return msgspec.structs.replace(step, length_us=step.length_us * (1 + ((process, step.step) == (2, 12))))


@pytest.mark.parametrize("change", [None, lose, lengthen])
def test_every_event_has_its_fields_and_slices_of_a_track_lie_in_each_other_or_apart(home, change):
    own = own_times(24, 3)
    own[:, 1, 2] += 10
    run = record(own, restarts=(15,), loss=[[1.0, math.nan, math.inf]] * 24)
    if change:
        change_steps(run, change)
    text = written(run)
    assert '"X"' in text
    assert faults(text) == []
