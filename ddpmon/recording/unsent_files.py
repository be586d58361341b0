"""Takes in the files that ranks left in the run's folder because no hub took their records before they ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from ddpmon.messages import Bye, Hello, WireError, decode_lenient
from ddpmon.messages.folder import MAX_TAIL_BYTES, TAIL_NAME, TAILS, unpack_tail
from ddpmon.runs import plain_file


class Tails:
    """The files of a run's ranks. Each goes through `take` as if the rank had sent it, and then away."""

    def __init__(self, run_dir: Path, take: Callable[[list[bytes]], None], report: Callable[[str], None]) -> None:
        """take: a connection's name and one frame. report: which file cannot be read, and why, once a file."""
        self._folder = run_dir / TAILS
        self._take = take
        self._report = report
        self._read_names: set[str] = set()

    def take_new(self) -> list[Path]:
        """Take what has come; returns the files that may go once that is recorded."""
        try:
            names = [entry.name for entry in os.scandir(self._folder)]
        except OSError:
            return []
        paths = []
        self._read_names &= set(names)
        for name in sorted(names):
            if name in self._read_names or name.endswith(".new"):
                continue
            self._read_names.add(name)
            trouble = self._read(name)
            if trouble:
                self._report(f"{TAILS}/{name} cannot be read: {trouble}")
            else:
                paths.append(self._folder / name)
        return paths

    def clear(self) -> None:
        """The run is over: remove the folder unless something is in it."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def _read(self, name: str) -> str:
        """Take one file; returns what is wrong with it, "" if nothing is."""
        path = self._folder / name
        named = TAIL_NAME.fullmatch(name)
        if not named:
            return "it is no file of a rank"
        try:
            if path.lstat().st_uid != os.getuid():
                return "it is no file of a rank"
            content = plain_file.content(path, MAX_TAIL_BYTES)
        except OSError as error:
            return error.strerror or "it cannot be opened"
        frames, trouble = unpack_tail(content)
        connection = f"{TAILS}/{name}".encode()
        for number, frame in enumerate(frames):
            try:
                message, _ = decode_lenient(frame)
            except WireError as error:
                return f"frame {number + 1} of {len(frames)} is no message ({error})"
            if (message.rank, message.pid) != (int(named[1]), int(named[2])):
                return f"frame {number + 1} of {len(frames)} is another rank's"
            if (number == 0) != isinstance(message, Hello) or (isinstance(message, Bye) and number + 1 < len(frames)):
                return f"frame {number + 1} of {len(frames)} is out of order"
            self._take([connection, frame])
        return trouble
