"""A scrolled text over the whole screen, and the help, which lists the keys and explains words and signs."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from textual.binding import Binding, BindingType

from ddpmon.tui import keys
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import CURSOR, Line, pane_title, paragraph
from ddpmon.tui.palette import THEME_VARIABLE, Palette
from ddpmon.tui.screens.ask import Overlay
from ddpmon.tui.widgets.runlist import WATCHED
from ddpmon.tui.widgets.scrolling import ScrollingPane


class Text(ScrollingPane):
    """Base of the panes that show one text, which the user can scroll."""

    @abstractmethod
    def lines(self, frame: Frame, width: int) -> list[Line]:
        """Return the whole text."""

    def heading(self, width: int) -> list[Line]:
        """Return the lines that stay above the text."""
        return []

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        heading, lines = self.heading(width), self.lines(frame, width)
        room = max(0, height - len(heading) - 1)
        shown = self.in_sight_lines(lines, room)
        keys: Line = [(" ↑ ↓", "key"), (" scroll  ", "muted")] if len(lines) > room else []
        return [*heading, *shown, *([[]] * (room - len(shown))), [*keys, (" esc", "key"), (" back", "muted")]]


class Scrolled(Overlay[None]):
    """A screen that shows one text, over the current screen."""

    DEFAULT_CSS = "Scrolled { overflow: hidden hidden; } Scrolled Text { width: 1fr; height: 1fr; background: $panel; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("g,home", "scroll(-10_000)", show=False),
        Binding("G,end", "scroll(10_000)", show=False),
    ]

    def __init__(self, text: Text, palette: Palette, frame: Frame) -> None:
        super().__init__(text, palette, frame)
        self.text = text

    def action_scroll(self, by: int) -> None:
        self.text.move(by)


_WORDS = (
    ("own", "the rank's own work in a step; a straggler has the most own time and waits least"),
    ("excess", "own time above the median of the peers, the other ranks"),
    ("wait", "time blocked in a synchronisation until the last rank arrives"),
    ("transfer", "time from the last arrival to the end of the synchronisation"),
    ("data", "time blocked in the DataLoader"),
    ("other", "the rest of the step on the main thread: logging, evaluation, checkpoints"),
    ("crit", "share of the steps in which this rank was critical: the others waited for it"),
    ("starved", "share of the time in which the training thread could run but got no core"),
    ("mem", "memory of the rank's process; gpu mem: memory in use on its GPU"),
    ("▲ ? ✖", "rank that holds the others back, rank that sends nothing, dead rank"),
    ("▃ ▆ █", "own time 5%, 10%, 15% or more above the peers' median"),
    (CURSOR, "the cursor"),
    (WATCHED, "on the screen Runs, the run that all other screens show"),
    ("○ ◔ ◑ ◕ ●", "stages before the first step: importing torch, imported, process group, model, training"),
    (
        "colours",
        f"{THEME_VARIABLE}=dark, light or ansi sets the colours permanently, Ctrl-P for now; NO_COLOR=1: no colours",
    ),
    ("glossary", "docs/reference/glossary.md explains all words"),
)


def help_lines(width: int, frame: Frame) -> list[Line]:
    """Return the text of the help, with the keys of the current screen."""
    lines = [pane_title("keys", width)]
    entries = [(key.shown, key.help) for key in keys.available(frame)]
    for heading, rows in ((None, entries), ("words and signs", _WORDS)):
        if heading:
            lines += [[], pane_title(heading, width)]
        for name, text in rows:
            lines += paragraph(text, width - 1, "text", [(f" {name:<10} ", "key")])
    return lines


class _Keys(Text):
    """The text of the help."""

    def lines(self, frame: Frame, width: int) -> list[Line]:
        return help_lines(width, frame)


class Help(Scrolled):
    """The help screen, with the keys of the current screen and the meaning of words and signs."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "dismiss", show=False)]

    def __init__(self, palette: Palette, frame: Frame) -> None:
        shown = Frame(
            can_stop=frame.can_stop, readonly=frame.readonly, view=frame.view, cursor=frame.cursor, where=frame.where
        )
        super().__init__(_Keys(), palette, shown)
