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
    changes: bool = False
    """Only where runs may be started and changed."""
    here: bool = False
    """Only for runs of this machine."""


_TABLES = ("world", "ranks", "comm", "devices")
_TIMES = ("heat", "timeline")
_FILTERED = (*_TABLES, *_TIMES, "logs")
"""Where ranks are listed."""
_LISTS = (*_TABLES, *_TIMES, "inspect", "logs", "runs")
_NOT_RUNS = ("chart", *(view for view in _LISTS if view != "runs"))
_TIMED = (*_TABLES, *_TIMES, "chart", "runs")
"""Where [ and ] move through time; elsewhere they go from rank to rank."""
_CHARTS = ("world", "chart")

KEYS = (
    Key("q", "q", "app.detach", "detach", "leave the dashboard; the run goes on"),
    Key("x", "x", "app.stop", "stop", "stop the run (asks first); once more: kill it now", stops=True),
    Key("ctrl+l", "ctrl+l", "app.repaint", "", "draw the whole screen again"),
    Key("ctrl+z", "ctrl+z", "app.suspend", "", "back to the shell; fg shows the dashboard again"),
    Key("question_mark", "?", "app.help", "help", "the keys, and what words and signs mean"),
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
    Key("n", "n", "app.launch", "launch", "start a run: a form, filled in as the last one was", views=("runs",),
        changes=True),
    Key("n", "n", "app.launch", "", "start another run (a form), and watch it", views=_NOT_RUNS,
        changes=True),
    Key("R", "R", "app.restart", "restart", "start this run again as it was (asks first)", views=("runs",),
        changes=True),
    Key("c", "c", "app.compare", "compare", "mark this run; on another one: compare the two", views=("runs",),
        here=True),
    Key("D", "D", "app.delete", "delete", "delete this run with all that was recorded (asks first)", views=("runs",),
        changes=True),
    Key("e", "e", "app.rename", "rename", "give this run another name", views=("runs",), changes=True),
    Key("left_square_bracket", "[", "screen.step(-1)", "", "the rank before", views=("inspect",)),
    Key("right_square_bracket", "]", "screen.step(1)", "", "the rank after", views=("inspect",)),
    Key("left_square_bracket", "[", "screen.step(-1)", "", "output of the rank before, or of all", views=("logs",)),
    Key("right_square_bracket", "]", "screen.step(1)", "next rank", "output of the next rank", views=("logs",)),
    Key("slash", "/", "app.filter", "filter", "list some ranks: rank:0-7 host:n1 own>40 slow !dead",
        views=_TABLES),
    Key("escape", "esc", "app.unfilter", "", "list all ranks again", views=_FILTERED),
    Key("space", "space", "app.freeze", "freeze", "hold the screen still; collecting goes on", replay=False),
    Key("left_square_bracket", "[", "app.skip(-1)", "", "hold the screen, and back to what it showed before",
        views=_TIMED, replay=False),
    Key("right_square_bracket", "]", "app.skip(1)", "", "on to what it showed next", views=_TIMED, replay=False),
    Key("left_curly_bracket", "{", "app.jump(-1)", "", "hold the screen, and back to the event before", replay=False),
    Key("right_curly_bracket", "}", "app.jump(1)", "", "on to the next event that it showed", replay=False),
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
    Key("escape", "esc", "app.go('world')", "back", "back to World", views=("chart",)),
    Key("z", "z", "app.go('chart')", "zoom", "the left chart fills the screen, with a cursor", views=("world",)),
    Key("right", "→", "screen.move(1)", "", "the cursor a column on", views=("chart",)),
    Key("left", "←", "screen.move(-1)", "", "the cursor a column back; a click puts it anywhere", views=("chart",)),
    Key("shift+right", "⇧→", "screen.move(10)", "", "ten columns on", views=("chart",)),
    Key("shift+left", "⇧←", "screen.move(-10)", "", "ten columns back", views=("chart",)),
    Key("plus,equals_sign", "+", "screen.zoom(1)", "in", "half as long a time, around the cursor", views=("chart",)),
    Key("minus", "-", "screen.zoom(-1)", "out", "twice as long a time", views=("chart",)),
    Key("w", "w", "screen.window", "window", "all of the run, its last hour, 10 minutes, minute", views=("chart",)),
    Key("m", "m", "screen.metric(1)", "metric", "chart loss, step, own time, wait, …, what the script logs",
        views=_CHARTS),
    Key("M", "M", "screen.metric(-1)", "", "the quantity before", views=_CHARTS),
    Key("o", "o", "screen.smooth", "smooth", "a moving average over the median: none, 0.6, 0.9", views=_CHARTS),
    Key("l", "l", "screen.log_scale", "log", "logarithmic scale", views=_CHARTS),
    Key("pagedown,ctrl+f", "PgDn", "screen.page(1)", "", "later, by all that is shown", views=("chart",)),
    Key("pageup,ctrl+b", "PgUp", "screen.page(-1)", "", "earlier, by all that is shown", views=("chart",)),
    Key("g,home", "g", "screen.first", "", "to the beginning of the run", views=("chart",)),
    Key("G,end", "G", "screen.last", "", "to the newest, and follow it", views=("chart",)),
    Key("m", "m", "screen.metric(1)", "metric", "own time, its phases, wait, step, loss, GPU utilization",
        views=("heat",)),
    Key("M", "M", "screen.metric(-1)", "", "the metric before", views=("heat",)),
    Key("p", "p", "app.stack", "stack", "ask the rank where its training thread is: its Python stack",
        views=("inspect",)),
    Key("w", "w", "screen.window", "window", "1, 8, 64, 512 steps a column", views=("heat", "inspect")),
    Key("w", "w", "screen.window", "window", "more or fewer steps", views=("timeline",)),
    Key("w", "w", "screen.window", "window", "cost and efficiencies of the analysed window, the last 50, all steps",
        views=("comm",)),
    Key("f", "f", "screen.fold", "fold", "a row per host, or every rank", views=("heat",)),
    Key("slash", "/", "app.filter", "filter", "show some ranks: rank:0-7 host:n1 own>40 slow !dead",
        views=(*_TIMES, "logs")),
    Key("y", "y", "app.copy", "copy", "copy the verdict to the clipboard (OSC 52, works over SSH)"),
    Key("down,j", "↓ j", "screen.move(1)", "", "down: the next rank or line", views=_LISTS),
    Key("up,k", "↑ k", "screen.move(-1)", "", "up: the rank or line before", views=_LISTS),
    Key("right", "→", "screen.pan(1)", "", "columns further right", views=("ranks",)),
    Key("left", "←", "screen.pan(-1)", "", "columns further left", views=("ranks",)),
    Key("pagedown,ctrl+f", "PgDn", "screen.page(1)", "", "a screenful further", views=_LISTS),
    Key("pageup,ctrl+b", "PgUp", "screen.page(-1)", "", "a screenful back", views=_LISTS),
    Key("g,home", "g", "screen.first", "", "to the first", views=_LISTS),
    Key("G,end", "G", "screen.last", "", "to the last", views=_LISTS),
    Key("ctrl+p", "Ctrl-P", "app.command_palette", "", "every screen, action and theme by its name"),
    Key("ctrl+c", "Ctrl-C", "app.interrupt", "", "asks: detach, stop the run, or stay"),
)  # fmt: skip


