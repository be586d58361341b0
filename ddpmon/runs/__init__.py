"""Runs on disk: where a run's folder and sockets are, and what run.json says. Standard library only.

A run lives in `$DDPMON_HOME/runs/<id>/` (or `~/.local/state/ddpmon/runs/<id>/`), mode 0700:

    run.json       what was started, where, with what; written through `update` after its creation, by the supervisor
                   and by who renames the run
    secrets.json   the values that run.json hides, where there are any: for who starts it, and starts it again
    supervisor.lock, run.json.reserve
                   held by the supervisor for its life; room for how the run ends, on a disk that is full by then
    telemetry.db   the recording
    node.key       by which the hubs of other machines know this run's hub, where it runs on several
    logs/          each rank's stdout and stderr, and what supervisor and hub had to say
    report.json    the report, once the run has ended
    stacks/, tail/ what ranks leave there for a hub that cannot hear them; gone once it is taken in

Its sockets are in `/tmp/ddpmon-<uid>/<id>/` (or `$DDPMON_RUNTIME_DIR/<id>/`), because a socket's path holds at
most 107 bytes and `$XDG_RUNTIME_DIR` vanishes at logout.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpmon.errors import DdpmonError, RunNotFoundError, UsageError
from ddpmon.redaction import redact_variables, redact_words
from ddpmon.runs import reading
from ddpmon.runs.folders import (
    home,
    ingest_address,
    make_socket_dir,
    private_dir,
    remove_sockets,
    run_dir,
    runs_dir,
    socket_dir,
    view_address,
)
from ddpmon.runs.here import Place, Sight, here, is_local
from ddpmon.runs.ids import new_id, reserved
from ddpmon.runs.lock import held, hold, known_held
from ddpmon.runs.proc import boot_id, pid_namespace
from ddpmon.runs.process import Process
from ddpmon.runs.writing import write

__all__ = [
    "Place",
    "Process",
    "Sight",
    "boot_id",
    "held",
    "here",
    "hold",
    "home",
    "ingest_address",
    "is_local",
    "make_socket_dir",
    "new_id",
    "pid_namespace",
    "private_dir",
    "remove_sockets",
    "reserved",
    "run_dir",
    "runs_dir",
    "socket_dir",
    "view_address",
]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOCK_S = 2.0
YEAR_10000 = 253_402_300_800.0
"""Unix seconds of the year 10000; whatever is later is no date."""
START_S = 10.0
"""How long a run without a supervisor counts as one that is just being started."""


@dataclass(frozen=True)
class Run:
    """run.json: what was started. Unknown fields of a newer version are ignored."""

    id: str
    name: str
    argv: list[str]
    """The command that is run: torchrun's, or the one given to `ddpmon exec`."""
    script: str
    script_args: list[str]
    cwd: str
    host: str
    boot_id: str
    created_at: float
    world_size: int
    nnodes: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    supervisor: Process | None = None
    hub: Process | None = None
    agent: Process | None = None
    """The command's own process (torchrun)."""
    stopping: bool = False
    """A stop was asked for."""
    stopping_at: float | None = None
    """When it was asked for first, Unix seconds; the ranks have the grace from then on."""
    ended_at: float | None = None
    exit_code: int | None = None
    error: str | None = None
    """Why it never started, one line."""
    memory_kills: str = ""
    """Where the kernel killed for want of memory while it ran: in its "cgroup", on its "host", or "": nowhere known."""
    grace_s: float = 20.0
    """How long the ranks may take to end after a stop was asked for."""
    buckets: bool = False
    """The probe records every bucket's all-reduce."""
    on_alert: list[str] = field(default_factory=list)
    """The program, with its arguments, that is run when the run needs a look; empty: none."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that were set for it, beside those of whoever started it."""
    notes: list[str] = field(default_factory=list)
    """What was asked for and cannot be had here, a line each."""
    pid_namespace: str = ""
    """In which its pids count, as `pid_namespace()` tells; "": not known."""
    hides: bool = False
    """Values of `argv`, `script_args` or `environment` are hidden here; `whole` has them."""

    @property
    def ended(self) -> bool:
        """Whether the supervisor has written how it ended."""
        return self.ended_at is not None

    def grace_left_s(self) -> float | None:
        """How long the ranks may still take once a stop was asked for; None where none was."""
        if self.stopping_at is None:
            return None
        return max(0.0, min(self.grace_s, self.stopping_at + self.grace_s - time.time()))

    @property
    def sight(self) -> Sight:
        """How much can be seen from here of where it was started."""
        return Place(self.host, self.boot_id, self.pid_namespace).sight()

    def supervised(self) -> bool:
        """Whether its supervisor is known to live, here or elsewhere."""
        ours = self.sight is Sight.PIDS and self.supervisor is not None and self.supervisor.alive()
        return ours or held(self.id)

    def lost(self) -> bool:
        """Whether it neither ended nor has a live supervisor: killed, or the machine was restarted."""
        return not self.ended and self.state() == "lost"

    def state(self) -> str:
        """How it stands, as far as can be told from here: "running", "done", "failed", "stopped", "lost" or "unknown".

        Lost is a run that did not end and whose supervisor is known to be gone, or whose end nobody saw. Unknown is one
        of which that cannot be seen from here: see `elsewhere`.
        """
        if not self.ended:
            if (self.supervisor is None and time.time() - self.created_at < START_S) or self.supervised():
                return "running"
            now = self
            with contextlib.suppress(RunNotFoundError):  # it may have ended since this was read
                now = load(self.id)
            return now.state() if now.ended else self._unsupervised()
        if self.stopping:
            return "stopped"
        if self.exit_code is None and self.error is None:
            return "lost"
        return "done" if self.exit_code == 0 and self.error is None else "failed"

    def _unsupervised(self) -> str:
        """What it means that no supervisor can be seen."""
        if self.sight is Sight.PIDS:
            return "lost"
        if self.sight is Sight.KERNEL:  # where no locks are, it is unknown
            return "lost" if known_held(self.id) is False else "unknown"
        return "lost" if self.host == here().host and is_local(run_dir(self.id)) else "unknown"

    def elsewhere(self) -> str | None:
        """Where a run that did not end is, if its processes can be neither seen nor signalled from here; else None.

        Follows its name in a sentence: "runs on node07".
        """
        if self.ended or self.sight is Sight.PIDS:
            return None
        place = "in another container of this machine" if self.sight is Sight.KERNEL else f"on {self.host}"
        match self.state():
            case "running":
                return f"runs {place}"
            case "unknown" if self.sight is Sight.NONE and self.host == here().host:
                return f"was started {place}, but not since this machine was booted, and cannot be seen from here"
            case "unknown":
                return f"was started {place} and cannot be seen from here"
            case "lost" if self.sight is Sight.KERNEL:
                return f"was started {place}, and its supervisor is gone"
        return None


