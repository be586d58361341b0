"""Any field of a snapshot may be missing, none, huge or hostile: every pane of every screen draws what is left."""

import math
import typing
from functools import cache
from operator import itemgetter

import msgspec
from rich.cells import cell_len

from ddpmon.messages import (
    BUCKETS,
    GPU_COUNTERS,
    AllReduceView,
    BucketView,
    Collective,
    EfficiencyView,
    Environment,
    Event,
    Exit,
    Finding,
    HeatRow,
    HeatView,
    Quantity,
    RankView,
    RunView,
    Sample,
    Series,
    SeriesRequest,
    Snapshot,
    Stack,
    TimelineRequest,
    TimelineRow,
    TimelineStep,
    TimelineView,
    Wish,
)
from ddpmon.store.parts import with_parts
from ddpmon.tui.filters import parse
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import fit
from ddpmon.tui.widgets.devicelist import DeviceList
from ddpmon.tui.widgets.fulltable import FullTable
from ddpmon.tui.widgets.ranktable import RankTable
from tests.findings import finding
from tests.tui import measured, snapshots, through_time
from tests.tui.driving import drive
from tests.tui.snapshots import replace

SIZES = ((78, 18), (150, 44), (8, 3), (1, 1))
NUMBERS = (math.nan, math.inf, -1e308, 1e308)
COUNTS = (0, -1, 2**53)
TEXTS = (
    "",
    "\x1b[2J\x1b]0;owned\x07\x9b31m",
    "two\nlines\r\nand\ttabs\x00",
    "日本語のホスト名" * 30,
    "\u202egnorw \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "e\u0301\u0301\u0301" * 40 + "👩\u200d👩\u200d👧" * 9,
    "x" * 4_000,
    "[bold red]markup[/] $(reboot) %s {0}",
)


@cache
def whole():
    """A snapshot with everything in it that a screen can show, of few ranks."""
    late = measured.slow()
    ranks = [late.ranks[place] for place in (0, 5, 12, 13)]
    ranks = [replace(rank, rank=place, stack=snapshots.stack(rank, late=place == 3), named_ms={"augment": 3.0},
                     tokens_per_s=1e4, learning_rate=1e-4, gc_ms=0.2) for place, rank in enumerate(ranks)]  # fmt: skip
    shot = replace(
        measured.bucketed(3),
        run=replace(late.run, world_size=4, nnodes=2),
        ranks=ranks,
        findings=[
            Finding("straggler", "warn", "rank 3 is slow", [3], "backward", 12_240, None, 41.0, {"a": 1}, "cool it"),
            finding("hang", "critical", "rank 3 does not come", [3], advice="look"),
        ],
        notes=["there are no GPU counters: NVML not found"],
        missing={GPU_COUNTERS: "there are no GPU counters: NVML not found"},
    )
    wish = Wish(SeriesRequest(rows=4, columns=40), TimelineRequest(rows=4))
    return with_parts(shot, through_time.slow(ranks=4, late=3).store, wish)


def values_for(kind):
    """What a field of this type may hold at worst."""
    if getattr(kind, "__metadata__", ()) and isinstance(kind.__metadata__[0], Quantity):
        kind = kind.__origin__
    kinds = (
        typing.get_args(kind) if typing.get_origin(kind) in {typing.Union, getattr(typing, "UnionType", None)} else ()
    )
    kinds = kinds or (typing.get_args(kind) if type(kind).__name__ == "UnionType" else (kind,))
    for each in kinds:
        origin = typing.get_origin(each) or each
        if each is type(None):
            yield None
        elif each is float:
            yield from NUMBERS
        elif each is bool:
            yield from (True, False)
        elif each is int:
            yield from COUNTS
        elif each is str:
            yield from TEXTS[:4]
        elif origin in {list, dict, bytes}:
            yield origin()
        elif origin is tuple:
            inner = [arg for arg in typing.get_args(each) if arg is not Ellipsis]
            if Ellipsis in typing.get_args(each):
                yield ()
            yield from (
                tuple(value for _ in range(7 if len(inner) == 1 else len(inner))) for value in values_for(inner[0])
            )


def at(path, part):
    """(the struct at a path of fields and places, how to put another one there)."""
    if not path:
        return part, lambda value: value
    first, *rest = path
    inner = part[first] if isinstance(first, int) else getattr(part, first)
    found, put = at(rest, inner)
    if isinstance(first, int):
        return found, lambda value: [*part[:first], put(value), *part[first + 1 :]]
    return found, lambda value: replace(part, **{first: put(value)})


PARTS = {
    Snapshot: (), RunView: ("run",), RankView: ("ranks", 3), Sample: ("ranks", 3, "sample"),
    Stack: ("ranks", 3, "stack"),
    Environment: ("ranks", 3, "environment"), Collective: ("ranks", 0, "stack", "collective"),
    Series: ("own_series",), Event: ("events", 0), Finding: ("findings", 0), BucketView: ("buckets", 1),
    AllReduceView: ("all_reduce",), EfficiencyView: ("efficiency",), HeatRow: ("heat", "rows", 0),
    TimelineStep: ("timeline", "steps", 0), TimelineRow: ("timeline", "rows", 0), Exit: ("ranks", 3, "exit"),
}  # fmt: skip
"""Where each kind of part stands in a whole snapshot."""
NOT_FROM_OUTSIDE = {
    # The hub makes these itself, and they must fit each other: a whole table of cells, an index of a list.
    (HeatView, "cells"), (HeatView, "columns"), (TimelineView, "rows"), (Snapshot, "state"), (Finding, "evidence"),
    (RunView, "world_size"),  # the ranks told it, and the hub checked it
}  # fmt: skip


