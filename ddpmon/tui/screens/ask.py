"""Dialogs over the screen: a question with a few answers, a line to type into, and a list to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from ddpmon.tui.chart_choice import Offered
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import CURSOR, Line, cut_text, fit_line, wrap_text
from ddpmon.tui.palette import Palette
from ddpmon.tui.widgets.pane import Pane

Reply = TypeVar("Reply")


class Overlay(ModalScreen[Reply]):
    """A pane over the current screen."""

    def __init__(self, pane: Pane, palette: Palette, frame: Frame | None = None) -> None:
        """Show `pane` with a frame, in the palette of the screen below."""
        super().__init__()
        self._pane, self._palette, self._frame = pane, palette, frame or Frame()

    def compose(self) -> ComposeResult:
        yield self._pane

    def on_mount(self) -> None:
        self._pane.show(self._frame, self._palette)


@dataclass(frozen=True)
class Answer:
    """One answer to a question: its keys, its label, and the value that the dialog returns for it."""

    keys: str
    """The keys that give the answer, one character each; the first one is shown."""
    label: str
    value: str


def draw_box(heading: str, body: list[Line], width: int) -> list[Line]:
    """Return the lines in a box of `width` columns, with a heading in its upper edge."""
    inner = max(1, width - 4)
    heading = cut_text(heading, inner)
    upper: Line = [*fit_line([("┌─", "rule"), (heading, "strong")], 2 + cell_len(heading))]
    upper.append(("─" * (inner - cell_len(heading) + 1) + "┐", "rule"))
    lines: list[Line] = [[("│ ", "rule"), *fit_line(line, inner), (" │", "rule")] for line in body]
    return [upper, *lines, [("└" + "─" * (width - 2) + "┘", "rule")]]


def option_line(text: str, width: int, *, chosen: bool) -> Line:
    """Return an option of a list in `width` columns; `chosen` says whether the cursor is on it."""
    role = "strong+select" if chosen else "text"
    return fit_line([(f"{CURSOR} " if chosen else "  ", role), (cut_text(text, width - 2), role)], width, role)


class QuestionBox(Pane):
    """The box that shows the question and its answers."""

    def __init__(self, heading: str, text: str, answers: tuple[Answer, ...]) -> None:
        super().__init__(id="question")
        self.heading, self.text, self.answers = heading, text, answers
        self.focused_answer = 0

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        inner = max(1, width - 4)
        room = max(0, height - len(self.answers) - 2)
        rows = wrap_text(self.text, inner)[: max(0, room - 1)]
        body: list[Line] = [[(row, "text")] for row in rows]
        if len(rows) < room:
            body.append([])
        for place, answer in enumerate(self.answers):
            text = f"{answer.keys[0]}  {answer.label}"
            body.append(option_line(text, inner, chosen=place == self.focused_answer))
        return draw_box(self.heading, body, width)

    def answers_from(self, height: int) -> int:
        """Return the index of the first answer's line in a box of `height` lines."""
        return height - 1 - len(self.answers)

    async def on_click(self, event: events.Click) -> None:
        place = event.y - self.answers_from(self.size.height)
        if 0 <= place < len(self.answers) and isinstance(self.screen, Dialog):
            self.screen.answer_at(place)


class Dialog(Overlay[str]):
    """Asks a question, and dismisses with the value of the answer. Escape gives the first answer, which is harmless."""

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
            len(wrap_text(self.box.text, max(1, width - 4))) + len(self.box.answers) + 3, self.app.size.height
        )

    def answer_at(self, place: int) -> None:
        """Dismiss with the answer at this index."""
        self.dismiss(self.box.answers[place].value)

    def on_key(self, event: events.Key) -> None:
        for place, answer in enumerate(self.box.answers):
            if event.character is not None and event.character in answer.keys:
                event.stop()
                self.answer_at(place)
                return

    def action_move(self, by: int) -> None:
        self.box.focused_answer = (self.box.focused_answer + by) % len(self.box.answers)
        self.box.redraw()

    def action_take(self) -> None:
        self.answer_at(self.box.focused_answer)

    def action_first(self) -> None:
        self.answer_at(0)


_LONGEST = 200
Parsed = TypeVar("Parsed")


class TypedLine(Pane, Generic[Parsed]):
    """The line of a prompt: the typed text, with an error or a hint beside it."""

    def __init__(self, text: str, parse: Callable[[str], Parsed], hint: str) -> None:
        super().__init__(id="typed")
        self.text, self._parse, self._hint = text, parse, hint

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        try:
            self.parsed()
            note, role = self._hint, "muted"
        except ValueError as error:
            note, role = f"▲ {error}", "warn"
        typed = self.text[-max(1, width - 6) :]
        line: Line = [(" / ", "key"), (typed, "strong"), (" ", "strong+select")]
        return [[*line, (cut_text(f"  {note}", max(0, width - len(typed) - 4)), role)]]

    def parsed(self) -> Parsed:
        """Return the parsed text.

        Raises:
            ValueError: The text cannot be parsed; the error says why in one line.

        """
        return self._parse(self.text)