def bindings(view: str) -> list[Binding]:
    """The keys of a screen as Textual wants them. Ctrl-C works in dialogs too."""
    there = {(key.keys, key.action): key for key in KEYS if view in (key.views or (view,))}
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.keys == "ctrl+c") for key in there.values()
    ]


def command(key: Key, frame: Frame) -> tuple[str, str]:
    """(name, what it does and its key) of what a key does, for the command palette."""
    name, text = label(key, frame), key.help
    if not name and key.opens:
        name, _, text = text.partition(": ")
    if not name:
        name, text = text, ""
    return name[:1].upper() + name[1:], f"{text}  ({key.shown})".strip()


def available(frame: Frame) -> list[Key]:
    """The keys that do something now."""
    playing = frame.cursor is not None
    return [
        key
        for key in KEYS
        if (frame.can_stop or not key.stops)
        and not (frame.readonly and key.changes)
        and not (frame.where and (key.changes or key.here))
        and frame.view in (key.views or (frame.view,))
        and key.replay in {None, playing}
    ]


def label(key: Key, frame: Frame) -> str:
    """What the key bar says: nothing is left running once the run has ended."""
    if key.action == "app.detach" and (frame.ended or frame.cursor is not None):
        return "quit"
    still = frame.behind_s is not None or (frame.cursor is not None and frame.cursor.paused)
    return "go on" if key.action == "app.freeze" and still else key.label
