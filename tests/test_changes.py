"""Snapshots as what changed in them: a viewer has what the hub sent, and of many ranks gets only some."""

import math

import msgspec
import pytest

from ddpmon.hub.changes import MAX_OLD_RANKS, Sent
from ddpmon.messages import (
    RankView,
    RunView,
    Sample,
    Series,
    SeriesRequest,
    Snapshot,
    ViewRequest,
    WireError,
    decode_snapshot,
    encode,
)
from ddpmon.messages.changes import Changes, apply_changes
from ddpmon.messages.view_requests import TimelineRequest
from ddpmon.messages.viewers import ClockView
from tests.tui import kinds, measured, odd, snapshots


def _is_possible(make) -> bool:
    """Return whether a viewer would take it: some that tests paint are none of a hub's."""
    try:
        decode_snapshot(encode(make()))
    except WireError:
        return False
    return True


MADE = {**snapshots.STATES, **odd.MADE, **measured.MADE, **kinds.MADE}
MADE = {name: make for name, make in MADE.items() if _is_possible(make)}
assert len(MADE) > 10
WORLD = 1024
replace = msgspec.structs.replace


def value(rank, version):
    """A measured number of so many digits, another one in each version."""
    return 100.0 + 7 * ((rank * 7919 + version * 104_729) % 1009) / 1009


def view(rank, version, **fields):
    number = value(rank, version)
    rest = dict(
        host=f"node{rank // 8}", pid=4000 + rank, health="ok", stage="training", steps=10 * version, step_ms=number,
        own_ms=number / 2, over_median=0.0, phases_ms=(number, number / 3, 0.0), loss=number / 50,
        sample=Sample(0, None, 1 << 31, number / 2, 1 << 30, 80 << 30, 3 * number, 60.0, 1980.0, gpu_throttled=""),
    )  # fmt: skip
    return RankView(rank, **rest | fields)


def shot(version, ranks=WORLD, state="running", **fields):
    run = RunView("x", "x", ranks)
    rows = [view(rank, version) for rank in range(ranks)]
    return replace(Snapshot("e", version, float(version), run, state, "fine", "ok"), ranks=rows, **fields)


class Looking:
    """A viewer, and what the hub keeps of it."""

    def __init__(self, **view_request):
        self.sent, self.view_request, self.has, self.bytes = Sent(), ViewRequest(**view_request), None, []

    def look(self, made):
        self.sent, frame = self.sent.answer(made, self.view_request, self.has.version if self.has else 0)
        self.bytes.append(len(frame))
        self.has = apply_changes(self.has, frame)
        return self.has


def close(one, other):
    """Return whether two trees are the same to four digits."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or abs(one - other) <= 2e-4 * abs(one) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(close, one, other))
    return one == other


def test_every_kind_of_snapshot_comes_through_whole_and_as_a_change_of_any_other():
    names = sorted(MADE)
    for first, second in zip(names, names[1:] + names[:1], strict=True):
        viewer = Looking()
        one, two = MADE[first](), MADE[second]()
        assert repr(viewer.look(replace(one, epoch="e", version=1))) == repr(replace(one, epoch="e", version=1)), first
        came = viewer.look(replace(two, epoch="e", version=2))
        assert close(msgspec.to_builtins(came), msgspec.to_builtins(replace(two, epoch="e", version=2))), second


def test_what_a_viewer_gets_does_not_grow_with_the_world():
    sizes = {}
    for ranks in (WORLD // 4, WORLD, 4 * WORLD):
        viewer = Looking()
        for version in range(1, 4):
            viewer.look(shot(version, ranks))
        sizes[ranks] = viewer.bytes[-1]
    assert sizes[4 * WORLD] < 1.2 * sizes[WORLD // 4] < 30_000


def test_what_happened_and_what_is_on_the_screen_comes_at_once_and_the_rest_in_turn():
    viewer = Looking(strips=SeriesRequest(ranks=((600, 620),), columns=24))
    viewer.look(shot(1))
    made = shot(2)
    made.ranks[1000] = view(1000, 2, health="dead")
    made.ranks[1001] = view(1001, 2, over_median=0.3)
    came = viewer.look(made)
    fresh = {rank for rank in range(WORLD) if came.ranks[rank].steps == 20}
    assert {1000, 1001, *range(600, 621)} < fresh
    assert len(fresh) == MAX_OLD_RANKS + 1 + 21
    looks = 2
    while fresh != set(range(WORLD)):
        looks += 1
        came = viewer.look(replace(made, version=looks))
        fresh |= {rank for rank in range(WORLD) if came.ranks[rank].steps == 20}
    assert looks == 1 + -(-WORLD // MAX_OLD_RANKS)
    assert close(msgspec.to_builtins(came), msgspec.to_builtins(replace(made, version=looks)))


def test_a_world_that_fits_an_answer_and_one_that_has_ended_are_always_whole():
    for ranks, state in ((MAX_OLD_RANKS, "running"), (WORLD, "done")):
        viewer = Looking()
        viewer.look(shot(1, ranks))
        made = shot(2, ranks, state)
        assert close(msgspec.to_builtins(viewer.look(made)), msgspec.to_builtins(made))


def test_series_go_on_and_begin_anew_and_clocks_come_where_they_are_shown():
    viewer = Looking()
    clocks = [ClockView("node1", "node0", 1.0, 0.0, 0.1, None)]
    points = [float(at) for at in range(500)]
    long = Series(points, points, points, points)
    viewer.look(shot(1, 8, loss_series=long, clocks=clocks))
    longer = Series(*([*points, 500.0],) * 4)
    later = [replace(clocks[0], offset_s=2.0)]
    came = viewer.look(shot(2, 8, loss_series=longer, clocks=later))
    assert (came.loss_series, came.clocks) == (longer, clocks)
    assert viewer.bytes[1] < 1500
    viewer.view_request = ViewRequest(timeline=TimelineRequest())
    thinned = Series(*(points[::2],) * 4)
    came = viewer.look(shot(3, 8, loss_series=thinned, clocks=later))
    assert (came.loss_series, came.clocks) == (thinned, later)


def test_who_missed_an_answer_gets_the_next_one_whole():
    viewer = Looking()
    viewer.look(shot(1, 8))
    viewer.sent, _ = viewer.sent.answer(shot(2, 8), viewer.view_request, 1)
    made = shot(3, 8)
    assert viewer.look(made) == made


def test_changes_of_what_is_not_there_and_no_changes_are_refused():
    viewer = Looking()
    first = viewer.look(shot(1, 8))
    _, frame = viewer.sent.answer(shot(2, 8), viewer.view_request, 1)
    for base in (None, replace(first, version=7), replace(first, epoch="other"), replace(first, ranks=first.ranks[:7])):
        with pytest.raises(WireError):
            apply_changes(base, frame)
    packed = msgspec.msgpack.Decoder(Changes).decode(frame).packed
    for wrong in (packed[:-4], b"", packed[:20] + b"\0" * 20, packed[::-1]):
        with pytest.raises(WireError):
            apply_changes(first, encode(Changes(1, "e", wrong)))
    with pytest.raises(WireError):
        apply_changes(first, encode(Changes(0, "e", packed)))
