"""What a terminal is sent for a change: the same picture as a whole repaint, in fewer bytes."""

import asyncio

import msgspec
import pyte
import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

from ddpmon.tui import terminal_diff
from ddpmon.tui.app import DdpmonApp
from tests.fake_source import FakeSource
from tests.tui import measured, snapshots
from tests.tui.conftest import PAINT

TRUECOLOR = Console(color_system="truecolor", force_terminal=True)


@pytest.fixture
def painted_each_time(monkeypatch):
    """As often as in a terminal, not only once all is idle."""
    monkeypatch.setattr(Screen, "_compositor_refresh", PAINT)


class Told(DdpmonApp):
    """Keeps what its terminal would show, and counts the bytes."""

    def __init__(self, source, size):
        super().__init__(source)
        self.terminal = pyte.Screen(*size)
        self._stream = pyte.Stream(self.terminal)
        self.bytes = self.as_textual = 0

    def _display(self, screen, renderable):
        super()._display(screen, renderable)
        if isinstance(renderable, ChopsUpdate | LayoutUpdate):
            sent = terminal_diff.smaller_update(renderable).render_segments(TRUECOLOR)
            self.bytes += len(sent)
            self.as_textual += len(renderable.render_segments(TRUECOLOR))
            self._stream.feed(sent)

    def whole(self):
        """The terminal as it were after a whole repaint by Textual."""
        terminal = pyte.Screen(self.terminal.columns, self.terminal.lines)
        update = self.screen._compositor.render_full_update()
        pyte.Stream(terminal).feed(update.render_segments(TRUECOLOR))
        return cells(terminal)


def cells(screen):
    return [
        [(cell.data, cell.fg, cell.bg, cell.bold) for cell in (screen.buffer[y][x] for x in range(screen.columns))]
        for y in range(screen.lines)
    ]


def later(snapshot, number):
    """The same run with other values everywhere."""
    ranks = [
        msgspec.structs.replace(
            rank,
            own_ms=None if rank.own_ms is None else rank.own_ms + number * (rank.rank % 3),
            loss=None if rank.loss is None else rank.loss * (1 + number / 7),
            host=rank.host if rank.rank % 5 else f"主机{number}",
        )
        for rank in snapshot.ranks
    ]
    return msgspec.structs.replace(snapshot, ranks=ranks, step=snapshot.step + 7**number, version=number)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_after_any_change_the_terminal_shows_what_a_whole_repaint_would(size, painted_each_time):
    made = [snapshots.STATES["slow"](), measured.MADE["world"](), snapshots.STATES["stalled"]()]
    source = FakeSource(made[0])
    app = Told(source, size)

    async def use():
        async with app.run_test(size=size) as pilot:
            for number, key in enumerate(["1", "s", "2", "down", "3", "4", "question_mark", "escape", "5", "6", "s"]):
                await pilot.press(key)
                source.current = later(made[number % 3], number)
                app.tick()
                await pilot.pause()
                assert cells(app.terminal) == app.whole(), f"after {key}"

    asyncio.run(use())
    assert app.bytes < app.as_textual / 1.5


@pytest.mark.parametrize(
    ("span", "written"),
    [((2, 5), "\x1b[4;3Hcde"), ((0, 8), "\x1b[4;1Habcdefgh"), ((5, 99), "\x1b[4;6Hfgh"), ((8, 9), "")],
)
def test_of_a_row_the_changed_cells_alone_are_sent(span, written):
    row = {0: Strip([Segment("ab", Style()), Segment("cd", Style())]), 4: Strip([Segment("efgh", Style())])}
    update = terminal_diff.smaller_update(ChopsUpdate([{}, {}, {}, row], [(3, *span)], [[], [], [], [4, 8]]))
    assert update.render_segments(TRUECOLOR) == written


def test_of_a_style_only_what_differs_is_sent():
    red, bold_red, on_blue = Style.parse("#ff0000"), Style.parse("bold #ff0000"), Style.parse("#00ff00 on #0000ff")
    strips = [[Strip([Segment("a", red), Segment("b", red), Segment("c", bold_red), Segment("d", red)])]]
    strips += [[Strip([Segment("e", on_blue), Segment("f", red), Segment("g", None)])]]
    sent = terminal_diff.smaller_update(LayoutUpdate(strips, Region(0, 0, 4, 2))).render_segments(TRUECOLOR)
    assert sent == (
        "\x1b[1;1H\x1b[38;2;255;0;0mab\x1b[0;1;38;2;255;0;0mc\x1b[0;38;2;255;0;0md"
        "\x1b[2;1H\x1b[38;2;0;255;0;48;2;0;0;255me\x1b[38;2;255;0;0;49mf\x1b[39mg"
    )


def test_links_come_with_their_own_beginning_and_end():
    strips = [[Strip([Segment("a", Style(bold=True)), Segment("b", Style(link="https://example.org"))])]]
    sent = terminal_diff.smaller_update(LayoutUpdate(strips, Region(0, 0, 2, 1))).render_segments(TRUECOLOR)
    assert sent.startswith("\x1b[1;1H\x1b[0;1ma\x1b[0m\x1b]8;")
    assert sent.endswith("\x1b]8;;\x1b\\")
