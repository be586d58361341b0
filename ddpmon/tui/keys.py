"""The one table of keys: the bindings, the key bar and the help are all made from it."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

from ddpmon.tui.frame import Frame


@dataclass(frozen=True)
class Key:
    """One thing that keys do."""

    keys: str
    """As Textual names them, with commas between."""
    shown: str
    """As people read them."""
    action: str
    label: str
    """In the key bar; empty: only in the help."""
    help: str
    stops: bool = False
    """Only where the run can be stopped."""
    views: tuple[str, ...] = ()
    """Only on these screens; empty: on all."""
    opens: str = ""
    """The screen that it goes to, of those with a digit."""


_TABLES = ("world", "ranks")
_LISTS = (*_TABLES, "inspect", "logs", "runs")

KEYS = (
    Key("q", "q", "app.detach", "detach", "leave the dashboard; the run goes on"),
    Key("x", "x", "app.stop", "stop", "stop the run (asks first); once more: kill it now", stops=True),
    Key("question_mark", "?", "app.help", "help", "this page"),
    Key("1", "1", "app.go('world')", "", "World: how is it?", opens="world"),
    Key("2", "2", "app.go('ranks')", "", "Ranks: who is slow?", opens="ranks"),
    Key("7", "7", "app.go('logs')", "", "Logs: what did they print? (of the inspected rank, or all)", opens="logs"),
    Key("8", "8", "app.go('runs')", "", "Runs: what else runs?", opens="runs"),
    Key("escape", "esc", "app.back", "back", "back to where the rank was chosen", views=("inspect",)),
    Key("enter", "⏎", "app.inspect", "inspect", "inspect the rank under the cursor", views=_TABLES),
    Key("enter", "⏎", "app.open", "watch", "watch this run, or its recording if it has ended", views=("runs",)),
    Key("left_square_bracket", "[", "screen.step(-1)", "", "the rank before", views=("inspect",)),
    Key("right_square_bracket", "]", "screen.step(1)", "", "the rank after", views=("inspect",)),
    Key("left_square_bracket", "[", "screen.step(-1)", "", "output of the rank before, or of all", views=("logs",)),
    Key("right_square_bracket", "]", "screen.step(1)", "next rank", "output of the next rank", views=("logs",)),
    Key("slash", "/", "app.filter", "filter", "list some ranks: rank:0-7 host:n1 own>40 slow !dead", views=_TABLES),
    Key("escape", "esc", "app.unfilter", "", "list all ranks again", views=_TABLES),
    Key("space", "space", "app.freeze", "freeze", "hold the screen still; collecting goes on"),
    Key(
        "s", "s", "screen.sort", "sort", "sort the ranks: slowest, by rank, shortest wait, highest loss",
        views=("world",),
    ),
    Key("s", "s", "screen.sort", "sort", "sort the ranks by the next column", views=("ranks",)),
    Key("S", "S", "screen.reverse", "reverse", "the other way round", views=("ranks",)),
    Key("l", "l", "screen.log_scale", "log", "logarithmic scale for the loss", views=("world",)),
    Key("y", "y", "app.copy", "copy", "copy the verdict to the clipboard (OSC 52, works over SSH)"),
    Key("down,j", "↓ j", "screen.move(1)", "", "down: the next rank or line", views=_LISTS),
    Key("up,k", "↑ k", "screen.move(-1)", "", "up: the rank or line before", views=_LISTS),
    Key("right", "→", "screen.pan(1)", "", "columns further right", views=("ranks",)),
    Key("left", "←", "screen.pan(-1)", "", "columns further left", views=("ranks",)),
    Key("pagedown,ctrl+f", "PgDn", "screen.page(1)", "", "a screenful further", views=_LISTS),
    Key("pageup,ctrl+b", "PgUp", "screen.page(-1)", "", "a screenful back", views=_LISTS),
    Key("g,home", "g", "screen.first", "", "to the first", views=_LISTS),
    Key("G,end", "G", "screen.last", "", "to the last", views=_LISTS),
    Key("ctrl+c", "Ctrl-C", "app.interrupt", "", "asks: detach, stop the run, or stay"),
)  # fmt: skip


def bindings(view: str) -> list[Binding]:
    """The keys of a screen as Textual wants them. Ctrl-C works in dialogs too."""
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.keys == "ctrl+c")
        for key in KEYS
        if view in (key.views or (view,))
    ]


def available(frame: Frame) -> list[Key]:
    """The keys that do something now."""
    return [key for key in KEYS if (frame.can_stop or not key.stops) and frame.view in (key.views or (frame.view,))]


def label(key: Key, frame: Frame) -> str:
    """What the key bar says: nothing is left running once the run has ended."""
    if key.action == "app.detach" and frame.ended:
        return "quit"
    return "go on" if key.action == "app.freeze" and frame.behind_s is not None else key.label
