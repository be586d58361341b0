"""`ddpmon export --format perfetto`: writes Chrome's trace format for ui.perfetto.dev and chrome://tracing.

A trace has a process for each attempt and a track for each rank, with the rank's steps and their phases. Durations of
phases are measured, but their order is not: each phase is drawn as one slice, in the usual order of training loops.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from ddpmon.analysis.trace_events import named_track
from ddpmon.export.steps import Piece
from ddpmon.messages import OWN_PHASES

ORDER = ("optimizer", "other", "data", "forward", "backward")
"""Order in which a step's phases are drawn. A step begins after a gradient synchronisation, with the optimizer's
update."""


def write(pieces: Iterable[Piece], name: str, file: TextIO) -> None:
    """Write the whole trace. name: name of the run."""
    file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
    events = (json.dumps(event, allow_nan=False) for event in _events(pieces, name))
    file.write(next(events, ""))
    file.writelines(f",\n{event}" for event in events)
    file.write("\n]}\n")


def _events(pieces: Iterable[Piece], name: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace. Times are in µs since the first step began."""
    ended: dict[tuple[int, int], int] = {}
    """End of the last step in µs, by (attempt, rank). A slice may not begin earlier, because viewers do not draw
    overlapping slices of a track."""
    zero: int | None = None
    for piece in pieces:
        if zero is None:
            zero = min(record.end_us - record.length_us for record in piece.records[0])
        for rank in piece.world.ranks:
            if (piece.attempt, rank) not in ended:
                ended[piece.attempt, rank] = 0
                yield from _names(piece.attempt, rank, name)
        for i in range(len(piece.records)):
            for j, rank in enumerate(piece.world.ranks):
                yield from _step(piece, i, j, zero, ended[piece.attempt, rank])
                ended[piece.attempt, rank] = piece.records[i][j].end_us - zero


def _names(attempt: int, rank: int, name: str) -> Iterator[dict[str, Any]]:
    again = f", attempt {attempt + 1}" if attempt else ""
    yield from named_track(attempt + 1, f"{name}{again}", rank + 1, f"rank {rank}")


def _step(piece: Piece, i: int, j: int, zero: int, after: int) -> Iterator[dict[str, Any]]:
    world, record = piece.world, piece.records[i][j]
    track = {"ph": "X", "pid": piece.attempt + 1, "tid": world.ranks[j] + 1}
    begin = max(after, record.end_us - record.length_us - zero)
    length = max(0, record.end_us - zero - begin)
    facts = {"step": record.step, "samples": record.samples, "loss": None if record.loss is None else str(record.loss)}
    if (waited_for := piece.critical_rank(i)) is not None:
        facts["waited for"] = f"rank {waited_for}"
    facts |= {f"in {name}": f"{us / 1e3:.3f} ms" for name, us in record.named_us.items()}
    args = {key: value for key, value in facts.items() if value}
    yield {**track, "name": f"step {record.step}", "cat": "step", "ts": begin, "dur": length, "args": args}
    lengths = [(phase, float(world.phases_ms[i, j, OWN_PHASES.index(phase)])) for phase in ORDER]
    if piece.complete:
        lengths += [("wait", float(world.wait_ms[i, j])), ("transfer", float(world.transfer_ms[i, j]))]
    else:
        lengths.append(("wait or transfer", float(world.wait_ms[i, j] + world.transfer_ms[i, j])))
    at = 0
    for phase, ms in lengths:
        dur = min(round(ms * 1e3), length - at)
        if dur > 0:
            yield {**track, "name": phase, "cat": "phase", "ts": begin + at, "dur": dur}
            at += dur
