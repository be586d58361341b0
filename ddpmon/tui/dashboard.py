"""The interface through which parts of the dashboard use the app: to say, to ask and to show something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from textual.screen import ModalScreen

from ddpmon.tui.palette import Palette

Reply = TypeVar("Reply")
Then = Callable[[Reply | None], None] | Callable[[Reply | None], Awaitable[None]]


class Dashboard(Protocol):
    """The app, as its parts see it."""

    @property
    def palette(self) -> Palette:
        """The colours of the current theme."""

    def say(self, text: str) -> None:
        """Show a line in the key bar for a few seconds; "": what was said last no more."""

    def show_answer(self) -> None:
        """Show a frame now, and one as soon as what the source was asked for is there."""

    def ask(self, dialog: ModalScreen[Reply], then: Then[Reply]) -> None:
        """Open a dialog over the screen; `then` takes its answer, None if it was left without one."""

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something that takes a while go on beside the screen."""

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text to the terminal's clipboard, where it takes any."""

    def leave(self) -> None:
        """End the dashboard; the run is not touched."""
