"""`ddpmon bundle`: packs a run into one file to attach to an issue. Everything that looks like a secret is hidden.

The file contains a folder like those in which ddpmon stores runs, so that the recipient can replay the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ddpmon.doctor import examine
from ddpmon.errors import DdpmonError
from ddpmon.export import report
from ddpmon.plain import plain
from ddpmon.recording.recording import recording_path
from ddpmon.recording.redacted_copy import write_redacted_copy
from ddpmon.redaction import Redactor, secret_values
from ddpmon.runs import Run, run_dir
from ddpmon.runs.rotated_logs import tail
from ddpmon.runs.secrets_file import with_secrets

LOG_BYTES = 64 * 1024
"""Number of bytes at the end of each log that are put into a bundle."""
MAX_RECORDING_BYTES = 100_000_000
"""Largest recording, in bytes, that is put into a bundle without `--whole`, so that the bundle is small enough for an
issue."""
MAX_LOG_LINE_CHARS = 2_000
"""Longest line of a log, in characters. Longer lines are cut."""
MAX_LOGS = 100
"""Largest number of logs in a bundle. If there are more, the logs that were written last are put into the bundle."""


class Part(NamedTuple):
    """An entry of a bundle's list of contents: a part of the bundle, or a part that is missing from it."""

    name: str
    size_bytes: int | None
    """Size in bytes; None if the part is missing."""
    text: str


def write_bundle(run: Run, path: Path, *, whole: bool = False) -> list[Part]:
    """Write a run's bundle, and return the list of its contents. Raise OSError if the file cannot be written.

    Args:
        run: The run.
        path: The file.
        whole: True to include a recording of any size.

    """
    with (
        open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file,
        tempfile.TemporaryDirectory(prefix="ddpmon-bundle-") as scratch,
    ):
        folder = Path(scratch) / run.id
        folder.mkdir(mode=0o700)
        parts = [*_parts(run, folder, Redactor(_secrets(run)), whole=whole)]
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            archive.add(folder, run.id, filter=_anonymous)
    return parts


def _secrets(run: Run) -> set[str]:
    """Return the passwords and tokens in the command and environment of the run, and in the environment of
    this shell.
    """
    with contextlib.suppress(DdpmonError):
        run = with_secrets(run)
    secrets = secret_values([*run.argv, *run.script_args, *run.on_alert], {**os.environ, **run.environment})
    return secrets | {url.partition("://")[2] for url in run.notify}


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o700 if entry.isdir() else 0o600
    return entry


def _parts(run: Run, folder: Path, redactor: Redactor, *, whole: bool) -> Iterator[Part]:
    def written(name: str, content: str, text: str) -> Part:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        return Part(name, target.stat().st_size, text)

    def as_json(content: object) -> str:
        return json.dumps(redactor.anything(content), indent=1, ensure_ascii=False)

    try:
        built = redactor.anything(report.build(run))
        yield written("report.txt", report.text(built), "the report")
        yield written("report.json", json.dumps(built, indent=1, ensure_ascii=False), "the report for programs")
    except DdpmonError as error:
        yield Part("report.txt", None, str(error))
    checks = [dataclasses.asdict(check) for check in examine(os.environ)]
    yield written("doctor.json", as_json(checks), "what works on this machine, as ddpmon doctor --json prints it")
    yield written("run.json", as_json(dataclasses.asdict(run)), "the command, its arguments and its variables")
    yield _recording(run, folder / "telemetry.db", redactor, whole=whole)
    logs = [log.relative_to(run_dir(run.id)) for log in _latest_logs(run)]
    sizes = [written(str(log), _end(run_dir(run.id) / log, redactor), "").size_bytes or 0 for log in logs]
    yield Part("logs/", sum(sizes), f"the last {LOG_BYTES >> 10} kB of each log ({len(logs)} of them)")


def _recording(run: Run, path: Path, redactor: Redactor, *, whole: bool) -> Part:
    """Write a copy of the recording, unless it is too large for an issue."""
    source = recording_path(run.id)
    size_bytes = source.stat().st_size if source.exists() else 0
    if size_bytes > MAX_RECORDING_BYTES and not whole:
        size, most = (f"{number / 1e6:,.0f} MB" for number in (size_bytes, MAX_RECORDING_BYTES))
        return Part(path.name, None, f"left out: it has {size}, more than {most}; with --whole it is included")
    try:
        write_redacted_copy(run, path, redactor)
    except (DdpmonError, sqlite3.Error) as error:
        path.unlink(missing_ok=True)
        return Part(path.name, None, str(error))
    return Part(path.name, path.stat().st_size, "the recording: steps, counters, events, findings, exceptions")


def _latest_logs(run: Run) -> list[Path]:
    found = [log for log in (run_dir(run.id) / "logs").rglob("*.log") if log.is_file() and not log.is_symlink()]
    return sorted(found, key=lambda log: log.stat().st_mtime)[-MAX_LOGS:]


def _end(log: Path, redactor: Redactor) -> str:
    """Return the last lines of a log, without a first line that may be cut off at its beginning."""
    text = redactor.hide_known(tail(log, LOG_BYTES))
    if log.stat().st_size > LOG_BYTES:
        text = text.partition("\n")[2]
    return "".join(f"{redactor.text(plain(line)[:MAX_LOG_LINE_CHARS])}\n" for line in text.splitlines())
