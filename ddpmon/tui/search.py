"""Searches lines of output for a regular expression."""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from ddpmon.exception_text import EXCEPTION

MAX_SEARCH_S = 0.5
"""CPU seconds that a search of all lines may take. Expressions such as (a+)+$ could take longer than anyone waits."""


class SearchError(ValueError):
    """A search that is impossible; the text is one line for the user."""


@dataclass(frozen=True)
class Search:
    """A regular expression and the text that names it on the screen. If the text is empty, there is no search."""

    text: str = ""
    pattern: re.Pattern[str] = re.compile("(?!)")

    def match_spans(self, line: str) -> list[tuple[int, int]]:
        """Return the start and the end of each match in a line."""
        return [match.span() for match in self.pattern.finditer(line) if match.group()]

    def matching_lines(self, lines: Iterable[str]) -> list[int]:
        """Return the indices of the lines that have a match.

        Raises:
            SearchError: The search takes too long.

        """

        def give_up(*_: object) -> None:
            raise SearchError("takes too long; search for something simpler")

        before = signal.signal(signal.SIGVTALRM, give_up)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SEARCH_S)
            return [place for place, line in enumerate(lines) if self.match_spans(line)]
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)


ERRORS = Search(
    "errors",
    re.compile(
        rf"(?:(?<=\]: )|^\s*){EXCEPTION.pattern}|Traceback \(most recent call last\)|Segmentation fault"
        r"|\b(?:ERROR|CRITICAL|FATAL|Fatal Python error)\b"
    ),
)
"""Search for error messages and the first lines of tracebacks in output."""


def parse_search(text: str) -> Search:
    """Parse a search. It is case-sensitive only if it contains a capital letter.

    Raises:
        SearchError: The text is not a valid regular expression.

    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about syntax whose meaning may change in a later Python
            return Search(text, re.compile(text, re.IGNORECASE if text == text.lower() else 0)) if text else Search()
    except (re.error, OverflowError, RecursionError) as error:
        where = f" at character {error.pos + 1}" if isinstance(error, re.error) and error.pos is not None else ""
        what = error.msg if isinstance(error, re.error) else str(error)
        raise SearchError(rf"invalid regular expression{where}: {what}; \ escapes a character, as in \(") from None