def check_name(name: str) -> str:
    """A name that works as an argument and as a part of a path."""
    if not NAME.fullmatch(name):
        raise UsageError(f"--name {name!r}: letters, digits, '.', '_' and '-' only, 64 at most")
    return name


def create(run: Run) -> Path:
    """Make a run's folder with its run.json, without its secrets; returns the folder. UsageError if there is one."""
    check_name(run.name)
    private_dir(home())
    private_dir(runs_dir())
    path = private_dir(run_dir(run.id))
    private_dir(path / "logs")
    shown = dataclasses.replace(
        run,
        argv=redact_words(run.argv),
        script_args=redact_words(run.script_args),
        on_alert=redact_words(run.on_alert),
        environment=redact_variables(run.environment),
    )
    hides = shown != run
    try:
        write(path / "run.json", dataclasses.asdict(dataclasses.replace(shown, hides=hides)), new=True)
    except FileExistsError:
        raise UsageError(f"there is a run {run.id} already") from None
    if hides:
        write(path / "secrets.json", {name: getattr(run, name) for name in _Secrets.__annotations__})
    return path


@dataclass(frozen=True)
class _Secrets:
    """secrets.json: what a run was started with, nothing hidden."""

    argv: list[str]
    script_args: list[str]
    environment: dict[str, str]
    on_alert: list[str] = field(default_factory=list)


def told_of_alerts(run: Run) -> list[str]:
    """The program that is run when a run needs a look, nothing hidden; empty: none, or its secrets are not kept."""
    if not run.on_alert:
        return []
    try:
        return whole(run).on_alert
    except RunNotFoundError:
        return []


