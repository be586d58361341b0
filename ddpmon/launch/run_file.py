"""run.json as its supervisor keeps it: what it knows is in memory, and reaches the disk when there is room.

Beside run.json lies `run.json.reserve`, made before the run is started: room for how the run ended, if the disk is full
by then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any

from ddpmon import runs
from ddpmon.errors import RunNotFoundError
from ddpmon.runs import Run

GROWTH_BYTES = 4096
"""Bytes by which run.json may grow after its room was reserved: pids, times, the reason of a failure."""


class RunFile:
    """The run that a supervisor supervises. Nothing that becomes of the file changes it, but another name."""

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        self.run = run
        self._say = say
        self._behind = False
        """True if run.json lacks something of `run`."""
        self.trouble = ""
        """Why it cannot be written, while it cannot."""
        self._folder = runs.run_dir(run.id)
        self._reserve = self._folder / "run.json.reserve"

    def reserve(self) -> None:
        """Take the room for the end. OSError if there is none."""
        size = len(runs.text(self.run).encode()) + GROWTH_BYTES
        try:
            with open(os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(bytes(size))
        except OSError:
            self._reserve.unlink(missing_ok=True)
            raise

    def change(self, **changes: Any) -> None:
        """Change fields; what cannot be written now is tried again by `write`."""
        self.run = dataclasses.replace(self.run, **changes)
        self._behind = True
        self.write()

    def change_for_sure(self, **changes: Any) -> None:
        """Change fields, in the reserved room where there is no other. OSError if not even that can be had."""
        self.change(**changes)
        if self._behind:
            with open(os.open(self._reserve, os.O_WRONLY), "wb") as file:
                file.write(runs.text(self.run).encode())
                file.truncate()
            self._reserve.replace(self._folder / "run.json")
            self._behind, self.trouble = False, ""

    def finish(self, **changes: Any) -> None:
        """Change fields for the last time, in the reserved room if need be, and give back what is left of it."""
        with contextlib.suppress(OSError):  # `write` goes on
            self.change_for_sure(**changes)
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)

    def write(self) -> bool:
        """Write what is not written yet; whether run.json holds everything now."""
        if not self._behind:
            return True
        mine = {field.name: getattr(self.run, field.name) for field in dataclasses.fields(Run)}
        del mine["id"], mine["name"]
        try:
            try:
                name = runs.update(self.run.id, **mine).name
            except RunNotFoundError:  # somebody damaged it
                name = self.run.name
                runs.save(self.run)
        except OSError as error:
            trouble = f"cannot write run.json: {error.strerror}"
            if trouble != self.trouble:
                self._say(f"{trouble}; trying again")
                self.trouble = trouble
            return False
        self.run = dataclasses.replace(self.run, name=name)
        self._behind, self.trouble = False, ""
        return True

    @property
    def wanted(self) -> bool:
        """Return whether the run's folder is still there to be written to."""
        return os.path.isdir(self._folder)
