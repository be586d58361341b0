"""The table of keys, from which the bindings, the key bar and the help are made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpmon import config
from ddpmon.errors import UsageError
from ddpmon.tui.keymap import FIXED, Key, remapped_keys
from ddpmon.tui.views import VIEW_FACTS, ViewFacts, ViewName, title

if TYPE_CHECKING:
    from textual.binding import Binding

    from ddpmon.tui.frame import Frame


def _views_that(holds: Callable[[ViewFacts], bool]) -> tuple[ViewName, ...]:
    return tuple(name for name in ViewName if holds(VIEW_FACTS[name]))


_WORLD, _RANKS, _COMM, _DEVICES = (ViewName.WORLD,), (ViewName.RANKS,), (ViewName.COMM,), (ViewName.DEVICES,)
_HEAT, _TIMELINE, _INSPECT = (ViewName.HEAT,), (ViewName.TIMELINE,), (ViewName.INSPECT,)
_LOGS, _RUNS, _CHART = (ViewName.LOGS,), (ViewName.RUNS,), (ViewName.CHART,)
_CHARTS = (*_WORLD, *_CHART)
_PASTS = (*_HEAT, *_TIMELINE)
"""Screens that show ranks as rows and past steps as columns."""
_LAUNCHES = tuple(name for name in ViewName if name not in {ViewName.RUNS, ViewName.LOGS})
"""Screens on which `n` starts another run."""
_OF_RANKS = _views_that(lambda view: view.ranks)
_FILTERED = _views_that(lambda view: view.filtered)
_LISTS = _views_that(lambda view: view.lists)
_TIMED = _views_that(lambda view: not view.from_rank_to_rank)


def _opening(name: ViewName) -> Key:
    view = VIEW_FACTS[name]
    return Key(view.digit, view.digit, f"app.go('{name}')", "", f"{view.title}: {view.question}", opens=name)


DEFAULT_KEYS = (
    Key("q", "q", "app.detach", "detach", "leave the dashboard; the run goes on"),
    Key("x", "x", "app.stop", "stop", "stop the run (asks first); a second time: kill it now", stops=True),
    Key("ctrl+l", "ctrl+l", "app.repaint", "", "draw the whole screen again"),
    Key("ctrl+z", "ctrl+z", "app.suspend", "", "suspend the dashboard; fg in the shell resumes it"),
    Key("question_mark", "?", "app.help", "help", "show the keys, words and signs"),
    *(_opening(name) for name in ViewName if VIEW_FACTS[name].digit),
    Key("space", "space", "app.freeze", "pause", "pause or play; at the end, start over", replay=True),
    Key("escape", "esc", "app.back", "back", "go back to the previous screen", views=_INSPECT),
    Key("enter", "⏎", "app.inspect", "inspect", "inspect the rank under the cursor", views=_OF_RANKS),
    Key("enter", "⏎", "app.open", "watch", "watch this run, or its recording if it has ended", views=_RUNS),
    Key("n", "n", "app.launch", "launch", "start a run; the form shows the options of the last run", views=_RUNS,
        changes=True),
    Key("n", "n", "app.launch", "", "start another run with a form, and watch it", views=_LAUNCHES,
        changes=True),
    Key("R", "R", "app.restart", "restart", "start this run again with the same options (asks first)", views=_RUNS,
        changes=True),
    Key("c", "c", "app.compare", "compare", "mark this run; on another run, compare the two", views=_RUNS,
        here=True),
    Key("D", "D", "app.delete", "delete", "delete this run and its recording (asks first)", views=_RUNS,
        changes=True),
    Key("e", "e", "app.rename", "rename", "rename this run", views=_RUNS, changes=True),
    Key("left_square_bracket", "[", "app.skip(-1)", "back", "go back in time", views=_TIMED, replay=True),
    Key("right_square_bracket", "]", "app.skip(1)", "on", "go forward in time", views=_TIMED, replay=True),
    Key("left_curly_bracket", "{", "app.jump(-1)", "", "go to the previous event", replay=True),
    Key("right_curly_bracket", "}", "app.jump(1)", "event", "go to the next event", replay=True),
    Key("comma", ",", "app.one_step(-1)", "", "go to the previous step, and pause", replay=True),
    Key("full_stop", ".", "app.one_step(1)", "step", "go to the next step, and pause", replay=True),
    Key("greater_than_sign", ">", "app.faster(1)", "faster", "play twice as fast", replay=True),
    Key("less_than_sign", "<", "app.faster(-1)", "", "play half as fast", replay=True),
    Key("left_square_bracket", "[", "screen.do('step', -1)", "", "go to the previous rank", views=_INSPECT),
    Key("right_square_bracket", "]", "screen.do('step', 1)", "", "go to the next rank", views=_INSPECT),
    Key("left_square_bracket", "[", "screen.do('step', -1)", "", "show the previous rank's output", views=_LOGS),
    Key("right_square_bracket", "]", "screen.do('step', 1)", "next rank", "show the next rank's output", views=_LOGS),
    Key("slash", "/", "app.search", "search", "search the output for a regular expression", views=_LOGS),
    Key("n", "n", "app.match(1)", "", "go to the next match", views=_LOGS),
    Key("N", "N", "app.match(-1)", "", "go to the previous match", views=_LOGS),
    Key("e", "e", "app.last_error", "error", "go to the last error; N goes to the one before it", views=_LOGS),
    Key("f", "f", "screen.do('follow')", "follow", "follow the newest output, or hold it where it is", views=_LOGS),
    Key("w", "w", "screen.do('wrap')", "wrap", "wrap long lines, or cut them", views=_LOGS),
    Key("F", "F", "app.filter", "filter", "show the output of some ranks, as in rank:0-7 host:n1 own>40 slow !dead",
        views=_LOGS),
    Key("escape", "esc", "app.unfilter", "", "end the search; else show the output of all ranks", views=_LOGS),
    Key("slash", "/", "app.filter", "filter", "filter ranks, as in rank:0-7 host:n1 own>40 slow !dead",
        views=tuple(name for name in _OF_RANKS if name not in _PASTS)),
    Key("escape", "esc", "app.unfilter", "", "list all ranks again",
        views=tuple(name for name in _FILTERED if name not in _LOGS)),
    Key("space", "space", "app.freeze", "freeze", "freeze the screen; the recording goes on", replay=False),
    Key("left_square_bracket", "[", "app.skip(-1)", "", "freeze the screen, and go back in time",
        views=_TIMED, replay=False),
    Key("right_square_bracket", "]", "app.skip(1)", "", "go forward in time", views=_TIMED, replay=False),
    Key("left_curly_bracket", "{", "app.jump(-1)", "", "freeze the screen, and go to the previous event", replay=False),
    Key("right_curly_bracket", "}", "app.jump(1)", "", "go to the next event", replay=False),
    Key(
        "s", "s", "screen.do('sort')", "sort", "sort the ranks: slowest, by rank, shortest wait, highest loss",
        views=_WORLD,
    ),
    Key("s", "s", "screen.do('sort')", "sort", "sort the ranks by the next column", views=_RANKS),
    Key(
        "s", "s", "screen.do('sort')", "sort", "sort the ranks: shortest wait, longest wait, longest transfer, by rank",
        views=_COMM,
    ),
    Key("s", "s", "screen.do('sort')", "sort", "sort hosts and ranks: problems first, or by a column", views=_DEVICES),
    Key("b", "b", "screen.do('buckets')", "buckets", "switch between the buckets and the ranks", views=_COMM),
    Key("f", "f", "screen.do('fold')", "fold", "show a line per host, or every rank", views=_DEVICES),
    Key("S", "S", "screen.do('reverse')", "reverse", "reverse the order", views=_RANKS),
    Key("escape", "esc", "app.go('world')", "back", "go back to World", views=_CHART),
    Key("z", "z", "app.go('chart')", "zoom", "show the left chart on the whole screen, with a cursor", views=_WORLD),
    Key("right", "→", "screen.do('move', 1)", "", "move the cursor a column right", views=_CHART),
    Key("left", "←", "screen.do('move', -1)", "", "move the cursor a column left; a click moves it too", views=_CHART),
    Key("shift+right", "⇧→", "screen.do('move', 10)", "", "move the cursor ten columns right", views=_CHART),
    Key("shift+left", "⇧←", "screen.do('move', -10)", "", "move the cursor ten columns left", views=_CHART),
    Key("plus,equals_sign", "+", "screen.do('zoom', 1)", "in", "zoom in at the cursor: half the time", views=_CHART),
    Key("minus", "-", "screen.do('zoom', -1)", "out", "zoom out: twice the time", views=_CHART),
    Key("w", "w", "screen.do('window')", "window",
        "show the whole run, or its last hour, 10 minutes or minute", views=_CHART),
    Key("m", "m", "screen.do('choose')", "metric",
        "choose a quantity to chart: loss, step, own time, wait, …, or what the script logs", views=_CHARTS),
    Key("M", "M", "screen.do('next_metric')", "", "chart the next quantity", views=_CHARTS),
    Key("o", "o", "screen.do('smooth')", "smooth", "smooth by a moving average: none, 0.6, 0.9", views=_CHARTS),
    Key("l", "l", "screen.do('log_scale')", "log", "switch the logarithmic scale on or off", views=_CHARTS),
    Key("pagedown,ctrl+f", "PgDn", "screen.do('page', 1)", "", "go forward by one screen", views=_CHART),
    Key("pageup,ctrl+b", "PgUp", "screen.do('page', -1)", "", "go back by one screen", views=_CHART),
    Key("g,home", "g", "screen.do('first')", "", "go to the beginning of the run", views=_CHART),
    Key("G,end", "G", "screen.do('last')", "", "go to the newest value, and follow it", views=_CHART),
    Key("m", "m", "screen.do('choose')", "metric",
        "choose a quantity: own time, its phases, wait, step, loss, GPU utilization", views=_HEAT),
    Key("M", "M", "screen.do('next_metric')", "", "show the next quantity", views=_HEAT),
    Key("p", "p", "app.stack", "stack", "ask the rank for its Python stack", views=_INSPECT),
    Key("w", "w", "screen.do('window')", "window",
        "show 1, 8, 64 or 512 steps per column, or the whole run", views=_HEAT),
    Key("w", "w", "screen.do('window')", "window", "show 1, 8, 64 or 512 steps per column", views=_INSPECT),
    Key("w", "w", "screen.do('window')", "window", "show more or fewer steps", views=_TIMELINE),
    Key("v", "v", "screen.do('longest', 1)", "longest", "show the longest steps one by one, then the latest again",
        views=_TIMELINE),
    Key("V", "V", "screen.do('longest', -1)", "", "show the previous long step", views=_TIMELINE),
    Key("w", "w", "screen.do('window')", "window",
        "show costs of the analysed steps, the last 50 steps, or all steps", views=_COMM),
    Key("w", "w", "screen.do('window')", "window", "show 1 or 16 seconds per column", views=_DEVICES),
    Key("percent_sign", "%", "screen.do('scale')", "percent",
        "mark delays beyond noise, or delays of 5% or more", views=_HEAT),
    Key("f", "f", "screen.do('fold')", "fold", "show a row per host, or every rank", views=_HEAT),
    Key("slash", "/", "app.filter", "filter", "filter ranks, as in rank:0-7 host:n1 own>40 slow !dead",
        views=_PASTS),
    Key("P", "P", "app.profile", "", "profile operators of the slow rank and another one (torch.profiler)"),
    Key("y", "y", "app.copy", "copy", "copy the sentence, a finding, a stack, output, the command or the report"),
    Key("I", "I", "app.save('svg')", "", "save the screen as a picture (SVG)"),
    Key("T", "T", "app.save('txt')", "", "save the screen as text"),
    Key("down,j", "↓ j", "screen.do('move', 1)", "", "go down to the next rank or line", views=_LISTS),
    Key("up,k", "↑ k", "screen.do('move', -1)", "", "go up to the previous rank or line", views=_LISTS),
    Key("right", "→", "screen.do('pan', 1)", "", "scroll right", views=(*_RANKS, *_LOGS)),
    Key("left", "←", "screen.do('pan', -1)", "", "scroll left", views=(*_RANKS, *_LOGS)),
    Key("pagedown,ctrl+f", "PgDn", "screen.do('page', 1)", "", "go down one screen", views=_LISTS),
    Key("pageup,ctrl+b", "PgUp", "screen.do('page', -1)", "", "go up one screen", views=_LISTS),
    Key("g,home", "g", "screen.do('first')", "", "go to the first rank or line", views=_LISTS),
    Key("G,end", "G", "screen.do('last')", "", "go to the last rank or line", views=_LISTS),
    Key("ctrl+p", "Ctrl-P", "app.command_palette", "", "find a screen, an action or a theme by its name"),
    Key("ctrl+c", "Ctrl-C", "app.interrupt", "", "ask whether to detach, stop the run, or stay"),
)  # fmt: skip


def _configured() -> tuple[Key, ...]:
    try:
        return remapped_keys(DEFAULT_KEYS, config.current())
    except UsageError:  # `config_check` reports it, and no dashboard opens.
        return DEFAULT_KEYS


SCREEN_KEYS = _configured()
"""The keys after the replacements in the config file."""


def bindings(view: ViewName) -> list[Binding]:
    """Return the keys of a screen as Textual's bindings."""
    from textual.binding import Binding

    by_key = {(key.keys, key.action): key for key in SCREEN_KEYS if view in key.views}
    return [Binding(key.keys, key.action, key.label, show=False, priority=key.keys == FIXED) for key in by_key.values()]


