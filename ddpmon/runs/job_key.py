"""The key that authenticates the hubs of a job to each other when `--hub` is used: 64 hexadecimal digits.

Whoever has it can act as a hub of the job, even as its root hub. Standard library only.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from ddpmon.errors import DdpmonError, UsageError
from ddpmon.runs import json_files
from ddpmon.runs.folders import run_dir
from ddpmon.runs.private_files import write

HUB_KEY_VARIABLE = "DDPMON_HUB_KEY"
_KEY = re.compile(r"[0-9a-f]{64}")
_WANTED = "a key has 64 hexadecimal digits; ddpmon key FILE creates a valid key"
_MOST_BYTES = 1024


def make(path: Path) -> None:
    """Write a new key into a file that only this user can read. Raise DdpmonError if it exists or cannot be created."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{secrets.token_hex(32)}\n")
    except FileExistsError:
        raise DdpmonError(f"{path} already exists; give another name, or remove this file first") from None
    except OSError as error:
        raise DdpmonError(f"ddpmon cannot write {path}: {error.strerror}") from None


def given(file: Path | None, environment: Mapping[str, str]) -> str:
    """Return the key from a file, or else from the environment. Raise UsageError if it is missing or not private."""
    if file is not None:
        return _read(file)
    if HUB_KEY_VARIABLE not in environment:
        raise UsageError(
            f"--hub needs a key: create one with ddpmon key FILE, and give --hub-key FILE, or set {HUB_KEY_VARIABLE}"
        )
    return _checked(environment[HUB_KEY_VARIABLE], f"${HUB_KEY_VARIABLE}")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"--hub-key {path}: {error.strerror}; ddpmon key FILE creates a key file") from None
    if status.st_uid not in {os.geteuid(), 0}:  # Root may own it too: Kubernetes mounts secrets like this.
        raise UsageError(
            f"--hub-key {path} belongs to another user, who may know the key; make your own with ddpmon key FILE"
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(
            f"other users can read --hub-key {path} (mode {stat.S_IMODE(status.st_mode):04o}): run chmod 600 {path},"
            " and make a new key if somebody may have read this one"
        )
    return _checked(content.decode(errors="replace"), f"--hub-key {path}")


def _checked(text: str, where: str) -> str:
    if not _KEY.fullmatch(key := text.strip()):
        raise UsageError(f"{where} is not a key: {_WANTED}")
    return key


def keep(run_id: str, key: str) -> None:
    """Write the key into a run's folder, for the hubs of that run. Raise OSError if that is not possible."""
    write(run_dir(run_id) / "hub.key", key)


def kept(run_id: str) -> str | None:
    """Return the key of a run; None if there is none or it cannot be read."""
    try:
        content = json_files.read(run_dir(run_id) / "hub.key")
    except (OSError, ValueError):
        return None
    return content if isinstance(content, str) and _KEY.fullmatch(content) else None
