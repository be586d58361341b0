"""The interface of the app for the objects that carry out keys: they show messages, dialogs and frames through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from textual.screen import ModalScreen

from ddpmon.tui.palette import Palette

Reply = TypeVar("Reply")
Then = Callable[[Reply | None], None] | Callable[[Reply | None], Awaitable[None]]


class Dashboard(Protocol):
    """Interface of the app for the objects that carry out keys."""

    @property
    def palette(self) -> Palette:
        """Return the colours of the current theme."""

    def say(self, text: str) -> None:
        """Show a message in the key bar for a few seconds; "" removes the current one."""

    def show_answer(self) -> None:
        """Draw the screen now, and again as soon as the run's source has answered."""

    def ask(self, dialog: ModalScreen[Reply], then: Then[Reply]) -> None:
        """Open a dialog over the screen. `then` receives the user's answer, or None if the user left the dialog without
        an answer.
        """

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that takes a while, without blocking the screen."""

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text to the terminal's clipboard, if the terminal supports that."""

    def leave(self) -> None:
        """End the dashboard; the run is not affected."""