def bindings_of_dialogs() -> list[Binding]:
    """Return the keys that work everywhere in the app, dialogs included."""
    return [binding for binding in bindings(ViewName.WORLD) if binding.key == FIXED]


def needed_actions(view: ViewName) -> set[str]:
    """Return the names of the actions (`screen.do(…)`) that a screen must implement, because its keys call them."""
    from textual.actions import parse

    actions = (parse(key.action) for key in SCREEN_KEYS if view in key.views)
    return {str(parameters[0]) for target, action, parameters in actions if (target, action) == ("screen", "do")}


MANY_SCREENS = 5
"""If a key works on at least this number of screens, messages do not list them."""


def command(key: Key, frame: Frame) -> tuple[str, str]:
    """Return the entry of a key's action in the command palette: (name, description with the key)."""
    name, text = label(key, frame), key.help
    if not name and key.opens:
        name, text = VIEW_FACTS[key.opens].title, VIEW_FACTS[key.opens].question
    if not name:
        name, text = text, ""
    return name[:1].upper() + name[1:], f"{text}  ({key.shown})".strip()


def available(frame: Frame) -> list[Key]:
    """Return the keys that have an effect now."""
    playing = frame.cursor is not None
    return [
        key
        for key in SCREEN_KEYS
        if (frame.can_stop or not key.stops)
        and not (frame.readonly and key.changes)
        and not (frame.where and (key.changes or key.here))
        and frame.view in key.views
        and key.replay in {None, playing}
    ]


