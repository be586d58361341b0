"""Completes the path of a file or folder while it is typed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import islice

from textual.suggester import Suggester

_MAX_ENTRIES = 10_000
"""Entries of a folder that are read: more would take long on a network file system."""


class PathSuggester(Suggester):
    """Suggests the first path in the alphabet that begins with what was typed; a folder ends with a slash."""

    def __init__(self, suffix: str | None = None, folder: Callable[[], str] = str) -> None:
        """suffix: of the files that are wanted; None: folders alone. folder: where a relative path begins; "": here."""
        super().__init__(use_cache=False, case_sensitive=True)
        self._suffix, self._folder = suffix, folder

    async def get_suggestion(self, value: str) -> str | None:
        """Return the completed path, or None if nothing begins so."""
        return await asyncio.to_thread(self._complete, value, self._folder())

    def _complete(self, value: str, folder: str) -> str | None:
        above, slash, begun = value.rpartition("/")
        names = []
        try:
            with os.scandir(os.path.join(folder, above + slash) or ".") as entries:
                for entry in islice(entries, _MAX_ENTRIES):
                    if entry.name.startswith(begun) and (begun or not entry.name.startswith(".")):
                        if entry.is_dir():
                            names.append(f"{entry.name}/")
                        elif self._suffix is not None and entry.name.endswith(self._suffix):
                            names.append(entry.name)
        except (OSError, ValueError):  # there is no such folder, or it may not be read
            return None
        return f"{above}{slash}{min(names)}" if names else None
