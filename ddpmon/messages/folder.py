"""Files that a rank leaves in its run's folder for a hub that cannot hear it: their places and their form.

stacks/PID.stack   armed for STACK_SIGNAL: the Python stack of the thread that gets the signal, written when it comes
stacks/PID.json    the `Places` with which to read it, and the thread to signal
tail/RANK-PID      what the hub had not acknowledged when the rank ended: a Hello, frames, a Bye
logs/ranks/exec/   what it printed, where a launcher other than ours started it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

STACKS = "stacks"
TAILS = "tail"
EXEC = "exec"
TAIL_NAME = re.compile(r"(\d{1,6})-(\d{1,7})")
MAX_TAIL_BYTES = 64 << 20
MAX_FRAME_BYTES = 1 << 20

IMPORTLIB = "<frozen importlib"
"""Beginning of the files of Python's own import machinery, which Python leaves out of tracebacks too."""

_MAGIC = b"ddpmon tail 1\n"
_LENGTH = 4


def pack_tail(frames: Iterable[bytes]) -> bytes:
    """Frames as a file, each after its length."""
    return _MAGIC + b"".join(len(frame).to_bytes(_LENGTH, "big") + frame for frame in frames)


def unpack_tail(content: bytes) -> tuple[list[bytes], str]:
    """Frames of a file, up to where it makes no sense any more, and what is wrong there; "" if nothing is."""
    if not content.startswith(_MAGIC):
        return [], "the file does not begin like a file of a rank"
    frames: list[bytes] = []
    at = len(_MAGIC)
    while at < len(content):
        length = int.from_bytes(content[at : at + _LENGTH], "big")
        frame = content[at + _LENGTH : at + _LENGTH + length]
        if not 0 < length <= MAX_FRAME_BYTES or len(frame) < length:
            return frames, f"the file is damaged or incomplete from byte {at:,} on"
        frames.append(frame)
        at += _LENGTH + length
    return frames, ""


class Places(msgspec.Struct, frozen=True):
    """Folders of a rank by which the files of its stack are named. Each ends in a separator."""

    ours: str
    """ddpmon's own: its frames are left out."""
    libraries: Sequence[str]
    """Folders of the standard library, and of packages installed beside torch."""
    folders: Sequence[str]
    """Folders of sys.path: a file is named as seen from the longest of them that holds it."""
    thread: int = 0
    """The training thread, as the kernel counts threads; 0: the main one."""

    def place(self, file: str) -> tuple[str, bool]:
        """A file's name as people know it, and whether it belongs to a library."""
        if file.startswith("<"):
            return file, True
        is_library = file.startswith(tuple(self.libraries)) or "/site-packages/" in file or "/dist-packages/" in file
        inside = max((folder for folder in self.folders if file.startswith(folder)), key=len, default="")
        return file.removeprefix(inside), is_library