def label(key: Key, frame: Frame) -> str:
    """Return a key's text in the key bar, which can depend on the frame: "detach" becomes "quit" once the run has
    ended.
    """
    if key.action == "app.detach" and (frame.ended or frame.cursor is not None):
        return "quit"
    still = frame.behind_s is not None or (frame.cursor is not None and frame.cursor.paused)
    return "go on" if key.action == "app.freeze" and still else key.label


_UNUSED = re.compile(r"tab|backspace|delete|insert|f\d+")
"""Keys that type no character, but get a message if they have no action. Modifiers such as shift get no message."""


def idle_reason(name: str, character: str, frame: Frame) -> str:
    """Return why a key does nothing on the current screen; "" if it does something.

    Args:
        name: The key, as Textual names it.
        character: The character that the key types; "" if the key types none.
        frame: The current frame.

    """
    rows = [key for key in SCREEN_KEYS if name in key.keys.split(",")]
    here = [key for key in rows if frame.view in key.views]
    if any(key.replay in {None, frame.cursor is not None} for key in here):
        return ""  # if the action is impossible just now, the action itself says why
    if not rows:
        return f"{character or name} does nothing; ? shows the keys" if character or _UNUSED.fullmatch(name) else ""
    if here:
        return f"{rows[0].shown} works only in replays"
    others = [title(view) for view in dict.fromkeys(view for key in rows for view in key.views)]
    where = f"; it is a key of {', '.join(others)}" if len(others) < MANY_SCREENS else ""
    return f"{rows[0].shown} does nothing on {title(frame.view)}{where}"
