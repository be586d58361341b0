"""The key that profiles ranks: a form for the ranks and steps, then their operators side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ddpmon.analysis.processes import profile_text
from ddpmon.errors import UsageError
from ddpmon.messages import MAX_PROFILED_STEPS, ProfileView, ViewRequest
from ddpmon.tui.dashboard import Dashboard
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut_text, pane_title, paragraph
from ddpmon.tui.palette import Palette
from ddpmon.tui.playback import Playback
from ddpmon.tui.screens.form import Field, Form
from ddpmon.tui.screens.scrolled import Scrolled, Text

PROFILING_COST = (
    "Profiled steps take longer; means and findings leave them out. The profiler pauses the rank once, for up"
    " to 1 s, longer on a GPU."
)
Request = tuple[list[int], int]


def profile_form(palette: Palette) -> Form:
    """Return the form that asks which ranks to profile, and for how many steps. When the form closes, it
    returns both.
    """
    ranks = Field("ranks", "", PROFILING_COST, "the slow rank and one of the others; or as in 2,0")
    steps = Field("steps", "5", f"1 to {MAX_PROFILED_STEPS}. {PROFILING_COST}")

    def take(texts: dict[str, str]) -> Request:
        text = texts["steps"].strip()
        if not (text.isdecimal() and 0 < int(text) <= MAX_PROFILED_STEPS):
            raise UsageError(f"steps: give a number from 1 to {MAX_PROFILED_STEPS}")
        return profile_text.chosen_ranks(texts["ranks"]), int(text)

    return Form("Profile operators with torch.profiler", (ranks, steps), take, palette, "profile", "asking…")


class _Operators(Text):
    """The operators of a profile; until the profile arrives, a message that the dashboard is waiting for it."""

    def __init__(self, before: int) -> None:
        """Wait for a profile with a higher number than `before`, the number of the previous profile."""
        super().__init__()
        self._before = before

    def heading(self, width: int) -> list[Line]:
        return [pane_title("profile: operators, largest difference first", width)]

    def lines(self, frame: Frame, width: int) -> list[Line]:
        view = frame.snapshot.profile if frame.snapshot else None
        if view is None or view.number <= self._before:
            return [[(" waiting for the hub…", "info")]]
        return operator_lines(view, width)


def operator_lines(view: ProfileView, width: int) -> list[Line]:
    """Return a profile in lines of `width` columns."""
    lines = [line for one in profile_text.summary(view) for line in paragraph(one, width - 1)]
    if view.rows:
        heading, *rows = profile_text.table(view, len(view.rows), width - 2)
        lines += [[], [(f" {heading}", "muted")], *([(f" {cut_text(row, width - 2)}", "text")] for row in rows)]
    return lines


class ProfileScreen(Scrolled):
    """A profile that fills the screen."""


@dataclass
class Profiling:
    """The action of the key that profiles ranks."""

    dashboard: Dashboard
    playback: Playback
    readonly: bool
    frame: Callable[[], Frame]
    """Returns the current frame."""
    view_request: ViewRequest = field(default_factory=ViewRequest)
    """The part of a snapshot that a profile needs; empty while no profile is requested or shown."""
    _screen: ProfileScreen | None = None

    def ask_for_profile(self) -> None:
        """Ask which ranks to profile, or tell the user why none can be profiled."""
        if self.playback.cursor is not None:
            self.dashboard.say("a recording cannot be profiled")
        elif not self.playback.source.askable:
            self.dashboard.say("the run has ended: no rank can be profiled")
        elif self.playback.held is not None:
            self.dashboard.say("the screen is frozen: press space, then P")
        elif self.readonly:
            self.dashboard.say("read-only: cannot profile ranks from here")
        else:
            self.view_request = ViewRequest(profile=True)
            self.dashboard.ask(profile_form(self.dashboard.palette), self._asked)

    def _asked(self, request: object) -> None:
        if not isinstance(request, tuple):
            self.view_request = ViewRequest()
            return
        newest = self.playback.newest
        profile = newest.profile if newest is not None else None
        number = profile.number if profile is not None else 0
        if profile is not None and profile.waits:
            number -= 1  # show the profile that is already under way
        else:
            self.playback.source.ask(*request)
        self._screen = ProfileScreen(_Operators(number), self.dashboard.palette, self.frame())
        self.dashboard.ask(self._screen, self._left)
        self.dashboard.show_answer()

    def _left(self, _: None) -> None:
        self._screen, self.view_request = None, ViewRequest()

    def update_profile(self) -> None:
        """Update the profile on the screen, if one is shown."""
        if self._screen is not None and self._screen.is_mounted:
            self._screen.text.show(self.frame(), self.dashboard.palette)
