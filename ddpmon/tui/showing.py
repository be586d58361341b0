"""The dashboard's screens, colours and frames. The dashboard shows the data of a source, and has none of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

from rich.console import RenderableType
from textual.app import App
from textual.screen import ModalScreen, Screen
from textual.theme import Theme
from textual.timer import Timer

from ddpmon import config
from ddpmon.glyphs import in_ascii, started_with
from ddpmon.messages import ViewRequest
from ddpmon.source import Source
from ddpmon.source.place import Here, Place
from ddpmon.source.run_list import Listed
from ddpmon.tui import terminal_diff, workarounds
from ddpmon.tui.dashboard import Reply, Then
from ddpmon.tui.filters import Filter
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import plain_text
from ddpmon.tui.notify import Worsening, notification_sequence
from ddpmon.tui.palette import THEMES, Palette, first_theme, own_themes, pick_palette
from ddpmon.tui.preferences import Preferences
from ddpmon.tui.screens.table import pane_of, screens_by_name
from ddpmon.tui.screens.view import View
from ddpmon.tui.stopping import Stopping
from ddpmon.tui.views import ViewName
from ddpmon.tui.watched import Watched
from ddpmon.tui.widgets.inspection import Inspection
from ddpmon.tui.widgets.loglist import LogList
from ddpmon.tui.widgets.rankdetail import RankDetail
from ddpmon.tui.widgets.runlist import RunList

SCREEN_FRAME_S = 0.5
FIRST_FRAME_S = 0.05
"""Seconds between frames before the first snapshot, so that the screen fills as soon as a snapshot arrives."""
SNAPSHOT_POLL_S = 0.02
POLLS = 50
"""Interval in seconds and number of polls of the source after a key that sent it a request."""
SWITCH_S = 0.01
"""Seconds for which Textual may hold back a new screen's updates. The time is short, because our screens are complete
at once."""
NOTICE_FRAMES = 6
"""Number of frames for which a short message stays in the key bar."""
CHARACTERS_PER_FRAME = 6
"""A long message stays for one frame per this number of characters: at 2 frames a second, 12 characters a second."""


class Notice:
    """The message in the key bar: the result of the last key, or news from the source."""

    def __init__(self) -> None:
        self._text = ""
        self._frames_left = 0

    def say(self, text: str) -> None:
        """Show a message for a few frames; "" removes the last one."""
        self._text, self._frames_left = text, max(NOTICE_FRAMES, len(text) // CHARACTERS_PER_FRAME)

    def next_frame(self) -> None:
        """Reduce the number of frames for which the message stays."""
        if self._frames_left:
            self._frames_left -= 1

    @property
    def text(self) -> str:
        """Return the message; "" if there is none."""
        return self._text if self._frames_left else ""


class ShowingApp(App[None]):
    """Reads a snapshot from its source twice a second and shows it.

    Args:
        source: The source of the run that is shown first.
        readonly: If true, the run cannot be stopped from this dashboard.
        owns_run: If true, the command that started the run also started this viewer. Ctrl-C could then mean detach or
            stop, so the viewer asks; otherwise Ctrl-C only leaves.
        notify: The value of `--notify`.
        place: The machine whose runs are shown; None is this machine.
        preferences: Choices saved by earlier dashboards, which this one updates; None saves no choices.

    """

    TITLE = "ddpmon"
    ALLOW_SELECT = False
    DEFAULT_MODE = ViewName.WORLD

    def __init__(
        self,
        source: Source,
        *,
        readonly: bool = False,
        owns_run: bool = False,
        notify: str = "off",
        place: Place | None = None,
        preferences: Preferences | None = None,
    ) -> None:
        # With NO_COLOR, Textual draws in greys, unless it may use the terminal's own colours. Then it uses no colours.
        self.DEFAULT_MODE = ViewName(config.current().get("first_screen"))  # type: ignore[misc]  # Textual reads this
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.animation_level = "none"
        self._ascii_only = in_ascii(started_with())
        for theme in (*THEMES, *(own for own, _ in own_themes().values())):
            self.register_theme(theme)
        few = self.no_color or self.console.color_system in {None, "standard", "windows"}
        self._preferences = preferences
        before = {} if preferences is None else preferences.values
        remembered = last if (last := before.get("theme")) in list(self.available_themes) else None
        self.theme = first_theme(self.theme, os.environ, remembered, few_colours=few)
        # Textual read the stylesheet's variables before these themes were registered.
        self.stylesheet.set_variables(self.get_css_variables())
        self.readonly = readonly
        self.filter: Filter | None = None
        self.watched = Watched(source, place or Here())
        self.playback = self.watched.playback
        self.views = screens_by_name(self.watched.place, self.show_answer)
        for name, view in self.views.items():
            self.add_mode(name, partial(_same, view))
            for pane in view.panes:
                pane.restore({key.removeprefix(f"{name}."): each for key, each in before.items()})
        self._inspection = pane_of(self.views, Inspection)
        self._output = pane_of(self.views, LogList)
        self._runs = pane_of(self.views, RunList)
        self.stopping = Stopping(self, self.watched, self._run_under_cursor, readonly=readonly, owns_run=owns_run)
        self._notice = Notice()
        self._notify = notify
        self._worsening = Worsening(begun=owns_run)
        self._answer: Timer | None = None
        """The timer that polls the source for an answer; None before the first question."""
        self.make_parts()

    def make_parts(self) -> None:
        """Make the objects that carry out keys."""

    @property
    def view_name(self) -> ViewName:
        """Return the name of the current screen, below any dialog."""
        return ViewName(self.current_mode)

    @property
    def view(self) -> View:
        """Return the current screen, below any dialog."""
        return self.views[self.view_name]

    @property
    def view_request(self) -> ViewRequest:
        """Return the parts of a snapshot that the current screen shows."""
        return self.view.view_request

    def _run_under_cursor(self) -> Listed | None:
        return self._runs.chosen_run() if self.view_name is ViewName.RUNS else None

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, lambda _: self.show())
        self.tick()
        self._first = self.set_interval(FIRST_FRAME_S, self._await_first)
        self.set_interval(SCREEN_FRAME_S, self.tick)

    def on_unmount(self) -> None:
        self._remember()
        self.watched.close()

    def _await_first(self) -> None:
        if self.playback.newest is None:
            self.tick()
        else:
            self._first.stop()

    def tick(self) -> None:
        """Show one frame: read the newest snapshot, notify the user, and draw."""
        if not self.is_headless and workarounds.terminal_gone():
            self.leave()
            return
        source = self.playback.source
        source.request_view(self.view_request)
        self.playback.take_snapshot()
        self._notify_outside()
        self._notice.next_frame()
        if news := source.news():
            self._notice.say(plain_text(news))
        self._remember()
        self.show()

    def _remember(self) -> None:
        """Save the choices that the user changed since the last frame, for the next dashboard."""
        if self._preferences is None:
            return
        chosen = {
            f"{name}.{key}": each
            for name, view in self.views.items()
            for pane in view.panes
            for key, each in pane.preferences.items()
        }
        self._preferences.update(chosen | {"theme": self.theme})
        if self._preferences.trouble:
            self._notice.say(plain_text(self._preferences.trouble))
            self._preferences.trouble = ""

    def show_answer(self) -> None:
        """Draw the screen now, and again as soon as the run's source has answered."""
        self.tick()
        self._await_answer()

    def _await_answer(self) -> None:
        if self._answer is not None:
            self._answer.stop()
        self._answer = self.set_interval(SNAPSHOT_POLL_S, self._poll_source, repeat=POLLS)

    def _request_view_again(self) -> None:
        """Request the current screen's parts again after its first frame, because some requests depend on that frame's
        content.
        """
        self.playback.source.request_view(self.view_request)
        if self.view_request != ViewRequest():
            self._await_answer()

    def _poll_source(self) -> None:
        if self.playback.has_new_snapshot:
            self.tick()

    def _notify_outside(self) -> None:
        """Ring the bell or notify, between two frames, because all output goes through the driver's one queue."""
        newest = self.playback.newest
        if self._notify == "off" or newest is None or not self._worsening.is_worth_notifying(newest, time.monotonic()):
            return
        if self._driver is not None:
            self._driver.write(notification_sequence(self._notify, newest, os.environ))

    def show(self) -> None:
        readers = [pane for pane in self.view.panes if isinstance(pane, LogList | Inspection | RankDetail)]
        if any(pane.display for pane in readers) and self.playback.held is None:
            log = self.playback.source.logs()
            log.poll()
            for pane in readers:
                pane.printed = log
        self.view.show(self.frame, self.palette)

    @property
    def frame(self) -> Frame:
        """Return the current frame."""
        playback, source = self.playback, self.playback.source
        silent = source.silent_for()
        return Frame(
            snapshot=playback.shown,
            silent_s=float(int(silent)) if silent > 1 else 0.0,
            refused=source.refused,
            behind_s=playback.behind_s,
            can_stop=self.stopping.can_stop,
            stopping=self.watched.stop_asked(),
            readonly=self.readonly,
            notice=self._notice.text or self.watched.notice,
            view=self.view_name,
            filter=self.filter,
            series=None if playback.newest is None else playback.newest.series,
            cursor=playback.cursor,
            where=self.watched.place.name,
            trouble=source.trouble(),
        )

    @property
    def current_theme(self) -> Theme:
        # Textual builds a new dictionary of all themes for each access, hundreds of times in a frame.
        return self._registered_themes.get(self.theme) or super().current_theme

    @property
    def palette(self) -> Palette:
        """Return the colours of the current theme."""
        theme = self.current_theme
        return pick_palette(theme, ansi=self.native_ansi_color, no_color=self.no_color)

    def say(self, text: str) -> None:
        """Show a message in the key bar for a few seconds; "" removes the current one."""
        self._notice.say(text)
        self.show()

    def ask(self, dialog: ModalScreen[Reply], then: Then[Reply]) -> None:
        """Open a dialog over the screen. `then` receives the user's answer, or None if the user left the dialog without
        an answer.
        """
        self.push_screen(dialog, then)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that takes a while, without blocking the screen."""
        self.run_worker(work)

    def delay_update(self, delay: float = SWITCH_S) -> None:
        """Hide the updates between two screens for a shorter time than Textual would."""
        super().delay_update(min(delay, SWITCH_S))

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, terminal_diff.smaller_update(renderable, ascii_only=self._ascii_only))

    def leave(self) -> None:
        """End the dashboard; the run is not affected."""
        if not self.is_headless and workarounds.terminal_gone():
            workarounds.let_go_of_terminal()
        self.exit()


def _same(view: View) -> View:
    return view
