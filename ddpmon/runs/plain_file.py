"""Opens only regular files in a run's folder. The folder may come from another user, and a pipe would block the reader.

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
    """Open a regular file for reading and return its descriptor.

    Raises:
        OSError: There is no file, or a pipe, device, socket or symbolic link in its place.

    """
    check(path)  # Check before opening, because opening a device can have side effects.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):  # Another file replaced it at this moment.
        os.close(file)
        raise OSError(errno.EINVAL, NO_FILE, str(path))
    return file


def opened(path: Path) -> BinaryIO:
    """Open a regular file like `descriptor`, as a Python file."""
    return open(descriptor(path), "rb")


def content(path: Path, most_bytes: int) -> bytes:
    """Return all of a regular file. Raise OSError as `opened` does, and if the file is larger than `most_bytes`."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"the file has {size:,} bytes, and the limit is {most_bytes:,}", str(path))
        return file.read(most_bytes)


def check(path: Path) -> None:
    """Raise OSError unless the path is a regular file."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, NO_FILE, str(path))