def worst(part_type):
    """Whole snapshots with fields of one part changed: (what, snapshot).

    Each field is missing once and at one of its worst once, by itself; and all of them are at their worst at once.
    """
    base = whole()
    if part_type is Exit:
        ranks = [*base.ranks[:3], replace(base.ranks[3], health="dead", exit=Exit(1, "SIGKILL", "error", "a\nb"))]
        base = replace(base, ranks=ranks, state="failed")
    if part_type in {Stack, Collective}:
        base = replace(base, state="stalled")
    part, put = at(PARTS[part_type], base)
    name, changes = part_type.__name__, {}
    for number, field in enumerate(msgspec.structs.fields(part_type)):
        if (part_type, field.name) in NOT_FROM_OUTSIDE:
            continue
        values = sorted(values_for(field.type), key=lambda value: value is not None)
        if not values:
            continue  # a part of its own, and never missing
        missing, *rest = changes[field.name] = values
        for value in (missing, *rest[number % len(rest) :][:1]) if rest else (missing,):
            yield f"{name}.{field.name} = {value!r:.60}", put(replace(part, **{field.name: value}))
    for place in range(5):
        worst_of_all = {field: values[place % len(values)] for field, values in changes.items()}
        yield f"{name} = {worst_of_all!r:.400}", put(replace(part, **worst_of_all))


def draw_all(app, frame, size):
    """Every pane of every screen in a rectangle of this size; nothing that it draws may steer a terminal."""
    width, height = size
    for view in app.views.values():
        view.shown = frame
        view.share_out()
        for pane in view.panes:
            before, pane.frame = pane.frame, frame
            for line in pane.draw(frame, width, height)[:height]:
                shown = fit(line, width)
                assert sum(cell_len(text) for text, _ in shown) == width
                assert all(text.isprintable() for text, _ in shown)
            pane.frame = before


def all_tries():
    """(a size, what of a snapshot is how, its frame) for the worst of all parts."""
    for part_type in PARTS:
        tried = 0
        for tried, (what, snapshot) in enumerate(worst(part_type), 1):
            size = SIZES[tried % 2] if tried % 9 else SIZES[2 + tried % 2]
            wanted = parse("rank:0-3 own>1") if tried % 3 == 0 else None
            yield size, what, Frame(snapshot, can_stop=True, filter=wanted)
        # a count that must be there has no odd value that a viewer would take
        assert tried >= len(msgspec.structs.fields(part_type)) // 2


def test_every_pane_draws_whatever_a_field_holds():
    async def go(app, pilot):
        for name in app.views:
            await app.action_go(name)
        by_size = sorted(all_tries(), key=itemgetter(0))  # charts that stay the same are drawn once
        for size, what, frame in by_size:
            print(what, size)
            draw_all(app, frame, size)

    drive(whole(), go, size=(160, 50))


def everywhere(text):
    """The whole snapshot with this for every name in it."""
    base = whole()
    ranks = [
        replace(rank, host=text, device=text, stage=text, health=health, named_ms={text: 1.0},
                stack=replace(rank.stack, frames=[text, text], collective=Collective(text)),
                sample=replace(rank.sample, gpu_throttled=text), exit=Exit(None, text, text, text),
                environment=Environment(text, torch_version=text, backend=text))
        for rank, health in zip(base.ranks, ("ok", "silent", "dead", text), strict=True)
    ]  # fmt: skip
    return replace(
        base, run=replace(base.run, id=text, name=text, script=text), verdict=text, severity=text, ranks=ranks,
        findings=[Finding(text, "critical", text, [3], text, advice=text), *base.findings], notes=[text] * 3,
        missing={BUCKETS: text, GPU_COUNTERS: text},
        events=[Event(0.0, text, text)], buckets=[replace(base.buckets[0], parameters=[text] * 3)],
        heat=replace(base.heat, rows=[replace(row, hosts=(text, text)) for row in base.heat.rows]),
        timeline=replace(base.timeline, rows=[replace(row, host=text) for row in base.timeline.rows]),
    )  # fmt: skip


def test_a_hostile_name_everywhere_at_once_is_shown_on_every_screen():
    async def go(app, pilot):
        for name in app.views:
            await app.action_go(name)
        for text in TEXTS:
            print(repr(text[:40]))
            shot = everywhere(text)
            for state, size in zip(("waiting", "running", "stalled", "failed", text), SIZES * 2, strict=False):
                draw_all(app, Frame(replace(shot, state=state)), size)
            without = [replace(rank, own_ms=None) for rank in shot.ranks]
            draw_all(app, Frame(replace(shot, state="waiting", loss_series=Series(), ranks=without)), SIZES[0])

    drive(whole(), go, size=(160, 50))


def test_wide_names_leave_the_columns_where_they_are():
    """A host of wide characters takes as many columns as one of narrow ones."""
    calm = snapshots.running(4, 4)
    ranks = [replace(rank, host="計算ノード" if rank.rank == 2 else "node-00-ab") for rank in calm.ranks]
    for key in ("1", "2"):
        _, text = drive(replace(calm, ranks=ranks), key, size=(120, 40))
        table = text.partition("rank host")[2]
        own_times = [f"{rank.own_ms:.1f}" for rank in ranks]
        rows = [next(row for row in table.splitlines() if f" {own} " in row) for own in own_times]
        assert len(set(rows)) == len(ranks)
        ends = {cell_len(row.partition(f" {own} ")[0]) for row, own in zip(rows, own_times, strict=True)}
        assert len(ends) == 1, rows


def test_a_list_is_drawn_in_a_single_column():
    for pane in (DeviceList(), FullTable(), RankTable()):
        for frame in (Frame(measured.many()), Frame(measured.slow())):
            pane.frame, pane.chosen = frame, 13
            for width in (1, 2, 3):
                pane.draw(frame, width, 12)
