"""Compares two runs side by side, as `ddpmon diff` does, on the whole screen."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from ddpmon import comparison
from ddpmon.errors import DdpmonError
from ddpmon.runs import Run
from ddpmon.tui.daemon_thread import on_daemon_thread
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut_text, fit_line, line_width, pane_title, paragraph, plain_text
from ddpmon.tui.palette import Palette
from ddpmon.tui.screens.scrolled import Scrolled, Text

_OUTCOMES = {"faster": ("✔ FASTER", "ok"), "slower": ("▲ SLOWER", "warn"), "same": ("● NO DIFFERENCE", "strong")}
_NAME, _CELL = 19, 10
_WITH_BARS = 104
"""Width in columns from which bars are drawn to the right of the phases."""
_LONGEST_BAR = 24
_LEAST_MS = 0.05
"""Smallest difference in milliseconds that has a bar."""


def comparison_lines(compared: dict[str, Any], width: int) -> list[Line]:
    """Return the result of `comparison.build` in lines of `width` columns."""
    word, role = _OUTCOMES.get(compared["outcome"], (compared["outcome"].upper(), "strong"))
    lines: list[Line] = [[(f" {word}", role), ("   B against A", "muted")]]
    lines += [*paragraph(f"{compared['verdict']}.", width - 1, "strong"), []]
    for name in ("a", "b"):
        lines += paragraph(comparison.title(compared[name]), width - 1, "text", [(f" {name.upper()}  ", "key")])
    lines += [[], pane_title("speed and loss", width), _cells(("", "A", "B", "B - A"), "muted")]
    lines += [_cells(row) for row in comparison.numbers(compared)]
    lines += [[], pane_title("ms a step: mean of all ranks, and of the slowest rank in each step", width)]
    lines += _phases(compared, width)
    lines += [[], pane_title("why", width)]
    for word, sentence in comparison.sentences(compared):
        lines += paragraph(sentence, width - 1, "text", [(f" {word:<6} ", "key")])
    return [*lines, [], *paragraph(comparison.INTERVAL_NOTE, width - 1, "muted")]


def _phases(compared: dict[str, Any], width: int) -> list[Line]:
    header = _cells(("", "A", "B", "B - A", "crit A", "crit B", "B - A"), "muted")
    lines = [_cells(row) for row in comparison.phases(compared)]
    if width < _WITH_BARS:
        return [header, *lines]
    a, b = compared["a"]["critical_path_ms"], compared["b"]["critical_path_ms"]
    changes = [0.0 if a[name] is None or b[name] is None else b[name] - a[name] for name in a]
    most = max(map(abs, changes), default=0.0)
    half = min(_LONGEST_BAR, (width - 7 * _CELL - _NAME) // 2)
    header += [(" " * 4 + f"{'B has less':>{half - 1}} ", "ok"), ("│", "rule"), (" B has more", "warn")]
    for line, change in zip(lines, changes, strict=True):
        length = round(half * abs(change) / most) if abs(change) >= _LEAST_MS else 0
        less, more = (length, 0) if change < 0 else (0, length)
        line[:] = fit_line(line, _NAME + 6 * _CELL + 4)
        line += [(" " * (half - less), "text"), ("█" * less, "ok"), ("│", "rule"), ("█" * more, "warn")]
    return [header, *lines]


def _cells(row: tuple[str, ...], role: str = "text") -> Line:
    """Return a name and its numbers as one line."""
    line: Line = [(f" {cut_text(row[0], _NAME - 1):<{_NAME - 1}}", "muted")]
    for place, cell in enumerate(row[1:]):
        change = role == "text" and place % 3 == 2
        change_role = "strong" if cell.strip("+-0.,") else "muted"
        line.append((f"{cell:>{_CELL}}", change_role if change else role))
    return line


class _Comparison(Text):
    """Shows the comparison as text. Before the comparison is ready, it shows that the recordings are being read. If
    reading fails, it shows the error.
    """

    def __init__(self, heading: str) -> None:
        super().__init__()
        self.made: dict[str, Any] | None = None
        self.error = ""
        self._heading = heading

    def heading(self, width: int) -> list[Line]:
        return [pane_title(self._heading, width)]

    def lines(self, frame: Frame, width: int) -> list[Line]:
        if self.error:
            return paragraph(self.error, width - 1, "warn", [("▲ ", "warn")])
        if self.made is None:
            return [[(" reading both recordings…", "info")]]
        return [
            line if line_width(line) <= width else _columns(line, width) for line in comparison_lines(self.made, width)
        ]


def _columns(line: Line, width: int) -> Line:
    """Return the leading pieces of a line that fit into `width` columns without being cut."""
    fitted: Line = []
    for piece in line:
        if line_width([*fitted, piece]) > width:
            break
        fitted.append(piece)
    return fitted


class Compare(Scrolled):
    """The comparison of run B with run A. Another thread reads the recordings, because reading takes seconds."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "dismiss", show=False)]

    def __init__(self, a: Run, b: Run, palette: Palette) -> None:
        self._a, self._b = a, b
        self._comparison = _Comparison(f"A {plain_text(a.name)}   B {plain_text(b.name)}   did it help?")
        super().__init__(self._comparison, palette, Frame())

    def on_mount(self) -> None:
        self.run_worker(self._compare())

    async def _compare(self) -> None:
        try:
            self._comparison.made = await on_daemon_thread(partial(comparison.build, self._a, self._b))
        except DdpmonError as error:
            self._comparison.error = str(error)
        self._comparison.redraw()
