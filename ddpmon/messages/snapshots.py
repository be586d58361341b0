"""Check of every snapshot before viewers show it: an inconsistent one raises WireError.

The decoder checks types and ranges; this module checks that the parts of a snapshot fit together. So screens can rely
on this: lists that belong together are equally long, the ranks are those of the world in its order, and moments are
finite. That holds for a hub's snapshot and for one that was made from a damaged recording. Control characters in text
are not removed here, but where the text is written to a terminal.
"""

from __future__ import annotations

from collections.abc import Sized

import msgspec

from ddpmon.messages.rank_view import RankView
from ddpmon.messages.ranks import Stack
from ddpmon.messages.view_parts import CoursesView, HeatView, PrintedView, SeriesView, TimelineView
from ddpmon.messages.viewers import Series, Snapshot
from ddpmon.messages.vocabulary import HEAT_MOST, PRINTED_LINES
from ddpmon.messages.wire import WireError, check_stack, decode, encode

_snapshot = msgspec.msgpack.Decoder(Snapshot)


def decode_snapshot(frame: bytes) -> Snapshot:
    """Decode and check a snapshot from the hub, or raise a WireError that names what is wrong with it."""
    shot = decode(_snapshot, frame)
    check_snapshot(shot)
    return shot


def check_snapshot(shot: Snapshot) -> None:
    """Check that the parts of a snapshot fit together, or raise a WireError that names what is wrong."""
    _check_ranks(shot.ranks, shot.run.world_size)
    _check_series(shot.loss_series, "loss")
    _check_series(shot.own_series, "own time")
    if shot.series is not None:
        _check_points(shot.series)
    for heat in (shot.heat, *shot.heat_phases):
        if heat is not None:
            _check_heat(heat)
    if shot.timeline is not None:
        _check_timeline(shot.timeline)
    if shot.inspect is not None:
        _check_stack(shot.inspect.where.stack)
    history = None if shot.inspect is None else shot.inspect.history
    for courses in (history, shot.samples, shot.cores, shot.strips, shot.sync):
        if courses is not None:
            _check_courses(courses)
    if shot.printed is not None:
        check_printed(shot.printed)
    for view in shot.stacks:
        _check_stack(view.stack)


def check_printed(printed: PrintedView) -> None:
    """Check the number of lines in a rank's output, and raise WireError if it is impossible."""
    _check(len(printed.lines) <= min(PRINTED_LINES, printed.total), f"{len(printed.lines)} lines of a rank's output")


def validated_snapshot(shot: Snapshot) -> Snapshot:
    """Encode, decode and check a snapshot that this process made from a recording, as if a hub had sent it.

    Raises:
        WireError: the snapshot cannot be encoded, or its parts do not fit together.

    """
    try:
        frame = encode(shot)
    except (UnicodeEncodeError, OverflowError, TypeError, msgspec.MsgspecError) as error:
        raise WireError(str(error)) from None
    return decode_snapshot(frame)


def _check(ok: bool, complaint: str) -> None:
    if not ok:
        raise WireError(complaint)


def _check_ranks(ranks: list[RankView], world_size: int) -> None:
    """Check that the ranks are the whole world, in its order."""
    _check(len(ranks) == world_size, f"{len(ranks)} ranks of {world_size}")
    for place, view in enumerate(ranks):
        if view.rank != place:
            raise WireError(f"rank {view.rank} in the place of rank {place}")
        if view.stack is not None:
            _check_stack(view.stack)


def _check_stack(stack: Stack | None) -> None:
    if stack is not None:
        check_stack(stack)


def _alike(*lists: Sized) -> bool:
    return len({len(each) for each in lists}) == 1


def _check_series(series: Series, name: str) -> None:
    lists = series.seconds, series.low, series.median, series.high
    _check(_alike(*lists), f"{name} over time: lists of several lengths")


def _check_points(series: SeriesView) -> None:
    lists = series.seconds, series.steps, series.low, series.median, series.high, series.worst
    _check(_alike(*lists), "a quantity over time: lists of several lengths")
    _check(series.merged > 0, "a quantity over time: points of no step")


def _check_heat(heat: HeatView) -> None:
    _check(len(heat.rows) <= HEAT_MOST and heat.columns <= HEAT_MOST, f"a heat map of {len(heat.rows)} rows")
    _check(len(heat.cells) == len(heat.rows) * heat.columns, f"a heat map of {len(heat.cells)} cells")
    _check(heat.steps > 0 and all(row.count > 0 for row in heat.rows), "a heat map of no steps or ranks")


def _check_timeline(timeline: TimelineView) -> None:
    _check(timeline.ranks >= len(timeline.rows), f"last steps of {timeline.ranks} ranks")


def _check_courses(view: CoursesView) -> None:
    _check(view.columns <= HEAT_MOST and view.per_column > 0, f"courses in {view.columns} columns")
    cells = [cells for course in view.courses for cells in (course.cells, course.peers or course.cells)]
    _check(all(len(each) == view.columns for each in cells), "courses of several lengths")
