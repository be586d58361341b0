"""Stores the last launch in `$DDPMON_HOME/launch.json`, readable only for its user, to prefill the launch form.

Secrets are not stored: the form asks for them again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from ddpmon import runs
from ddpmon.errors import UnsafePathError, UsageError
from ddpmon.launch.prepare import Asked
from ddpmon.launch.spec import current_folder
from ddpmon.redaction import HIDDEN, hidden_name, redact_words
from ddpmon.runs import private_files

_LONGEST = 100_000
"""Largest size of the file in bytes. A larger file was not written by ddpmon, and is ignored."""


@dataclass(frozen=True)
class LaunchForm:
    """The fields of the launch form."""

    script: str = ""
    """A file, or `-m` and a module."""
    arguments: str = ""
    """Arguments of the script, split as a shell would split them."""
    processes: str = "1"
    name: str = ""
    """Name of the run; if empty, the run is named after the script."""
    environment: str = ""
    """Variables as KEY=VALUE, separated by spaces."""
    folder: str = ""
    """Folder in which the script runs; if empty, the folder in which ddpmon was started."""

    def requested_run(self) -> Asked:
        """Return the run that the fields describe. Raise UsageError if they do not describe one."""
        script = self.script.strip()
        if not script:
            raise UsageError("give a script: a file, or -m and the name of a module")
        module = script.startswith("-m ")
        arguments, environment = (
            _split_words("arguments", self.arguments),
            _split_words("environment", self.environment),
        )
        if name := hidden_name([*arguments, *environment]):
            raise UsageError(f"{name} {HIDDEN}: ddpmon does not store secrets, so type this value again")
        return Asked(
            script.removeprefix("-m ").strip() if module else os.path.expanduser(script),
            arguments,
            module,
            self.processes.strip() or "1",
            self.name.strip() or None,
            _absolute_path(os.path.expanduser(self.folder.strip())) if self.folder.strip() else None,
            dict(_name_and_value(word) for word in environment),
        )


def form_for(options: Asked) -> LaunchForm:
    """Return the form's fields as a person would type them for this launch."""
    return LaunchForm(
        f"-m {options.script}" if options.module else options.script,
        shlex.join(options.args),
        options.nproc,
        options.name or "",
        shlex.join(f"{name}={value}" for name, value in options.environment.items()),
        options.cwd or current_folder(),
    )


def _split_words(field: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{field}: {str(error).lower()}") from None


def _absolute_path(path: str) -> str:
    return os.path.normpath(path if os.path.isabs(path) else os.path.join(current_folder(), path))


def _name_and_value(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"environment: {word!r} is not of the form KEY=VALUE")
    return name, value


def _without_secrets(started: LaunchForm) -> LaunchForm:
    return replace(
        started, arguments=_redacted_words(started.arguments), environment=_redacted_words(started.environment)
    )


def _redacted_words(text: str) -> str:
    """Return the text with its secrets hidden; without secrets, return it exactly as it was typed."""
    words = shlex.split(text)
    redacted = redact_words(words)
    return text if redacted == words else shlex.join(redacted)


def load_form() -> LaunchForm:
    """Return the form of the last launch, or empty fields if the file is missing or unreadable."""
    try:
        if _form_path().stat().st_size > _LONGEST:
            return LaunchForm()
        raw = json.loads(_form_path().read_text())
    except (OSError, ValueError, RecursionError):
        return LaunchForm()
    if not isinstance(raw, dict):
        return LaunchForm()
    names = {each.name for each in fields(LaunchForm)}
    texts = {
        name: value
        for name, value in raw.items()
        if name in names and isinstance(value, str) and (value.isprintable() or not value)
    }
    return LaunchForm(**texts)


def store_form(started: LaunchForm) -> None:
    """Store a launch without its secrets. Errors of the disk are ignored, because the run has started anyway."""
    with contextlib.suppress(OSError, UnsafePathError):
        private_files.write(runs.private_dir(runs.home()) / _form_path().name, asdict(_without_secrets(started)))


def _form_path() -> Path:
    return runs.home() / "launch.json"
