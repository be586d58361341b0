"""Text that came from a script or a log, made safe to print: it may hold whatever a terminal obeys."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.DOTALL)


def plain(line: str) -> str:
    """One line without colours, cursor movements and other control characters."""
    spaced = _ESCAPES.sub("", line).replace("\t", "    ")
    return "".join(letter if letter.isprintable() else "?" for letter in spaced)
