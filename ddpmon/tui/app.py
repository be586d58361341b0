"""The dashboard of one run, with the action of each key."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from ddpmon.errors import DdpmonError
from ddpmon.messages import ViewRequest, merge_requests
from ddpmon.runs import Run
from ddpmon.tui import filters, key_queue, keys, picture, search, workarounds
from ddpmon.tui.copying import Copying
from ddpmon.tui.filters import Filter
from ddpmon.tui.inspecting import Inspecting
from ddpmon.tui.key_queue import KeyQueue
from ddpmon.tui.launching import Launching
from ddpmon.tui.palette import THEMES, own_themes
from ddpmon.tui.profiling import Profiling
from ddpmon.tui.screens.ask import Dialog, Prompt
from ddpmon.tui.screens.scrolled import Help
from ddpmon.tui.screens.view import View
from ddpmon.tui.showing import ShowingApp
from ddpmon.tui.views import ViewName
from ddpmon.tui.watched import Outcome


class DdpmonApp(ShowingApp):
    """The dashboard of one run, with the objects that carry out its keys. The arguments are those of `ShowingApp`."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings_of_dialogs()]

    def make_parts(self) -> None:
        self.inspecting = Inspecting(self, self.playback, self.views, self._inspection, self.action_go)
        self.profiling = Profiling(self, self.playback, self.readonly, lambda: self.frame)
        self.launching = Launching(self, self.watched, self._runs, self.watch_run, readonly=self.readonly)
        self.copying = Copying(self, self.watched, self._output, lambda: self.inspecting.rank_on(self.view_name))
        self.key_queue = KeyQueue(self, self._dispatch_key)
        self._connect_keys()

    def _connect_keys(self) -> None:
        """Make the objects that carry out keys, and set their methods as `action_…` attributes, where Textual looks for
        them.
        """
        playback, stopping, launching = self.playback, self.stopping, self.launching
        self.action_detach = self.leave
        self.action_last_error = partial(self._output.find, search.ERRORS)
        self.action_inspect = lambda: self.inspecting.inspect_rank(self.view_name)
        self.action_stack = self.inspecting.ask_stack
        self.action_profile = self.profiling.ask_for_profile
        self.action_copy = lambda: self.copying.offer_texts(on_logs=self.view_name is ViewName.LOGS)
        self.action_freeze = partial(self._move_through_time, playback.toggle_pause)
        self.action_skip = partial(self._move_through_time, playback.skip)
        self.action_jump = partial(self._move_through_time, playback.jump)
        self.action_one_step = partial(self._move_through_time, playback.one_step)
        self.action_faster = partial(self._move_through_time, playback.faster)
        self.action_stop = stopping.stop
        self.action_interrupt = lambda: stopping.interrupt(asking=isinstance(self.screen, Dialog))
        self.action_launch, self.action_restart = launching.launch, launching.restart
        self.action_rename, self.action_delete = launching.rename, launching.delete
        self.action_compare = launching.compare

    def on_mount(self) -> None:
        self.set_interval(key_queue.MAX_KEY_WAIT_S, self.key_queue.give_up_waiting)
        self.app_resume_signal.subscribe(self, lambda _: self.action_repaint())

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Return the entries of the command palette (ctrl+p): the action of each key that has an effect now, and the
        themes.

        Keys that only move, and Textual's own themes, are listed only when the user types a search.
        """
        frame = self.frame
        for key in keys.available(frame):
            if key.action != "app.command_palette":
                at_once = bool(key.label or key.opens)
                yield SystemCommand(*keys.command(key, frame), partial(self._run_command, key.action), at_once)
        for name in () if self.no_color else sorted(self.available_themes):
            take = partial(setattr, self, "theme", name)
            ours = name in own_themes() or any(theme.name == name for theme in THEMES)
            yield SystemCommand(f"Theme: {name}", "use this theme in this dashboard", take, ours)

    @property
    def view_request(self) -> ViewRequest:
        """Return the parts of a snapshot that the current screen and an open profile need."""
        return merge_requests(super().view_request, self.profiling.view_request)

    def show(self) -> None:
        super().show()
        self.profiling.update_profile()

    async def _run_command(self, action: str) -> None:
        """Run an action of the command palette on the screen that is shown."""
        await self.run_action(action, self.view, {"screen": self.view})

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.key_queue.enqueue(event)
        else:
            await super().on_event(event)

    async def _dispatch_key(self, event: events.Event) -> None:
        """Run the action of a key or insert a paste; if a key has no action on this screen, show why."""
        if isinstance(event, events.Key) and isinstance(self.screen, View):
            character = event.character if event.character is not None and event.is_printable else ""
            if why := keys.idle_reason(event.key, character, self.frame):
                self.say(why)
        await super().on_event(event)

    # --- keys ---

    def action_repaint(self) -> None:
        """Draw the whole screen again, to overwrite what other programs wrote into the terminal."""
        self.refresh(repaint=True, layout=True)

    def action_suspend(self) -> None:
        """Suspend the dashboard, like any program on ctrl+z, until the shell continues it."""
        if workarounds.can_come_back():
            self.action_suspend_process()
        else:
            self.say("cannot suspend: this terminal has no job control")

    async def action_quit(self) -> None:
        self.leave()

    def action_help(self) -> None:
        self.push_screen(Help(self.palette, self.frame))

    async def action_go(self, name: str) -> None:
        """Switch to another screen, which keeps its state. From an inspected rank, Logs shows that rank's output."""
        target = ViewName(name)
        if target is ViewName.LOGS and self.view_name is ViewName.INSPECT:
            self._output.of(self.inspecting.rank)
        laid_out = self.views[target].is_mounted
        await self.switch_mode(target)
        self.show()
        if laid_out:  # a new screen requests its parts once it knows its size
            self._request_view_again()

    def action_filter(self) -> None:
        before = "" if self.filter is None else self.filter.text
        hint = "enter applies the filter (empty: all ranks), esc cancels"
        self.push_screen(Prompt(before, filters.parse_filter, hint, self.palette), self._take_filter)

    def action_unfilter(self) -> None:
        if self.view_name is ViewName.LOGS and self._output.search.text:
            self._output.find(search.Search())
        elif self.filter is None:
            self.say("no filter is set: the screen lists all ranks")
        else:
            self._take_filter(Filter())

    def _take_filter(self, rank_filter: Filter | None) -> None:
        """Apply a filter; None leaves the current one unchanged."""
        if rank_filter is not None:
            self.filter = rank_filter if rank_filter.text else None
            self.show()
            self._request_view_again()

    def action_search(self) -> None:
        hint = "a regular expression (empty: no search); enter searches upwards, esc cancels"
        self.push_screen(Prompt("", search.parse_search, hint, self.palette), self._output.find)

    def action_match(self, by: int) -> None:
        if why_not := self._output.next_match(by):
            self.say(why_not)

    async def action_back(self) -> None:
        await self.inspecting.return_to_list()

    def action_save(self, suffix: str) -> None:
        """Save the screen once a dialog over it, such as the command palette, is closed."""
        self.call_after_refresh(self._save, suffix)

    def _save(self, suffix: str) -> None:
        content = (
            picture.screen_svg(self, f"ddpmon {self.watched.name}")
            if suffix == "svg"
            else f"{picture.screen_text(self)}\n"
        )
        self.copying.save_screen(f"{self.view_name}-{time.strftime('%H%M%S')}.{suffix}", content)

    def _move_through_time(self, move: Callable[..., str | None], *by: int) -> None:
        """Move to another snapshot and show it. If `move` returns a text, show this text: the reason why the move is
        impossible.

        The snapshot of a recording appears once it has been read.
        """
        if why_not := move(*by):
            self.say(why_not)
        elif self.playback.is_recording:
            self.show_answer()
        else:
            self.show()

    # --- keys that watch, start, change or stop runs ---

    async def action_open(self) -> None:
        """Watch the run under the cursor on all screens. For a job without ddpmon, ask whether to attach to it."""
        listed = self._run_under_cursor()
        if listed is not None and listed.pid is not None:
            self.launching.attach(listed)
            return
        other_run = self.watched.other_run(listed)
        if other_run is None:
            await self.action_go(ViewName.WORLD)
        elif other_run != self.watched.opening:
            self.in_background(self.watch_run(other_run))

    async def watch_run(self, run: Run) -> None:
        """Watch a run on all screens from now on.

        Keys work while the run is being opened. If the user switches to another screen meanwhile, the dashboard stays
        there.
        """
        asked_on = self.view_name
        self.call_later(self.show)  # shows that the run is being opened
        try:
            if not await self.watched.open(run):
                return
        except DdpmonError as error:
            self.say(str(error))
            return
        self._output.of(None)
        if self.view_name is asked_on:
            await self.action_go(ViewName.WORLD)
        else:
            self.show_answer()


def watch(app: DdpmonApp) -> Outcome:
    """Show the dashboard until the user leaves or the terminal is closed. Return the state of the run at that time."""
    gc.freeze()  # excludes the imported modules from garbage collection between frames

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, app.leave)
        await app.run_async()

    asyncio.run(run())
    return app.watched.outcome
