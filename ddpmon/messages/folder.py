"""Names and formats of the files that a rank writes to its run's folder, for a hub that gets no messages from the rank.

stacks/PID.stack   Python stack of the thread that received STACK_SIGNAL, written when the signal arrives
stacks/PID.json    the `Places` that are needed to read this stack, and the thread to signal
tail/RANK-PID      messages that the hub had not acknowledged when the rank ended: a Hello, frames, a Bye
logs/ranks/exec/   output of the rank, where a launcher other than ddpmon's started it
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
MAX_FOLDER_FRAME_BYTES = 1 << 20

IMPORTLIB = "<frozen importlib"
"""Prefix of the file names of Python's import machinery, whose frames Python omits from tracebacks too."""

_MAGIC = b"ddpmon tail 1\n"
_LENGTH = 4


def pack_tail(frames: Iterable[bytes]) -> bytes:
    """Return the content of a tail file: each frame, preceded by its length."""
    return _MAGIC + b"".join(len(frame).to_bytes(_LENGTH, "big") + frame for frame in frames)


def unpack_tail(content: bytes) -> tuple[list[bytes], str]:
    """Return the frames of a tail file up to its first damaged byte, and a text that describes the damage, or ""."""
    if not content.startswith(_MAGIC):
        return [], "the file does not begin like a file of a rank"
    frames: list[bytes] = []
    at = len(_MAGIC)
    while at < len(content):
        length = int.from_bytes(content[at : at + _LENGTH], "big")
        frame = content[at + _LENGTH : at + _LENGTH + length]
        if not 0 < length <= MAX_FOLDER_FRAME_BYTES or len(frame) < length:
            return frames, f"the file is damaged or incomplete from byte {at:,} on"
        frames.append(frame)
        at += _LENGTH + length
    return frames, ""


class Places(msgspec.Struct, frozen=True):
    """Folders that are needed to name the files in a rank's stack. The path of each folder ends in a separator."""

    ours: str
    """Folder of ddpmon. Frames in its files are left out of stacks."""
    libraries: Sequence[str]
    """Folders of the standard library, and of packages installed beside torch."""
    folders: Sequence[str]
    """Folders of sys.path. A file's name is relative to the longest of these folders that contains the file."""
    thread: int = 0
    """Kernel thread id of the training thread, or 0 if the main thread trains."""

    def relative_name(self, file: str) -> tuple[str, bool]:
        """Return a file's name relative to its folder of sys.path, and whether the file belongs to a library."""
        if file.startswith("<"):
            return file, True
        is_library = file.startswith(tuple(self.libraries)) or "/site-packages/" in file or "/dist-packages/" in file
        inside = max((folder for folder in self.folders if file.startswith(folder)), key=len, default="")
        return file.removeprefix(inside), is_library
