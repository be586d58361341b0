"""Saves choices that the user made in the dashboard (sort, chart, marks, theme) for the next dashboard."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ddpmon import runs
from ddpmon.errors import UnsafePathError
from ddpmon.runs import plain_file, private_files

PREFERENCES_FILE = "preferences.json"
MAX_PREFERENCES_BYTES = 100_000
Values = Mapping[str, object]


def saved_choices() -> tuple[dict[str, object], str]:
    """Return the saved choices by name, and a message if the file is damaged."""
    path = runs.home() / PREFERENCES_FILE
    try:
        values = json.loads(plain_file.content(path, MAX_PREFERENCES_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return {}, ""
    except (OSError, ValueError, RecursionError):
        values = None
    return (values, "") if isinstance(values, dict) else ({}, f"{path} is damaged: your remembered choices are ignored")


class Preferences:
    """Saves choices that the user changes in this dashboard. Its methods never raise."""

    def __init__(self) -> None:
        try:
            self.values, self.trouble = saved_choices()
        except UnsafePathError as error:
            self.values, self.trouble = {}, str(error)
        self._now: dict[str, object] | None = None
        """The choices by name at the last frame; None before the first frame."""

    def update(self, now: Mapping[str, object]) -> None:
        """Save the choices that differ from those at the last frame."""
        changed = {} if self._now is None else {key: each for key, each in now.items() if self._now.get(key) != each}
        self._now = dict(now)
        if not changed:
            return
        try:
            self.values = saved_choices()[0] | changed  # another dashboard may have saved other choices
            private_files.write(runs.private_dir(runs.home()) / PREFERENCES_FILE, self.values)
        except (OSError, UnsafePathError) as error:
            self.trouble = f"cannot remember this choice: {error}"
