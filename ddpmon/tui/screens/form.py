"""A form over the screen: a few fields, an error or help, and one action."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input

from ddpmon.errors import DdpmonError
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import CURSOR, Line, cut_text, wrap_text
from ddpmon.tui.palette import NONE, Palette
from ddpmon.tui.screens.ask import draw_box
from ddpmon.tui.widgets.pane import Pane

_MAX_ENTRIES = 10_000
"""Maximum number of folder entries that are read, because more would take long on a network file system."""


class PathSuggester(Suggester):
    """Suggests the alphabetically first path that begins with the typed text; a folder ends with a slash."""

    def __init__(self, suffix: str | None = None, folder: Callable[[], str] = str) -> None:
        """Suggest paths for a field.

        Args:
            suffix: Ending of the files that are suggested; None suggests only folders.
            folder: Returns the folder where relative paths start; "" is the current one.

        """
        super().__init__(use_cache=False, case_sensitive=True)
        self._suffix, self._folder = suffix, folder

    async def get_suggestion(self, value: str) -> str | None:
        """Return the completed path; None if no path begins with the typed text."""
        return await asyncio.to_thread(self._complete, value, self._folder())

    def _complete(self, value: str, folder: str) -> str | None:
        above, slash, begun = value.rpartition("/")
        names = []
        try:
            with os.scandir(os.path.join(folder, above + slash) or ".") as entries:
                for entry in islice(entries, _MAX_ENTRIES):
                    if entry.name.startswith(begun) and (begun or not entry.name.startswith(".")):
                        if entry.is_dir():
                            names.append(f"{entry.name}/")
                        elif self._suffix is not None and entry.name.endswith(self._suffix):
                            names.append(entry.name)
        except (OSError, ValueError):  # the folder does not exist, or may not be read
            return None
        return f"{above}{slash}{min(names)}" if names else None


LEAST_WIDTH, LEAST_HEIGHT = 40, 6
_WIDEST = 78
_LABEL = 16
"""Width in columns of the fields' names and the left edge of the box."""
_NOTE = 2
"""Number of lines for an error or the field's help."""
_LONGEST = 4000
"""Longest text of a field, in characters."""


@dataclass(frozen=True)
class Field:
    """One line of a form to fill in."""

    name: str
    value: str
    help: str
    """Help for the value, shown while the field has the focus."""
    empty: str = ""
    """Text shown while the field is empty: the meaning of an empty value."""
    suggester: Suggester | None = None
    """Completes the value; the right arrow accepts the suggestion."""


class _Box(Pane):
    """The box of a form: its heading, the fields' names, an error or the field's help, and the keys."""

    def __init__(self, heading: str, fields: tuple[Field, ...], verb: str) -> None:
        super().__init__(id="box")
        self.help = self.error = self.busy = ""
        self.current = 0
        """Index of the field that has the focus."""
        self.shown = range(len(fields))
        """Indices of the fields that have room; empty if the terminal is too small for the form."""
        self._heading, self._fields = heading, fields
        self._keys = (
            ("⏎", verb, "screen.take"),
            ("tab", "next field", "screen.next_field(1)"),
            ("esc", "leave", "screen.leave"),
        )
        """(key, label, action) for each key of the form."""

    def scroll_to_current(self, room: int) -> None:
        """Show as many fields as fit. If the current field was not visible, it is shown in the middle."""
        first = self.shown.start
        if not first <= self.current < first + room:
            first = self.current - room // 2
        first = max(0, min(first, len(self._fields) - room))
        self.shown = range(first, min(first + room, len(self._fields)))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        if not self.shown:
            text = f"this form needs a terminal of {LEAST_WIDTH} columns and {LEAST_HEIGHT} lines; esc cancels"
            return [[(row, "warn")] for row in wrap_text(text, width)]
        names: list[Line] = []
        for place in self.shown:
            current = place == self.current
            mark = (f"{CURSOR} ", "info") if current else ("  ", "text")
            names.append([mark, (self._fields[place].name, "strong" if current else "text")])
        keys: Line = []
        for key, label, _ in self._keys:
            keys += [(key, "key"), (f" {label}   ", "muted")]
        note = self._note(width - 4)
        above: list[Line] = [[]] * (height - len(names) - _NOTE - 3)
        return draw_box(self._heading, [*names, *above, *note, *[[]] * (_NOTE - len(note)), keys], width)

    def _note(self, width: int) -> list[Line]:
        """Return the error, or the help of the current field, in at most `_NOTE` lines."""
        if self.busy:
            return [[(self.busy, "info")]]
        if not self.error:
            return [[(row, "muted")] for row in wrap_text(self.help, width)[:_NOTE]]
        rows = wrap_text(self.error, width - 2)
        if len(rows) > _NOTE:
            rows = [rows[0], cut_text(" ".join(rows[1:]), width - 2)]
        return [[("▲ " if row == 0 else "  ", "warn"), (text, "warn")] for row, text in enumerate(rows)]

    async def on_click(self, event: events.Click) -> None:
        """Go to the field whose name was clicked, or do what a clicked key does."""
        column, place = event.x - 2, self.shown.start + event.y - 1
        if place in self.shown:
            await self.run_action(f"screen.next_field({place - self.current})")
        if event.y != self.size.height - 2:
            return
        for key, label, action in self._keys:
            if 0 <= column < len(key) + 1 + len(label):
                await self.run_action(action)
                return
            column -= len(key) + 4 + len(label)


