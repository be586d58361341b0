"""Dialogs over the screen, and a question: a sentence or two and a few answers, the harmless one focused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import CURSOR, Line, cut, fit, wrap
from ddpmon.tui.palette import Palette
from ddpmon.tui.widgets.pane import Pane

Reply = TypeVar("Reply")


class Overlay(ModalScreen[Reply]):
    """A pane over the screen that is shown."""

    def __init__(self, pane: Pane, palette: Palette, frame: Frame | None = None) -> None:
        """palette: that of the screen below. frame: what the pane shows."""
        super().__init__()
        self._pane, self._palette, self._frame = pane, palette, frame or Frame()

    def compose(self) -> ComposeResult:
        yield self._pane

    def on_mount(self) -> None:
        self._pane.show(self._frame, self._palette)


@dataclass(frozen=True)
class Answer:
    """One answer: the keys that give it, what it is called, and what the question returns for it."""

    keys: str
    """A character each; the first one is shown."""
    label: str
    value: str


def boxed(heading: str, body: list[Line], width: int) -> list[Line]:
    """Return the lines in a frame of so many columns, with a heading in its upper edge."""
    inner = max(1, width - 4)
    heading = cut(heading, inner)
    upper: Line = [*fit([("┌─", "rule"), (heading, "strong")], 2 + cell_len(heading))]
    upper.append(("─" * (inner - cell_len(heading) + 1) + "┐", "rule"))
    lines: list[Line] = [[("│ ", "rule"), *fit(line, inner), (" │", "rule")] for line in body]
    return [upper, *lines, [("└" + "─" * (width - 2) + "┘", "rule")]]


def option(text: str, width: int, *, chosen: bool) -> Line:
    """Return a line to choose in so many columns. chosen: the cursor is on it."""
    role = "strong+select" if chosen else "text"
    return fit([(f"{CURSOR} " if chosen else "  ", role), (cut(text, width - 2), role)], width, role)


class QuestionBox(Pane):
    """The box with the question and its answers."""

    def __init__(self, heading: str, text: str, answers: tuple[Answer, ...]) -> None:
        super().__init__(id="question")
        self.heading, self.text, self.answers = heading, text, answers
        self.focused_answer = 0

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        inner = max(1, width - 4)
        room = max(0, height - len(self.answers) - 2)
        rows = wrap(self.text, inner)[: max(0, room - 1)]
        body: list[Line] = [[(row, "text")] for row in rows]
        if len(rows) < room:
            body.append([])
        for place, answer in enumerate(self.answers):
            text = f"{answer.keys[0]}  {answer.label}"
            body.append(option(text, inner, chosen=place == self.focused_answer))
        return boxed(self.heading, body, width)

    def answers_from(self, height: int) -> int:
        """The line of the first answer."""
        return height - 1 - len(self.answers)

    async def on_click(self, event: events.Click) -> None:
        place = event.y - self.answers_from(self.size.height)
        if 0 <= place < len(self.answers) and isinstance(self.screen, Dialog):
            self.screen.answer(place)


class Dialog(Overlay[str]):
    """Asks; dismisses with the value of the answer. Escape gives the first one, which is the harmless one."""

    DEFAULT_CSS = """
    Dialog { align: center middle; background: $background 0%; overflow: hidden hidden; }
    Dialog #question { background: $panel; max-width: 100%; max-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,left,shift+tab,k", "move(-1)", show=False),
        Binding("down,right,tab,j", "move(1)", show=False),
        Binding("enter,space", "take", show=False),
        Binding("escape", "first", show=False),
    ]

    def __init__(self, heading: str, text: str, answers: tuple[Answer, ...], palette: Palette) -> None:
        self.box = QuestionBox(heading, text, answers)
        super().__init__(self.box, palette)

    def on_mount(self) -> None:
        self.on_resize()

    def on_resize(self) -> None:
        width = min(64, self.app.size.width)
        self.box.styles.width = width
        self.box.styles.height = min(
            len(wrap(self.box.text, max(1, width - 4))) + len(self.box.answers) + 3, self.app.size.height
        )

    def answer(self, place: int) -> None:
        """Give this answer."""
        self.dismiss(self.box.answers[place].value)

    def on_key(self, event: events.Key) -> None:
        for place, answer in enumerate(self.box.answers):
            if event.character is not None and event.character in answer.keys:
                event.stop()
                self.answer(place)
                return

    def action_move(self, by: int) -> None:
        self.box.focused_answer = (self.box.focused_answer + by) % len(self.box.answers)
        self.box.redraw()

    def action_take(self) -> None:
        self.answer(self.box.focused_answer)

    def action_first(self) -> None:
        self.answer(0)
