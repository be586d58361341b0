"""The dashboard: takes a snapshot from its source twice a second and shows it; holds no truth of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, ClassVar

from rich.console import RenderableType
from textual import events
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import ModalScreen, Screen
from textual.theme import Theme
from textual.timer import Timer

from ddpmon.errors import DdpmonError
from ddpmon.glyphs import in_ascii, started_with
from ddpmon.messages import Wish
from ddpmon.runs import Run
from ddpmon.source import Source
from ddpmon.source.listed import Listed
from ddpmon.source.place import Here, Place
from ddpmon.tui import changes, in_order, keys, numbers, workarounds
from ddpmon.tui.dashboard import Reply, Then
from ddpmon.tui.filters import Filter
from ddpmon.tui.frame import Frame
from ddpmon.tui.in_order import InOrder
from ddpmon.tui.inspecting import Inspecting
from ddpmon.tui.launching import Launching
from ddpmon.tui.lines import plain
from ddpmon.tui.notice import Notice
from ddpmon.tui.notify import Worsening, sequence
from ddpmon.tui.outcome import Outcome
from ddpmon.tui.palette import THEMES, Palette, first_theme, pick
from ddpmon.tui.screens.ask import Ask
from ddpmon.tui.screens.help import Help
from ddpmon.tui.screens.prompt import FilterPrompt
from ddpmon.tui.screens.table import pane_of, views
from ddpmon.tui.screens.view import View
from ddpmon.tui.stopping import Stopping
from ddpmon.tui.views import ViewName
from ddpmon.tui.watched import Watched
from ddpmon.tui.widgets.inspection import Inspection
from ddpmon.tui.widgets.loglist import LogList
from ddpmon.tui.widgets.runlist import RunList

FRAME_S = 0.5
FIRST_FRAME_S = 0.05
"""Until the first snapshot: the screen fills as soon as there is something to show."""
LOOK_S = 0.02
LOOKS = 50
"""How often, and how many times, the source is looked at for what a key has asked of it."""
SWITCH_S = 0.01
"""From one screen to another: a new one is drawn at once."""


class DdpmonApp(App[None]):
    """The dashboard over one source.

    readonly: the run cannot be stopped from here. owns_run: this viewer belongs to the command that started the run,
    so that Ctrl-C may mean either of the two and is asked about; a mere viewer just leaves. notify: one of
    `notify.WAYS`. place: the machine whose runs these are; None: this one.
    """

    TITLE = "ddpmon"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings_of_dialogs()]
    DEFAULT_MODE = ViewName.WORLD

    def __init__(
        self,
        source: Source,
        *,
        readonly: bool = False,
        owns_run: bool = False,
        notify: str = "off",
        place: Place | None = None,
    ) -> None:
        # Textual makes greys of NO_COLOR, unless it may use the terminal's own colours: then it leaves none.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.animation_level = "none"
        self._ascii_only = in_ascii(started_with())
        for theme in THEMES:
            self.register_theme(theme)
        few = self.no_color or self.console.color_system in {None, "standard", "windows"}
        self.theme = first_theme(self.theme, os.environ, few_colours=few)
        # Textual took the stylesheet's variables before it knew these themes.
        self.stylesheet.set_variables(self.get_css_variables())
        self.readonly = readonly
        self.filter: Filter | None = None
        self.watched = Watched(source, place or Here())
        self.passage = self.watched.passage
        self.views = views(self.watched.place, self.show_answer)
        for name, view in self.views.items():
            self.add_mode(name, partial(_same, view))
        self._inspection = pane_of(self.views, Inspection)
        self._output = pane_of(self.views, LogList)
        self._runs = pane_of(self.views, RunList)
        self.inspecting = Inspecting(self, self.passage, self.views, self._inspection, self.action_go)
        self.stopping = Stopping(self, self.watched, self._run_under_cursor, readonly=readonly, owns_run=owns_run)
        self.launching = Launching(self, self.watched, self._runs, self.watch_run, readonly=readonly)
        self.in_order = InOrder(self, super().on_event)
        self._notice = Notice()
        self._notify = notify
        self._worsening = Worsening(begun=owns_run)
        self._answer: Timer | None = None
        """While what the source was asked for is awaited."""

    @property
    def view_name(self) -> ViewName:
        """The name of the screen that is shown, whatever dialog is over it."""
        return ViewName(self.current_mode)

    @property
    def view(self) -> View:
        """The screen that is shown, whatever dialog is over it."""
        return self.views[self.view_name]

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
        self.set_interval(in_order.GIVE_UP_S, self.in_order.give_up_waiting)
        self.tick()
        self._first = self.set_interval(FIRST_FRAME_S, self._await_first)
        self.set_interval(FRAME_S, self.tick)

    def on_unmount(self) -> None:
        self.watched.close()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.in_order.take(event)
        else:
            await super().on_event(event)

    def _on_theme_changed(self, theme: Theme) -> None:
        self.show()

    def _await_first(self) -> None:
        if self.passage.newest is None:
            self.tick()
        else:
            self._first.stop()

    # --- frames ---

    def tick(self) -> None:
        """One frame."""
        if not self.is_headless and workarounds.terminal_gone():
            self.leave()
            return
        source = self.passage.source
        source.wish(self.view.wish)
        self.passage.take()
        self._notify_outside()
        self._notice.next_frame()
        if news := source.news():
            self._notice.say(plain(news))
        self.show()

    def show_answer(self) -> None:
        """A frame now, and one as soon as what the source was asked for is there."""
        self.tick()
        self._await_answer()

    def _await_answer(self) -> None:
        if self._answer is not None:
            self._answer.stop()
        self._answer = self.set_interval(LOOK_S, self._poll_passage, repeat=LOOKS)

    def _poll_passage(self) -> None:
        if self.passage.news:
            self.tick()

    def _notify_outside(self) -> None:
        """A bell or a notification, between two frames: all that is written goes through the driver's one queue."""
        newest = self.passage.newest
        if self._notify == "off" or newest is None or not self._worsening.news(newest, time.monotonic()):
            return
        if self._driver is not None:
            self._driver.write(sequence(self._notify, newest, os.environ))

    def show(self) -> None:
        if self.view_name in {ViewName.LOGS, ViewName.INSPECT} and self.passage.held is None:
            self._output.printed = self._inspection.printed = self.passage.source.logs()
            self._output.printed.poll()
        self.view.show(self.frame, self.palette)

    @property
    def frame(self) -> Frame:
        """What is shown now."""
        passage, source = self.passage, self.passage.source
        silent = source.silent_for()
        return Frame(
            snapshot=passage.shown,
            silent_s=float(int(silent)) if silent > 1 else 0.0,
            refused=source.refused,
            behind_s=passage.behind_s,
            can_stop=self.stopping.can_stop,
            readonly=self.readonly,
            notice=self._notice.text or self.watched.notice,
            view=self.view_name,
            filter=self.filter,
            series=None if passage.newest is None else passage.newest.series,
            cursor=passage.cursor,
            where=self.watched.place.name,
            trouble=source.trouble(),
        )

    @property
    def current_theme(self) -> Theme:
        # Textual puts all themes into a new dictionary to find it, hundreds of times in a frame.
        return self._registered_themes.get(self.theme) or super().current_theme

    @property
    def palette(self) -> Palette:
        """The colours of the current theme."""
        theme = self.current_theme
        return pick(dark=theme.dark, ansi=self.native_ansi_color, no_color=self.no_color)

    def say(self, text: str) -> None:
        """Show a line in the key bar for a few seconds; "": what was said last no more."""
        self._notice.say(text)
        self.show()

    def ask(self, dialog: ModalScreen[Reply], then: Then[Reply]) -> None:
        """Open a dialog over the screen; `then` takes its answer, None if it was left without one."""
        self.push_screen(dialog, then)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something that takes a while go on beside the screen."""
        self.run_worker(work)

    def delay_update(self, delay: float = SWITCH_S) -> None:
        """Hide what is between two screens; not as long as Textual would."""
        super().delay_update(min(delay, SWITCH_S))

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, changes.lean(renderable, ascii_only=self._ascii_only))

    def leave(self) -> None:
        """End the dashboard; the run is not touched."""
        if not self.is_headless and workarounds.terminal_gone():
            workarounds.write_no_more(self._driver)
            workarounds.let_go_of_terminal()
        self.exit()

    # --- keys ---

    def action_repaint(self) -> None:
        """All of the screen once more, whatever else wrote into the terminal."""
        self.refresh(repaint=True, layout=True)

    def action_suspend(self) -> None:
        """Back to the shell until it continues the dashboard, as any program."""
        if workarounds.can_come_back():
            self.action_suspend_process()
        else:
            self.say("no shell is there to come back from")

    def action_detach(self) -> None:
        self.leave()

    async def action_quit(self) -> None:
        self.leave()

    def action_help(self) -> None:
        self.push_screen(Help(self.palette, self.frame))

    async def action_go(self, name: str) -> None:
        """Show another screen; each stays as it was left. From an inspected rank, the logs are that rank's."""
        target = ViewName(name)
        if target is ViewName.LOGS and self.view_name is ViewName.INSPECT:
            self._output.of(self.inspecting.rank)
        laid_out = self.views[target].is_mounted
        await self.switch_mode(target)
        self.show()
        if laid_out:  # a new one asks once it knows its size
            self._wish_anew()

    def action_filter(self) -> None:
        before = "" if self.filter is None else self.filter.text
        self.push_screen(FilterPrompt(before, self.palette), self._take_filter)

    def action_unfilter(self) -> None:
        self._take_filter(Filter())

    def _take_filter(self, rank_filter: Filter | None) -> None:
        """None: leave it as it was."""
        if rank_filter is not None:
            self.filter = rank_filter if rank_filter.text else None
            self.show()
            self._wish_anew()

    def _wish_anew(self) -> None:
        """Ask for what the screen wishes for now that it was shown a frame: its wish follows from that."""
        self.passage.source.wish(self.view.wish)
        if self.view.wish != Wish():
            self._await_answer()

    async def action_inspect(self) -> None:
        await self.inspecting.open(self.view_name)

    async def action_back(self) -> None:
        await self.inspecting.back()

    def action_stack(self) -> None:
        self.inspecting.ask_stack()

    def action_copy(self) -> None:
        snapshot = self.passage.shown
        if snapshot is None:
            self.say("nothing to copy yet")
            return
        step = f"step {numbers.count(snapshot.step)}"
        self.copy_to_clipboard(f"{plain(snapshot.run.name)}, {step}: {plain(snapshot.verdict)}")
        self.say("copied the verdict")

    # --- keys that move through time ---

    def action_freeze(self) -> None:
        self.passage.freeze()
        self._show_moved()

    def action_skip(self, by: int) -> None:
        self.passage.skip(by)
        self._show_moved()

    def action_jump(self, by: int) -> None:
        why_not = self.passage.jump(by)
        if why_not:
            self.say(why_not)
        else:
            self._show_moved()

    def action_one_step(self, by: int) -> None:
        self.passage.one_step(by)
        self._show_moved()

    def action_faster(self, by: int) -> None:
        self.passage.faster(by)
        self._show_moved()

    def _show_moved(self) -> None:
        """Show what was moved to; a recording is there as soon as it has it."""
        if self.passage.plays:
            self.show_answer()
        else:
            self.show()

    # --- keys that do something to runs ---

    def _run_under_cursor(self) -> Listed | None:
        return self._runs.chosen_run() if self.view_name is ViewName.RUNS else None

    async def action_open(self) -> None:
        """Watch the run under the cursor on all screens."""
        other_run = self.watched.other(self._run_under_cursor())
        if other_run is None:
            await self.action_go(ViewName.WORLD)
        else:
            await self.watch_run(other_run)

    async def watch_run(self, run: Run) -> None:
        """Watch a run on all screens from now on."""
        try:
            self.watched.open(run)
        except DdpmonError as error:
            self.say(str(error))
            return
        self._output.of(None)
        await self.action_go(ViewName.WORLD)

    def action_stop(self) -> None:
        self.stopping.stop()

    def action_interrupt(self) -> None:
        self.stopping.interrupt(asking=isinstance(self.screen, Ask))

    def action_launch(self) -> None:
        self.launching.launch()

    def action_restart(self) -> None:
        self.launching.restart()

    def action_rename(self) -> None:
        self.launching.rename()

    def action_delete(self) -> None:
        self.launching.delete()

    def action_compare(self) -> None:
        self.launching.compare()


def _same(view: View) -> View:
    return view


def watch(
    source: Source,
    *,
    readonly: bool = False,
    owns_run: bool = False,
    notify: str = "off",
    place: Place | None = None,
) -> Outcome:
    """Show a source in this terminal until the person leaves or the terminal goes away; says how it was left.

    place: the machine whose runs these are; None: this one.
    """
    app = DdpmonApp(source, readonly=readonly, owns_run=owns_run, notify=notify, place=place)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, app.leave)
        await app.run_async()

    asyncio.run(run())
    return app.watched.outcome
