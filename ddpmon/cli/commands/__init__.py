"""The commands of ddpmon. Their files, in this folder, are imported only when one of their commands is needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

import click

_COMMANDS_OF = {
    "attaching": ("attach", "detach"),
    "bundling": ("bundle",),
    "checking": ("status",),
    "comparing": ("diff",),
    "completing": ("completion",),
    "configuring": ("config",),
    "examining": ("doctor",),
    "exporting": ("export",),
    "far": ("_relay", "_there"),
    "helping": ("help",),
    "keeping": ("prune", "rename", "rm"),
    "launching": ("exec", "key", "run"),
    "metrics": ("metrics",),
    "profiling": ("profile",),
    "publishing": ("publish",),
    "replaying": ("demo", "replay"),
    "snapshotting": ("snapshot",),
    "stacking": ("stack",),
    "stopping": ("stop",),
    "viewing": ("logs", "ls", "report"),
}
"""The names of the commands in each file."""
_FILE_OF = dict(sorted((name, file) for file, names in _COMMANDS_OF.items() for name in names))


class Commands(Mapping[str, click.Command]):
    """All commands by their names. Looking a command up imports its file."""

    def __getitem__(self, name: str) -> click.Command:
        found = vars(importlib.import_module(f"{__name__}.{_FILE_OF[name]}")).values()
        return next(each for each in found if isinstance(each, click.Command) and each.name == name)

    def __iter__(self) -> Iterator[str]:
        return iter(_FILE_OF)

    def __len__(self) -> int:
        return len(_FILE_OF)
