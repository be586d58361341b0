"""Any field of a snapshot may be missing, none, huge or hostile: every pane of every screen draws what is left."""

import json
import re
from functools import cache

import msgspec
import pytest
from rich.cells import cell_len

from ddpmon.config import NOTIFY
from ddpmon.export import openmetrics, stacks
from ddpmon.export.headless import Lines
from ddpmon.messages import (
    BUCKETS,
    GPU_COUNTERS,
    Collective,
    Environment,
    Event,
    Exit,
    Finding,
    Series,
    SeriesRequest,
    StackView,
    TimelineRequest,
    ViewRequest,
)
from ddpmon.store.parts import with_parts
from ddpmon.tui.frame import Frame
from ddpmon.tui.head import head_text
from ddpmon.tui.lines import fit_line
from ddpmon.tui.notify import notification_sequence
from ddpmon.tui.widgets.ranktable import table_text
from tests.findings import finding
from tests.tui import measured, snapshots, through_time
from tests.tui.driving import drive
from tests.tui.snapshots import replace

SIZES = ((78, 18), (150, 44), (8, 3), (1, 1))
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
    view_request = ViewRequest(SeriesRequest(rows=4, columns=40), TimelineRequest(rows=4))
    return with_parts(shot, through_time.slow(ranks=4, late=3).store, view_request)


def draw_all(app, frame, size):
    """Every pane of every screen in a rectangle of this size; nothing that it draws may steer a terminal."""
    width, height = size
    for view in app.views.values():
        view.shown = frame
        view.share_out()
        for pane in view.panes:
            before, pane.frame = pane.frame, frame
            for line in pane.draw(frame, width, height)[:height]:
                shown = fit_line(line, width)
                assert sum(cell_len(text) for text, _ in shown) == width
                assert all(text.isprintable() for text, _ in shown)
            pane.frame = before


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


def command_line_texts(shot):
    """Yield all that the command line says of a snapshot."""
    for width in (20, 80, 160):
        yield from head_text(shot, width)
        yield from table_text(shot, width)
    lines = Lines(5.0)
    yield from lines.of(shot, 0.0)
    yield from lines.of(shot, 60.0, 60.0)
    for way in NOTIFY:
        yield re.sub(r"\A\x07?(\x1b\](9|777);[^\x1b]*\x1b\\)*\Z", "", notification_sequence(way, shot, {}))
    told = [*shot.stacks, *(StackView(rank.rank, rank.stack) for rank in shot.ranks if rank.stack)]
    for fresh in (set(), {view.rank for view in told}):
        yield from stacks.text(told, fresh, shot.run.world_size, 0.0)
        yield json.dumps(msgspec.to_builtins(stacks.facts(told, fresh, 0.0)))
    yield from openmetrics.text(shot).split("\n")


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_hostile_name_everywhere_does_not_steer_the_terminal_of_a_command(text):
    assert [line for line in command_line_texts(everywhere(text)) if not line.isprintable()] == []


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
