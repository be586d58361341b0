"""Dialogs over the screen: a question with a few answers, a line to type into, and a list to choose from."""

from __future__ import annotations

from abc import abstractmethod
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
    """Draw a box of `width` columns around the lines of `body`, with a heading in the box's upper edge."""
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


class OptionBox(Pane):
    """A box that shows options. It has a text above the options, or a line below them in which the user searches."""

    def __init__(self, heading: str, text: str, options: list[tuple[str, str]], value: str, *, searched: bool) -> None:
        """Make the box. options: (value, name) pairs. value: the value of the option under the cursor."""
        super().__init__(id="options")
        self.heading, self.text, self.options, self.value = heading, text, options, value
        self.searched = searched
        self.typed = ""
        self._top = 0
        self._above = 1
        """Number of lines above the options."""
        self._lines = 1
        """Number of lines for options."""

    @property
    def found_values(self) -> list[str]:
        """Return the values of the options whose names contain the typed text."""
        typed = self.typed.casefold()
        return [value for value, name in self.options if typed in name.casefold()]

    def show_matches(self, text: str) -> None:
        """Show only the options whose names contain `text`; ignore a text that no name contains."""
        before, self.typed = self.typed, text
        if not self.found_values:
            self.typed = before
        if self.value not in self.found_values:
            self.value = self.found_values[0]
        self.redraw()

    def move_cursor(self, by: int) -> None:
        """Move the cursor by this number of options. It stops at the ends of a searched list, and wraps around in other
        lists.
        """
        found = self.found_values
        place = found.index(self.value) + by
        self.value = found[max(0, min(place, len(found) - 1)) if self.searched else place % len(found)]
        self.redraw()

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        inner, found = max(1, width - 4), self.found_values
        room = max(0, height - 2 - len(found)) if self.text else 0
        above: list[Line] = [[(row, "text")] for row in wrap_text(self.text, inner)[: max(0, room - 1)]]
        above += [[]] * min(1, room)
        below: list[Line] = []
        if self.searched:
            below = [[("/ ", "key"), (self.typed, "strong")]]
            below = below if self.typed else [[("type to search; enter chooses, esc cancels", "muted")]]
        self._above, self._lines = 1 + len(above), max(1, height - 2 - len(above) - len(below))
        place = found.index(self.value)
        self._top = max(place - self._lines + 1, min(self._top, place, max(0, len(found) - self._lines)))
        names, shown = dict(self.options), found[self._top : self._top + self._lines]
        body = [option_line(names[value], inner, chosen=value == self.value) for value in shown]
        return draw_box(self.heading, [*above, *body, *[[]] * (self._lines - len(body)), *below], width)

    def on_mouse_scroll_down(self) -> None:
        self.move_cursor(1)

    def on_mouse_scroll_up(self) -> None:
        self.move_cursor(-1)

    async def on_click(self, event: events.Click) -> None:
        """Choose the option that was clicked."""
        line, found = event.y - self._above, self.found_values
        if 0 <= line < self._lines and self._top + line < len(found):
            self.screen.dismiss(found[self._top + line])


class Chooser(Overlay[str]):
    """Shows options. When it closes, it returns the value of the chosen option."""

    DEFAULT_CSS = """
    Chooser { align: center middle; background: $background 0%; overflow: hidden hidden; }
    Chooser #options { background: $panel; max-width: 100%; max-height: 100%; }
    """

    def __init__(self, options: OptionBox, palette: Palette) -> None:
        self.options = options
        super().__init__(options, palette)

    @abstractmethod
    def wanted_size(self) -> tuple[int, int]:
        """Return the size of the box, in columns and lines, on a terminal that is large enough."""

    def on_mount(self) -> None:
        self.on_resize()

    def on_resize(self) -> None:
        wanted, size = self.wanted_size(), self.app.size
        self.options.styles.width, self.options.styles.height = min(wanted[0], size.width), min(wanted[1], size.height)

    def action_move(self, by: int) -> None:
        self.options.move_cursor(by)

    def action_take(self) -> None:
        self.dismiss(self.options.value)


class Dialog(Chooser):
    """Asks a question. When it closes, it returns the answer's value. Escape gives the first answer, which
    is harmless.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,left,shift+tab,k", "move(-1)", show=False),
        Binding("down,right,tab,j", "move(1)", show=False),
        Binding("enter,space", "take", show=False),
        Binding("escape", "first", show=False),
    ]

    def __init__(self, heading: str, text: str, answers: tuple[Answer, ...], palette: Palette) -> None:
        self.answers = answers
        options = [(answer.value, f"{answer.keys[0]}  {answer.label}") for answer in answers]
        super().__init__(OptionBox(heading, text, options, answers[0].value, searched=False), palette)

    def wanted_size(self) -> tuple[int, int]:
        width = min(64, self.app.size.width)
        return width, len(wrap_text(self.options.text, max(1, width - 4))) + len(self.answers) + 3

    def on_key(self, event: events.Key) -> None:
        for answer in self.answers:
            if event.character is not None and event.character in answer.keys:
                event.stop()
                self.dismiss(answer.value)
                return

    def action_first(self) -> None:
        self.dismiss(self.answers[0].value)


class Picker(Chooser):
    """Lists options that the user can search. Returns the value of the chosen option, or None if the user left."""

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
        values = [value for value, _ in offered.entries]
        current = offered.current if offered.current in values else values[0]
        super().__init__(OptionBox(offered.heading, "", offered.entries, current, searched=True), palette)

    def wanted_size(self) -> tuple[int, int]:
        names = [name for _, name in self.options.options]
        return max(len(self.options.heading), *map(len, names), 38) + 8, len(names) + 3

    def on_key(self, event: events.Key) -> None:
        if event.character is not None and event.is_printable:
            event.stop()
            self.options.show_matches(self.options.typed + event.character)

    def action_rub_out(self) -> None:
        self.options.show_matches(self.options.typed[:-1])


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
    """Asks for a text. When it closes, it returns the parsed text, or None if the user left."""

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
            parse: Parses the text; raises ValueError if the text is invalid.
            hint: Sentence that says what to do next, shown to the right of a valid text.
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
        """Close the prompt with the parsed text, or show the error if the text is invalid."""
        try:
            self.dismiss(self.typed.parsed())
        except ValueError:
            self.typed.redraw()
