"""secrets.json: stores the secrets that run.json hides, for commands that need them. Standard library only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from ddpmon.errors import RunNotFoundError
from ddpmon.runs import json_files
from ddpmon.runs.folders import run_dir
from ddpmon.runs.private_files import write
from ddpmon.runs.run import Run


@dataclass(frozen=True)
class _Secrets:
    """Contents of secrets.json: the fields of a run that may contain secrets, with their real values."""

    argv: list[str]
    script_args: list[str]
    environment: dict[str, str]
    on_alert: list[str] = field(default_factory=list)
    notify: list[str] = field(default_factory=list)


def alerts(run: Run) -> tuple[list[str], list[str]]:
    """Return the program to run and the services to notify when a run needs attention, with their secrets.

    Both are empty if none were requested, or if their secrets are no longer stored.
    """
    if not (run.on_alert or run.notify):
        return [], []
    try:
        whole = with_secrets(run)
    except RunNotFoundError:
        return [], []
    return whole.on_alert, whole.notify


def with_secrets(run: Run) -> Run:
    """Return a run with the values that its run.json hides. Raise RunNotFoundError if they are no longer stored."""
    if not run.hides:
        return run
    path = run_dir(run.id) / "secrets.json"
    try:
        secrets = json_files.build(_Secrets, json_files.read(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RunNotFoundError(
            f"ddpmon cannot read the stored passwords of {run.name} ({run.id}): {path}: {why}"
        ) from None
    return dataclasses.replace(run, **dataclasses.asdict(secrets))


def without_secrets(run: Run) -> Run:
    """Return a run with its secrets hidden, as run.json may show it."""
    from ddpmon.redaction import hidden_url, redact_variables, redact_words

    shown = dataclasses.replace(
        run,
        argv=redact_words(run.argv),
        script_args=redact_words(run.script_args),
        on_alert=redact_words(run.on_alert),
        notify=[hidden_url(url) for url in run.notify],
        environment=redact_variables(run.environment),
    )
    return dataclasses.replace(shown, hides=shown != run)


def keep_secrets(run: Run) -> None:
    """Write the values that run.json hides into secrets.json."""
    write(run_dir(run.id) / "secrets.json", {name: getattr(run, name) for name in _Secrets.__annotations__})
