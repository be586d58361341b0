"""The line of words that stands in the key bar for a while."""

from __future__ import annotations

SHOWN_FRAMES = 6


class Notice:
    """Result of the last key, or a line from the source."""

    def __init__(self) -> None:
        self._text = ""
        self._frames_left = 0

    def say(self, text: str) -> None:
        """Show a text for a few frames; "": take the last one away."""
        self._text, self._frames_left = text, SHOWN_FRAMES

    def next_frame(self) -> None:
        """A frame has passed."""
        if self._frames_left:
            self._frames_left -= 1

    @property
    def text(self) -> str:
        """Return what is to be shown; "": nothing."""
        return self._text if self._frames_left else ""