class Prompt(Overlay[Parsed | None]):
    """Asks for a text, and dismisses with the parsed text, or with None if the user left."""

    DEFAULT_CSS = """
    Prompt { align: left bottom; background: $background 0%; overflow: hidden hidden; }
    Prompt #typed { background: $panel; width: 1fr; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("enter", "take", show=False),
        Binding("backspace,ctrl+h", "rub_out", show=False),
        Binding("ctrl+u", "clear", show=False),
    ]

    def __init__(self, text: str, parse: Callable[[str], Parsed], hint: str, palette: Palette) -> None:
        """Make the line.

        Args:
            text: The initial text.
            parse: Parses the text; raises ValueError if that is impossible.
            hint: What to do next, shown beside a valid text.
            palette: The palette of the screen below.

        """
        self.typed = TypedLine(text, parse, hint)
        super().__init__(self.typed, palette)

    def on_key(self, event: events.Key) -> None:
        if event.character is not None and event.is_printable and len(self.typed.text) < _LONGEST:
            event.stop()
            self._type(self.typed.text + event.character)

    def on_paste(self, event: events.Paste) -> None:
        self._type((self.typed.text + "".join(ch for ch in event.text if ch.isprintable()))[:_LONGEST])

    def _type(self, text: str) -> None:
        self.typed.text = text
        self.typed.redraw()

    def action_rub_out(self) -> None:
        self._type(self.typed.text[:-1])

    def action_clear(self) -> None:
        self._type("")

    def action_take(self) -> None:
        """Dismiss with the parsed text, or show the error if it is invalid."""
        try:
            self.dismiss(self.typed.parsed())
        except ValueError:
            self.typed.redraw()


_AROUND = 3
"""Number of lines around the entries: two of the box, and one for the typed text."""


class PickBox(Pane):
    """The box that shows the list."""

    def __init__(self, offered: Offered) -> None:
        super().__init__(id="pick")
        self.options = offered
        self.value = offered.current
        """Value of the entry under the cursor."""
        self.typed = ""
        self._top = 0

    @property
    def found_values(self) -> list[str]:
        """Return the values of the entries whose names contain the typed text."""
        typed = self.typed.casefold()
        return [value for value, name in self.options.entries if typed in name.casefold()]

    def show_matches(self, text: str) -> None:
        """Show only the entries whose names contain `text`; ignore a text that no name contains."""
        before, self.typed = self.typed, text
        if not self.found_values:
            self.typed = before
        if self.value not in self.found_values:
            self.value = self.found_values[0]
        self.redraw()

    def rub_out(self) -> None:
        """Delete the last typed character."""
        self.show_matches(self.typed[:-1])

    def move_cursor(self, by: int) -> None:
        """Move the cursor by this number of entries, but not beyond the ends."""
        found = self.found_values
        place = found.index(self.value) if self.value in found else 0
        self.value = found[max(0, min(place + by, len(found) - 1))]
        self.redraw()

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        inner, rows, found = max(1, width - 4), max(1, height - _AROUND), self.found_values
        place = found.index(self.value) if self.value in found else 0
        self._top = max(place - rows + 1, min(self._top, place, max(0, len(found) - rows)))
        names = dict(self.options.entries)
        shown = found[self._top : self._top + rows]
        body = [option_line(names[value], inner, chosen=value == self.value) for value in shown]
        body += [[]] * (rows - len(body))
        typed: Line = [("type to search; enter chooses, esc cancels", "muted")]
        if self.typed:
            typed = [("/ ", "key"), (self.typed, "strong")]
        return draw_box(self.options.heading, [*body, typed], width)

    def on_mouse_scroll_down(self) -> None:
        self.move_cursor(1)

    def on_mouse_scroll_up(self) -> None:
        self.move_cursor(-1)

    async def on_click(self, event: events.Click) -> None:
        """Choose the entry that was clicked."""
        place = self._top + event.y - 1
        if (
            0 < event.y <= self.size.height - _AROUND
            and place < len(self.found_values)
            and isinstance(self.screen, Picker)
        ):
            self.screen.dismiss(self.found_values[place])


class Picker(Overlay[str]):
    """Lists the entries, and dismisses with the value of one, or with None if the user left."""

    DEFAULT_CSS = """
    Picker { align: center middle; background: $background 0%; overflow: hidden hidden; }
    Picker #pick { background: $panel; max-width: 100%; max-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,shift+tab", "move(-1)", show=False),
        Binding("down,tab", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home", "move(-10_000)", show=False),
        Binding("end", "move(10_000)", show=False),
        Binding("backspace,ctrl+h", "rub_out", show=False),
        Binding("enter", "take", show=False),
        Binding("escape", "dismiss(None)", show=False),
    ]

    def __init__(self, offered: Offered, palette: Palette) -> None:
        self.box = PickBox(offered)
        super().__init__(self.box, palette)

    def on_mount(self) -> None:
        self.on_resize()

    def on_resize(self) -> None:
        offered = self.box.options
        longest = max(len(offered.heading), *(len(name) for _, name in offered.entries), 38)
        self.box.styles.width = min(longest + 8, self.app.size.width)
        self.box.styles.height = min(len(offered.entries) + _AROUND, self.app.size.height)

    def on_key(self, event: events.Key) -> None:
        if event.character is not None and event.is_printable:
            event.stop()
            self.box.show_matches(self.box.typed + event.character)

    def action_move(self, by: int) -> None:
        self.box.move_cursor(by)

    def action_rub_out(self) -> None:
        self.box.rub_out()

    def action_take(self) -> None:
        self.dismiss(self.box.value)
