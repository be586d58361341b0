"""Parser of the stack dump that faulthandler wrote for a rank's main thread."""

from __future__ import annotations

import re

from ddpmon.messages.folder import IMPORTLIB, Places
from ddpmon.messages.vocabulary import MAX_FRAMES

FRAME_CHARS = 200
_HEADER = b"Stack (most recent call first):\n"
"""First line of the dump of a thread."""
_FRAME = re.compile(r'  File (?:"(.*)"|\?\?\?), line (\d{1,9}|\?\?\?) in (.*)')
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U00([0-9a-f]{6}))")


def parse_frames(dump: bytes, places: Places) -> tuple[list[str], list[int]]:
    """Parse the stack dump of one thread. Leave out frames of ddpmon and of Python's import machinery.

    Args:
        dump: text that faulthandler wrote. A last line without a line end is incomplete and ignored.
        places: folders of ddpmon and of libraries, to distinguish their files from the script's own.

    Returns:
        The frames in the form of `Stack.frames`, innermost first, and the indices of the frames outside libraries.

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
        name, is_library = places.relative_name(file)
        if not is_library:
            own.append(len(stack_frames))
        stack_frames.append(f"{name}:{number} {function}"[:FRAME_CHARS])
    return stack_frames, own


def is_one_dump(content: bytes) -> bool:
    """Return whether the content of a file is exactly one dump of one thread and ends with a complete line."""
    return content.startswith(_HEADER) and content.count(_HEADER) == 1 and content.endswith(b"\n")


def _character(escape: re.Match[str]) -> str:
    code = int(next(filter(None, escape.groups())), 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else "?"
