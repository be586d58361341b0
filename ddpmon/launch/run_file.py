"""The supervisor's copy of run.json. Changes are made in memory, and written as soon as the disk has space.

Before the run starts, `run.json.reserve` is created beside run.json. It reserves the space to record how the run ended,
in case the disk is full by then.
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
"""Bytes by which run.json may grow after its space was reserved, with pids, times and the reason for a failure."""


class RunFile:
    """The supervisor's copy of its run. Writing it overwrites other processes' changes of run.json, except a rename."""

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        self.run = run
        self._say = say
        self._behind = False
        """True if run.json lacks a change of `run`."""
        self.trouble = ""
        """Reason why the last attempt to write run.json failed; "" if it succeeded."""
        self._folder = runs.run_dir(run.id)
        self._reserve = self._folder / "run.json.reserve"

    def reserve_space(self) -> None:
        """Reserve disk space for recording how the run ended. Raise OSError if the disk is full."""
        size = len(runs.text(self.run).encode()) + GROWTH_BYTES
        try:
            with open(os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(bytes(size))
        except OSError:
            self._reserve.unlink(missing_ok=True)
            raise

    def change_fields(self, **changes: Any) -> None:
        """Change fields and write run.json. If that fails, `write_pending` tries again later."""
        self.run = dataclasses.replace(self.run, **changes)
        self._behind = True
        self.write_pending()

    def change_for_sure(self, **changes: Any) -> None:
        """Change fields and write run.json, in the reserved space if the disk is full. Raise OSError if that fails."""
        self.change_fields(**changes)
        if self._behind:
            with open(os.open(self._reserve, os.O_WRONLY), "wb") as file:
                file.write(runs.text(self.run).encode())
                file.truncate()
            self._reserve.replace(self._folder / "run.json")
            self._behind, self.trouble = False, ""

    def write_final(self, **changes: Any) -> None:
        """Change fields for the last time, in the reserved space if necessary, and delete the reserve."""
        with contextlib.suppress(OSError):  # If this fails, `write_pending` tries again later.
            self.change_for_sure(**changes)
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)

    def write_pending(self) -> bool:
        """Write the changes that are not on the disk yet; return whether run.json has all of them now."""
        if not self._behind:
            return True
        mine = {field.name: getattr(self.run, field.name) for field in dataclasses.fields(Run)}
        del mine["id"], mine["name"]
        try:
            try:
                name = runs.update(self.run.id, **mine).name
            except RunNotFoundError:  # Somebody damaged run.json.
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
    def folder_exists(self) -> bool:
        """Return whether the run's folder still exists."""
        return os.path.isdir(self._folder)
