"""The dashboard: takes a snapshot from its source twice a second and shows it; holds no truth of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from rich.console import RenderableType
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.theme import Theme

from ddpmon.messages import Wish
from ddpmon.source import Source
from ddpmon.tui import changes, keys, numbers, workarounds
from ddpmon.tui.filters import Filter
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import plain
from ddpmon.tui.notify import Worsening, sequence
from ddpmon.tui.outcome import Outcome
from ddpmon.tui.palette import ANSI_THEME, THEMES, Palette, chosen_theme, pick
from ddpmon.tui.screens.allruns import Runs
from ddpmon.tui.screens.chart import Chart
from ddpmon.tui.screens.comm import Comm
from ddpmon.tui.screens.devices import Devices
from ddpmon.tui.screens.heat import Heat
from ddpmon.tui.screens.help import Help
from ddpmon.tui.screens.inspect import Inspect
from ddpmon.tui.screens.logs import Logs
from ddpmon.tui.screens.prompt import FilterPrompt
from ddpmon.tui.screens.ranks import Ranks
from ddpmon.tui.screens.timeline import Timeline
from ddpmon.tui.screens.view import RankCursor, View
from ddpmon.tui.screens.world import World
from ddpmon.tui.stopping import Stopping

FRAME_S = 0.5
FIRST_FRAME_S = 0.05
"""Until the first snapshot: the screen fills as soon as there is something to show."""
NOTICE_FRAMES = 6
SWITCH_S = 0.01
"""From one screen to another: a new one is drawn at once."""


class DdpmonApp(Stopping):
    """The dashboard over one source.

    readonly: the run cannot be stopped from here. owns_run: this viewer belongs to the command that started the run,
    so that Ctrl-C may mean either of the two and is asked about; a mere viewer just leaves. notify: one of
    `notify.WAYS`.
    """

    TITLE = "ddpmon"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [binding for binding in keys.bindings("") if binding.priority]
    DEFAULT_MODE = "world"

    def __init__(
        self, source: Source, *, readonly: bool = False, owns_run: bool = False, notify: str = "off"
    ) -> None:  # fmt: skip
        # Textual makes greys of NO_COLOR, unless it may use the terminal's own colours: then it leaves none.
        super().__init__(source, True if "NO_COLOR" in os.environ else None)
        self.animation_level = "none"
        for theme in THEMES:
            self.register_theme(theme)
        if self.no_color or self.console.color_system in {None, "standard", "windows"}:
            self.theme = ANSI_THEME
        elif (chosen := chosen_theme(os.environ)) is not None:
            self.theme = chosen
        elif self.theme == "textual-dark":
            self.theme = "ddpmon-dark"
        # Textual took the stylesheet's variables before it knew these themes.
        self.stylesheet.set_variables(self.get_css_variables())
        self.readonly = readonly
        self.owns_run = owns_run
        self.world, self.ranks, self.inspect = World(), Ranks(), Inspect()
        self.heat, self.comm, self.timeline, self.devices = Heat(), Comm(), Timeline(), Devices()
        self.logs, self.runs = Logs(), Runs()
        self.chart = Chart(self.world.choice)
        self.views: dict[str, View] = {
            "world": self.world, "ranks": self.ranks, "inspect": self.inspect, "heat": self.heat, "comm": self.comm,
            "timeline": self.timeline, "devices": self.devices, "logs": self.logs, "runs": self.runs,
            "chart": self.chart,
        }  # fmt: skip
        self._inspected_from = self.DEFAULT_MODE
        for name, view in self.views.items():
            self.add_mode(name, partial(_same, view))
        self.filter: Filter | None = None
        self._tells = notify
        self._worsening = Worsening(begun=owns_run)
        self._notice: str = ""
        self._notice_left = 0

    @property
    def view(self) -> View:
        """The screen that is shown, whatever dialog is over it."""
        return self.views[self.current_mode]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the command palette (ctrl+p) offers: whatever a key would do now, and the themes.

        What is no more than a movement, and Textual's own themes, are found by typing.
        """
        frame = self.frame
        for key in keys.available(frame):
            if key.action != "app.command_palette":
                at_once = bool(key.label or key.opens)
                yield SystemCommand(*keys.command(key, frame), partial(self._run_command, key.action), at_once)
        for name in () if self.no_color else sorted(self.available_themes):
            take = partial(setattr, self, "theme", name)
            ours = any(theme.name == name for theme in THEMES)
            yield SystemCommand(f"Theme: {name}", "these colours until the dashboard is left", take, ours)

    async def _run_command(self, action: str) -> None:
        """What the command palette was asked for, on the screen that is shown."""
        await self.run_action(action, self.view, {"screen": self.view})

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._on_theme_changed)
        self.tick()
        self._first = self.set_interval(FIRST_FRAME_S, self._await_first)
        self.set_interval(FRAME_S, self.tick)

    def _on_theme_changed(self, theme: Theme) -> None:
        self.show()

    def _await_first(self) -> None:
        if self.newest is None:
            self.tick()
        else:
            self._first.stop()

    # --- frames ---

    def tick(self) -> None:
        """One frame."""
        if not self.is_headless and workarounds.terminal_gone():
            self.leave()
            return
        self.source.wish(self.view.wish)
        self.take()
        self._tell_outside()
        if self._notice_left:
            self._notice_left -= 1
        self.show()

    def _tell_outside(self) -> None:
        """A bell or a notification, between two frames: all that is written goes through the driver's one queue."""
        newest = self.newest
        if self._tells == "off" or newest is None or not self._worsening.news(newest, time.monotonic()):
            return
        if self._driver is not None:
            self._driver.write(sequence(self._tells, newest, os.environ))

    def show(self) -> None:
        if self.current_mode in {"logs", "inspect"} and self.held is None:
            self.logs.output.printed = self.inspect.inspection.printed = self.source.logs()
            self.logs.output.printed.poll()
        self.view.show(self.frame, self.palette)

    @property
    def frame(self) -> Frame:
        """What is shown now."""
        silent = self.source.silent_for()
        return Frame(
            snapshot=self.shown,
            silent_s=float(int(silent)) if silent > 1 else 0.0,
            behind_s=self.behind_s,
            can_stop=self._stoppable_here,
            readonly=self.readonly,
            notice=self._notice if self._notice_left else self._standing_notice,
            view=self.current_mode,
            filter=self.filter,
            series=None if self.newest is None else self.newest.series,
            cursor=self.place,
        )

    @property
    def palette(self) -> Palette:
        """The colours of the current theme."""
        theme = self.current_theme
        return pick(dark=theme.dark, ansi=self.native_ansi_color, no_color=self.no_color)

    @property
    def _standing_notice(self) -> str:
        if self.ended and self.held is not None and self.held is not self.newest and self.source.tape is None:
            return "the run has ended meanwhile; space shows how"
        if not self.stop_asked or self.ended:
            return ""
        left_s = self.grace_left_s
        return f"stopping…{'' if left_s is None else f' {left_s:.0f} s left'}  x kills it now   q leaves"

    def say(self, text: str) -> None:
        """Show a line in the key bar for a few seconds."""
        self._notice, self._notice_left = text, NOTICE_FRAMES
        self.show()

    def delay_update(self, delay: float = SWITCH_S) -> None:
        """Hide what is between two screens; not as long as Textual would."""
        super().delay_update(min(delay, SWITCH_S))

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, changes.lean(renderable))

    def leave(self) -> None:
        """End the dashboard; the run is not touched."""
        if not self.is_headless and workarounds.terminal_gone():
            workarounds.write_no_more(self._driver)
            workarounds.let_go_of_terminal()
        self.exit()

    # --- keys ---

    def action_detach(self) -> None:
        self.leave()

    async def action_quit(self) -> None:
        self.leave()

    def action_help(self) -> None:
        self.push_screen(Help(self.palette, self.frame))

    async def action_go(self, name: str) -> None:
        """Show another screen; each stays as it was left. From an inspected rank, the logs are that rank's."""
        if name == "logs" and self.current_mode == "inspect":
            self.logs.output.of(self.inspect.inspection.rank)
        laid_out = self.views[name].is_mounted
        await self.switch_mode(name)
        self.show()
        if laid_out:  # a new one asks once it knows its size
            self._wish_anew()

    def action_filter(self) -> None:
        before = "" if self.filter is None else self.filter.text
        self.push_screen(FilterPrompt(before, self.palette), self._take_filter)

    def action_unfilter(self) -> None:
        self._take_filter(Filter())

    def _take_filter(self, wanted: Filter | None) -> None:
        """None: leave it as it was."""
        if wanted is not None:
            self.filter = wanted if wanted.text else None
            self.show()
            self._wish_anew()

    def _wish_anew(self) -> None:
        """Ask for what the screen wishes for now that it was shown a frame: its wish follows from that."""
        self.source.wish(self.view.wish)
        if self.view.wish != Wish():
            self.await_answer()

    async def action_inspect(self) -> None:
        cursor = self.view.cursor
        rank = cursor.chosen_rank() if isinstance(cursor, RankCursor) else None
        if rank is None:
            self.say("no rank under the cursor")
            return
        self._inspected_from = self.current_mode
        self.inspect.inspection.open(rank)
        await self.action_go("inspect")

    def action_stack(self) -> None:
        """Ask the inspected rank where it is. It changes nothing, so that who may only look may ask too."""
        pane = self.inspect.inspection
        if self.held is not None:
            self.say("the screen is held: space goes on, then p asks")
            return
        pane.show_stack()
        if not self.source.askable:
            self.say("a recording answers nothing: stacks as recorded only")
            return
        self.source.ask([pane.rank])
        self.show_answer()

    async def action_back(self) -> None:
        """From the inspected rank to where it was chosen, with the cursor on it."""
        cursor = self.views[self._inspected_from].cursor
        if isinstance(cursor, RankCursor):
            cursor.choose(self.inspect.inspection.rank)
        await self.action_go(self._inspected_from)

    def action_copy(self) -> None:
        snapshot = self.shown
        if snapshot is None:
            self.say("nothing to copy yet")
            return
        step = f"step {numbers.count(snapshot.step)}"
        self.copy_to_clipboard(f"{plain(snapshot.run.name)}, {step}: {plain(snapshot.verdict)}")
        self.say("copied the verdict")


def _same(view: View) -> View:
    return view


def watch(source: Source, *, readonly: bool = False, owns_run: bool = False, notify: str = "off") -> Outcome:
    """Show a source in this terminal until the person leaves or the terminal goes away; says how it was left."""
    app = DdpmonApp(source, readonly=readonly, owns_run=owns_run, notify=notify)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, app.leave)
        await app.run_async()

    asyncio.run(run())
    return app.outcome
