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
    replay: bool | None = None
    """True: only where a recording plays; False: only where none does."""


_TABLES = ("world", "ranks", "comm", "devices")
_TIMES = ("heat", "timeline")
_LISTS = (*_TABLES, *_TIMES, "inspect", "logs", "runs")
_TIMED = (*_TABLES, *_TIMES, "runs")
"""Where [ and ] move through time; elsewhere they go from rank to rank."""

KEYS = (
    Key("q", "q", "app.detach", "detach", "leave the dashboard; the run goes on"),
    Key("x", "x", "app.stop", "stop", "stop the run (asks first); once more: kill it now", stops=True),
    Key("question_mark", "?", "app.help", "help", "this page"),
    Key("space", "space", "app.freeze", "pause", "pause; go on; at the end, begin again", replay=True),
    Key("left_square_bracket", "[", "app.skip(-1)", "back", "a piece back in time", views=_TIMED, replay=True),
    Key("right_square_bracket", "]", "app.skip(1)", "on", "a piece forward in time", views=_TIMED, replay=True),
    Key("left_curly_bracket", "{", "app.jump(-1)", "", "to the event before", replay=True),
    Key("right_curly_bracket", "}", "app.jump(1)", "event", "to the next event", replay=True),
    Key("comma", ",", "app.one_step(-1)", "", "to the step before, and pause", replay=True),
    Key("full_stop", ".", "app.one_step(1)", "step", "to the next step, and pause", replay=True),
    Key("greater_than_sign", ">", "app.faster(1)", "faster", "twice as fast", replay=True),
    Key("less_than_sign", "<", "app.faster(-1)", "", "half as fast", replay=True),
    Key("1", "1", "app.go('world')", "", "World: how is it?", opens="world"),
    Key("2", "2", "app.go('ranks')", "", "Ranks: who is slow?", opens="ranks"),
    Key("3", "3", "app.go('heat')", "", "Heat: since when, and how regularly?", opens="heat"),
    Key("4", "4", "app.go('comm')", "", "Comm: what does all-reduce cost, and why?", opens="comm"),
    Key("5", "5", "app.go('timeline')", "", "Timeline: what happened in the last steps?", opens="timeline"),
    Key("6", "6", "app.go('devices')", "", "Devices: what are the machines doing?", opens="devices"),
    Key("7", "7", "app.go('logs')", "", "Logs: what did they print? (of the inspected rank, or all)", opens="logs"),
    Key("8", "8", "app.go('runs')", "", "Runs: what else runs?", opens="runs"),
    Key("escape", "esc", "app.back", "back", "back to where the rank was chosen", views=("inspect",)),
    Key("enter", "⏎", "app.inspect", "inspect", "inspect the rank under the cursor", views=(*_TABLES, *_TIMES)),
    Key("enter", "⏎", "app.open", "watch", "watch this run, or its recording if it has ended", views=("runs",)),
    Key("left_square_bracket", "[", "screen.step(-1)", "", "the rank before", views=("inspect",)),
    Key("right_square_bracket", "]", "screen.step(1)", "", "the rank after", views=("inspect",)),
    Key("left_square_bracket", "[", "screen.step(-1)", "", "output of the rank before, or of all", views=("logs",)),
    Key("right_square_bracket", "]", "screen.step(1)", "next rank", "output of the next rank", views=("logs",)),
    Key("slash", "/", "app.filter", "filter", "list some ranks: rank:0-7 host:n1 own>40 slow !dead", views=_TABLES),
    Key("escape", "esc", "app.unfilter", "", "list all ranks again", views=_TABLES),
    Key("space", "space", "app.freeze", "freeze", "hold the screen still; collecting goes on", replay=False),
    Key("left_square_bracket", "[", "app.skip(-1)", "", "hold the screen, and back to what it showed before",
        views=_TIMED, replay=False),
    Key("right_square_bracket", "]", "app.skip(1)", "", "on to what it showed next", views=_TIMED, replay=False),
    Key(
        "s", "s", "screen.sort", "sort", "sort the ranks: slowest, by rank, shortest wait, highest loss",
        views=("world",),
    ),
    Key("s", "s", "screen.sort", "sort", "sort the ranks by the next column", views=("ranks",)),
    Key(
        "s", "s", "screen.sort", "sort", "sort the ranks: shortest wait, longest wait, longest transfer, by rank",
        views=("comm",),
    ),
    Key("s", "s", "screen.sort", "sort", "sort hosts and ranks: trouble first, or by a quantity", views=("devices",)),
    Key("b", "b", "screen.buckets", "buckets", "move through the buckets, or the ranks again", views=("comm",)),
    Key("f", "f", "screen.fold", "fold", "a line per host, or every rank", views=("devices",)),
    Key("S", "S", "screen.reverse", "reverse", "the other way round", views=("ranks",)),
    Key("l", "l", "screen.log_scale", "log", "logarithmic scale for the loss", views=("world",)),
    Key("m", "m", "screen.metric", "metric", "own time, wait, step, loss", views=("heat",)),
    Key("w", "w", "screen.window", "window", "1, 8, 64, 512 steps a column", views=("heat",)),
    Key("w", "w", "screen.window", "window", "more or fewer steps", views=("timeline",)),
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
    there = {(key.keys, key.action): key for key in KEYS if view in (key.views or (view,))}
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.keys == "ctrl+c") for key in there.values()
    ]


def available(frame: Frame) -> list[Key]:
    """The keys that do something now."""
    playing = frame.cursor is not None
    return [
        key
        for key in KEYS
        if (frame.can_stop or not key.stops)
        and frame.view in (key.views or (frame.view,))
        and key.replay in {None, playing}
    ]


def label(key: Key, frame: Frame) -> str:
    """What the key bar says: nothing is left running once the run has ended."""
    if key.action == "app.detach" and (frame.ended or frame.cursor is not None):
        return "quit"
    still = frame.behind_s is not None or (frame.cursor is not None and frame.cursor.paused)
    return "go on" if key.action == "app.freeze" and still else key.label
