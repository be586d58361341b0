"""Opens what lies in a run's folder, which may come from somebody else: a pipe there would hold a reader up for ever.

Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

NO_FILE = "this is not a regular file"


def descriptor(path: Path) -> int:
    """A plain file, open for reading. OSError where there is none, or a pipe, device, socket or link in its place."""
    check(path)  # first: opening a device may do something
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):  # another one came in its place just now
        os.close(file)
        raise OSError(errno.EINVAL, NO_FILE, str(path))
    return file


def opened(path: Path) -> BinaryIO:
    """The same as a file of Python's."""
    return open(descriptor(path), "rb")


def content(path: Path, most_bytes: int) -> bytes:
    """All of a plain file. OSError as from `opened`, and where it is larger than that."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"the file has {size:,} bytes, and the limit is {most_bytes:,}", str(path))
        return file.read(most_bytes)


def check(path: Path) -> None:
    """OSError where there is none, or something else in its place."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, NO_FILE, str(path))