def whole(run: Run) -> Run:
    """A run with the values that its run.json hides. RunNotFoundError if they are not kept any more."""
    if not run.hides:
        return run
    path = run_dir(run.id) / "secrets.json"
    try:
        secrets = reading.build(_Secrets, reading.read(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RunNotFoundError(f"the passwords of {run.name} ({run.id}) are not kept any more: {path}: {why}") from None
    return dataclasses.replace(run, **dataclasses.asdict(secrets))


def text(run: Run) -> str:
    """What run.json says of a run."""
    return json.dumps(dataclasses.asdict(run), indent=1)


def save(run: Run) -> None:
    """Write run.json whole or not at all."""
    write(run_dir(run.id) / "run.json", dataclasses.asdict(run))


def update(run_id: str, **changes: Any) -> Run:
    """Change fields of run.json, and leave to others what they changed meanwhile; returns the run as it is now.

    RunNotFoundError if it is missing or damaged, OSError if it cannot be written.
    """
    with _alone(run_id):
        run = dataclasses.replace(load(run_id), **changes)
        save(run)
    return run


@contextlib.contextmanager
def _alone(run_id: str) -> Iterator[None]:
    """Keep every other writer of a run's run.json out."""
    path = run_dir(run_id) / "run.json.lock"
    try:
        lock = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    except FileNotFoundError:
        raise RunNotFoundError(f"no run {run_id}; ddpmon ls shows what there is") from None
    try:
        _lock(lock)
        yield
    finally:
        os.close(lock)


def _lock(file: int) -> None:
    """Wait for a lock, but not for ever: a supervisor must not hang on a writer that was stopped.

    Where the file system knows no locks there is none: two writers at the same moment are rare.
    """
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return
            time.sleep(0.01)
        except OSError:
            return
        else:
            return


def rename(run: Run, name: str) -> Run:
    """Give a run another name, whether it runs or has ended; returns it as it is now.

    UsageError if it is no name, DdpmonError if run.json cannot be written.
    """
    check_name(name)
    try:
        return update(run.id, name=name)
    except OSError as error:
        raise DdpmonError(f"{run.name} ({run.id}) cannot be renamed: {error.strerror}") from None


def load(run_id: str) -> Run:
    """Read one run.json, every value checked; RunNotFoundError if it is missing or damaged."""
    path = run_dir(run_id) / "run.json"
    try:
        run = reading.build(Run, reading.read(path))
        _check_values(run, run_id)
    except FileNotFoundError:
        raise RunNotFoundError(f"no run {run_id}; ddpmon ls shows what there is") from None
    except (OSError, ValueError) as error:
        raise RunNotFoundError(f"{path} cannot be read: {error}") from None
    return run


def _check_values(run: Run, run_id: str) -> None:
    """Check what the types do not. ValueError names the value that is out of range."""
    numbers: dict[str, tuple[float | None, float, float]] = {
        "created_at": (run.created_at, 0, YEAR_10000),
        "ended_at": (run.ended_at, 0, YEAR_10000),
        "world_size": (run.world_size, 0, (1 << 17) + 1),
        "nnodes": (run.nnodes, 1, (1 << 17) + 1),
        "exit_code": (run.exit_code, -(1 << 31), 1 << 31),
        "grace_s": (run.grace_s, 0, 1e9),
    }
    for name, process in (("supervisor", run.supervisor), ("hub", run.hub), ("agent", run.agent)):
        if process is not None:
            numbers[f"{name}: pid"] = process.pid, 1, 1 << 31
            numbers[f"{name}: start_ticks"] = process.start_ticks, 0, 1 << 63
    for name, (value, least, end) in numbers.items():
        if value is not None and not least <= value < end:
            raise ValueError(f"{name} is {value:.12g}")
    if run.id != run_id:  # or a path of it would lead elsewhere
        raise ValueError("id is not its folder's name")
    if not all(name and "=" not in name for name in run.environment):
        raise ValueError("environment has a variable that cannot be")


def all_ids() -> list[str]:
    """The ids of all runs of this user, readable or not, oldest first. What begins with a dot is being deleted."""
    try:
        entries = [entry for entry in runs_dir().iterdir() if not entry.name.startswith(".")]
    except OSError:
        return []
    return sorted(entry.name for entry in entries if (entry / "run.json").exists())


def all_runs() -> list[Run]:
    """Every readable run of this user, oldest first: a damaged one hides no other; naming it shows its error."""
    return all_and_damaged()[0]


def all_and_damaged() -> tuple[list[Run], list[str]]:
    """Every readable run of this user, oldest first; and what is wrong with each of the others."""
    readable, damaged = [], []
    for run_id in all_ids():
        try:
            readable.append(load(run_id))
        except RunNotFoundError as error:
            if (run_dir(run_id) / "run.json").exists():  # else it was deleted just now
                damaged.append(str(error))
    return sorted(readable, key=lambda run: run.created_at), damaged


def find(wanted_name: str | None) -> Run:
    """A run by name (the latest of that name), by the beginning of its id, or the latest of all."""
    runs = all_runs()
    if wanted_name is None:
        if not runs:
            raise RunNotFoundError("no runs yet; ddpmon run --nproc 4 SCRIPT starts one")
        return runs[-1]
    named = [run for run in runs if run.name == wanted_name]
    if named:
        return named[-1]
    matching = [run for run in runs if run.id.startswith(wanted_name)]
    damaged = [run_id for run_id in all_ids() if wanted_name and run_id.startswith(wanted_name)]
    if not matching and len(damaged) == 1:
        return load(damaged[0])
    if len(matching) > 1 and not any(run.id == wanted_name for run in matching):
        raise RunNotFoundError(f"{wanted_name} fits {len(matching)} runs; give more of the id (ddpmon ls)")
    if not matching:
        raise RunNotFoundError(f"no run {wanted_name!r}; ddpmon ls shows what there is")
    return matching[0]