class Form(ModalScreen[object]):
    """Asks for a few texts, and passes them to `take`. When the form closes, it returns the result of `take`, or None
    if the user left.
    """

    DEFAULT_CSS = """
    Form { background: $background 0%; overflow: hidden hidden; }
    Form #box { background: $panel; position: absolute; }
    Form Input { position: absolute; height: 1; border: none; padding: 0 1; background: $surface; color: $foreground; }
    Form Input:focus { border: none; }
    Form.colourless Input > .input--cursor, Form.colourless Input > .input--selection {
        background: ansi_default; color: ansi_default; text-style: reverse;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("up,shift+tab", "next_field(-1)", show=False),
        Binding("down,tab", "next_field(1)", show=False),
    ]

    def __init__(
        self,
        heading: str,
        fields: tuple[Field, ...],
        take: Callable[[dict[str, str]], object],
        palette: Palette,
        verb: str,
        busy: str,
    ) -> None:
        """Make a form.

        Args:
            heading: The title of the box.
            fields: The lines to fill in.
            take: Called with the texts by field name, on another thread. If it raises a DdpmonError, the form shows the
                error.
            palette: The palette of the screen below.
            verb: Label of the key that runs `take`.
            busy: Message while `take` is running.

        """
        super().__init__(classes="colourless" if palette is NONE else None)
        self.fields, self._take, self._colours, self._busy = fields, take, palette, busy
        self.box = _Box(heading, fields, verb)
        self.inputs = {
            field.name: Input(
                field.value,
                field.empty and f"({field.empty})",
                max_length=_LONGEST,
                id=field.name,
                suggester=field.suggester,
            )
            for field in fields
        }

    def compose(self) -> ComposeResult:
        yield self.box
        for entry in self.inputs.values():
            entry.cursor_blink = False
            yield entry

    def on_mount(self) -> None:
        self.on_resize()
        self.box.show(Frame(), self._colours)

    def on_resize(self) -> None:
        """Set the places of the box and of the fields for the size of the terminal."""
        columns, lines = self.app.size
        below = _NOTE + 2 + int(lines >= len(self.fields) + _NOTE + 4)
        small = columns < LEAST_WIDTH or lines < LEAST_HEIGHT
        self.box.scroll_to_current(0 if small else max(1, min(len(self.fields), lines - below - 1)))
        width, height = min(_WIDEST, columns), len(self.box.shown) + below + 1
        x, y = (0, 0) if small else ((columns - width) // 2, (lines - height) // 2)
        self.box.styles.width, self.box.styles.height = (columns, lines) if small else (width, height)
        self.box.styles.offset = (x, y)
        for place, entry in enumerate(self.inputs.values()):
            entry.display = place in self.box.shown
            entry.styles.width = width - _LABEL - 2
            entry.styles.offset = (x + _LABEL, y + 1 + place - self.box.shown.start)
            if place == self.box.current and entry.display:
                self.set_focus(entry)
        self.box.redraw()

    def on_descendant_focus(self) -> None:
        """Show the help of the focused field."""
        for place, field in enumerate(self.fields):
            if self.inputs[field.name] is self.focused:
                self.box.current, self.box.help = place, field.help
        self.box.redraw()

    def action_next_field(self, by: int) -> None:
        """Move the focus by this number of fields; after the last comes the first."""
        self.box.current = (self.box.current + by) % len(self.fields)
        self.on_resize()

    @on(Input.Changed)
    def _changed(self) -> None:
        self.box.error = ""
        self.box.redraw()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        """Start the action, unless it is already running."""
        if not self.box.busy:
            self.box.busy = self._busy
            self.box.redraw()
            self.run_worker(self._work())

    async def _work(self) -> None:
        texts = {name: entry.value for name, entry in self.inputs.items()}
        try:
            made = await asyncio.to_thread(self._take, texts)
        except DdpmonError as error:
            self.box.busy, self.box.error = "", str(error)
            self.box.redraw()
        else:
            self.dismiss(made)

    def action_leave(self) -> None:
        """Leave the form, unless its action is already running."""
        if not self.box.busy:
            self.dismiss(None)
