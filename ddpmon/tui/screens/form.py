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
from textual.containers import Horizontal, Vertical
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
        """Return the completed path; None if no path begins with the text."""
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
"""Width of the fields' names in columns, with the left side of the box."""
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


class _Top(Pane):
    def __init__(self, heading: str) -> None:
        super().__init__(classes="edge")
        self._heading = heading

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        return draw_box(self._heading, [], width)[:1]


class _Label(Pane):
    """The name of a field, with the left side of the box."""

    def __init__(self, name: str) -> None:
        super().__init__(classes="label")
        self.focused_field = False
        self._caption = name

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        mark = (f"{CURSOR} ", "info") if self.focused_field else ("  ", "text")
        return [[("│ ", "rule"), mark, (self._caption, "strong" if self.focused_field else "text")]]

    def on_click(self) -> None:
        """Focus the field whose name was clicked."""
        if self.parent is not None:
            self.screen.set_focus(self.parent.query_one(Input))


class _Side(Pane):
    def __init__(self) -> None:
        super().__init__(classes="side")

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        return [[(" │", "rule")]] * height


class _Foot(Pane):
    """The lower part of a form: an error or the field's help, the keys, and the lower side of the box."""

    def __init__(self, verb: str) -> None:
        super().__init__(id="foot")
        self.help, self.error, self.busy = "", "", ""
        self._verb = verb

    @property
    def keys(self) -> tuple[tuple[str, str, str], ...]:
        """Return (key, label, action) for each key of the form."""
        return (
            ("⏎", self._verb, "screen.take"),
            ("tab", "next field", "app.focus_next"),
            ("esc", "leave", "screen.leave"),
        )

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        inner = width - 4
        if self.busy:
            note: list[Line] = [[(self.busy, "info")]]
        elif self.error:
            rows = wrap_text(self.error, inner - 2)
            if len(rows) > _NOTE:
                rows = [rows[0], cut_text(" ".join(rows[1:]), inner - 2)]
            note = [[("▲ " if row == 0 else "  ", "warn"), (text, "warn")] for row, text in enumerate(rows)]
        else:
            note = [[(row, "muted")] for row in wrap_text(self.help, inner)[:_NOTE]]
        keys: Line = []
        for key, label, _ in self.keys:
            keys += [(key, "key"), (f" {label}   ", "muted")]
        note = [[]] * (height - _NOTE - 2) + note
        return draw_box("", [*note, *([[]] * (height - 2 - len(note))), keys], width)[1:]

    async def on_click(self, event: events.Click) -> None:
        column = event.x - 2
        if event.y != self.size.height - 2:
            return
        for key, label, action in self.keys:
            if 0 <= column < len(key) + 1 + len(label):
                await self.run_action(action)
                return
            column -= len(key) + 4 + len(label)


class _TooSmall(Pane):
    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        text = f"this form needs a terminal of {LEAST_WIDTH} columns and {LEAST_HEIGHT} lines; esc cancels"
        return [[(row, "warn")] for row in wrap_text(text, width)]


class Form(ModalScreen[object]):
    """Asks for a few texts, passes them to `take`, and dismisses with its result, or with None if the user left."""

    DEFAULT_CSS = """
    Form { align: center middle; background: $background 0%; overflow: hidden hidden; }
    Form #form { background: $panel; height: auto; max-height: 100%; }
    Form .edge { height: 1; width: 1fr; }
    Form #fields { height: auto; scrollbar-size: 0 0; overflow: hidden auto; }
    Form .field { height: 1; width: 1fr; }
    Form .label { height: 1; }
    Form .side { width: 2; height: 1; }
    Form #foot { width: 1fr; }
    Form #small { background: $panel; width: 100%; height: 100%; }
    Form Input { width: 1fr; height: 1; border: none; padding: 0 1; background: $surface; color: $foreground; }
    Form Input:focus { border: none; }
    Form.colourless Input > .input--cursor, Form.colourless Input > .input--selection {
        background: ansi_default; color: ansi_default; text-style: reverse;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("up,shift+tab", "app.focus_previous", show=False),
        Binding("down,tab", "app.focus_next", show=False),
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
            take: Handles the texts by field name on another thread; a DdpmonError that it raises is shown.
            palette: The palette of the screen below.
            verb: Label of the key that runs `take`.
            busy: Message while `take` is running.

        """
        super().__init__(classes="colourless" if palette is NONE else None)
        self._heading, self.fields, self._take, self._colours = heading, fields, take, palette
        self._busy = busy
        self.foot = _Foot(verb)
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
        self._labels = {field.name: _Label(field.name) for field in fields}

    def compose(self) -> ComposeResult:
        with Vertical(id="form"):
            yield _Top(self._heading)
            with Vertical(id="fields"):
                for field in self.fields:
                    entry = self.inputs[field.name]
                    entry.cursor_blink = False
                    with Horizontal(classes="field"):
                        yield self._labels[field.name]
                        yield entry
                        yield _Side()
            yield self.foot
        yield _TooSmall(id="small")

    def on_mount(self) -> None:
        self.on_resize()
        for pane in self.query(Pane):  # type: ignore[type-abstract]  # a query makes no instance of the abstract class
            pane.show(Frame(), self._colours)

    def on_resize(self) -> None:
        width, height = self.app.size
        small = width < LEAST_WIDTH or height < LEAST_HEIGHT
        box, fields = self.query_one("#form"), self.query_one("#fields")
        box.display, self.query_one("#small").display = not small, small
        box.styles.width = min(_WIDEST, width)
        foot = _NOTE + 2 + int(height >= len(self.fields) + _NOTE + 4)
        fields.styles.height = max(1, min(len(self.fields), height - foot - 1))
        self.foot.styles.height = foot
        for label in self._labels.values():
            label.styles.width = _LABEL

    def on_descendant_focus(self) -> None:
        """Show the help of the focused field."""
        for field in self.fields:
            label = self._labels[field.name]
            label.focused_field = self.inputs[field.name] is self.focused
            if label.focused_field:
                self.foot.help = field.help
            label.redraw()
        self.foot.redraw()

    @on(Input.Changed)
    def _changed(self) -> None:
        self.foot.error = ""
        self.foot.redraw()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        """Start the action, unless it is already running."""
        if not self.foot.busy:
            self.foot.busy = self._busy
            self.foot.redraw()
            self.run_worker(self._work())

    async def _work(self) -> None:
        texts = {name: entry.value for name, entry in self.inputs.items()}
        try:
            made = await asyncio.to_thread(self._take, texts)
        except DdpmonError as error:
            self.foot.busy, self.foot.error = "", str(error)
            self.foot.redraw()
        else:
            self.dismiss(made)

    def action_leave(self) -> None:
        """Leave the form, unless its action is already running."""
        if not self.foot.busy:
            self.dismiss(None)
