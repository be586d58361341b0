"""Reads what faulthandler wrote of a rank's main thread."""

from __future__ import annotations

import re

from ddpmon.messages.folder import IMPORTLIB, Places
from ddpmon.messages.vocabulary import MAX_FRAMES

FRAME_CHARS = 200
_HEADER = b"Stack (most recent call first):\n"
"""The first line of a thread's dump."""
_FRAME = re.compile(r'  File (?:"(.*)"|\?\?\?), line (\d{1,9}|\?\?\?) in (.*)')
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U00([0-9a-f]{6}))")


def frames(dump: bytes, places: Places) -> tuple[list[str], list[int]]:
    """Frames as a Stack holds them, innermost first, and the indices of those that are no library's.

    dump: of one thread. A last line without an end was not written yet.
    """
    stack_frames: list[str] = []
    own: list[int] = []
    for line in dump.decode("ascii", "replace").split("\n")[:-1]:
        match = _FRAME.fullmatch(line)
        if not match or len(stack_frames) == MAX_FRAMES:
            continue
        file, number, function = (_ESCAPE.sub(_character, part or "???") for part in match.groups())
        if file.startswith((places.ours, IMPORTLIB)):
            continue
        name, is_library = places.place(file)
        if not is_library:
            own.append(len(stack_frames))
        stack_frames.append(f"{name}:{number} {function}"[:FRAME_CHARS])
    return stack_frames, own


def is_one_dump(content: bytes) -> bool:
    """Return whether a file holds one dump of one thread, from its first line to the end of a line."""
    return content.startswith(_HEADER) and content.count(_HEADER) == 1 and content.endswith(b"\n")


def _character(escape: re.Match[str]) -> str:
    code = int(next(filter(None, escape.groups())), 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else "?"
