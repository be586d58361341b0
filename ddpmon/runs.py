"""Runs on disk: where a run's folder and sockets are, and what run.json says. Standard library only.

A run lives in `$DDPMON_HOME/runs/<id>/` (or `~/.local/state/ddpmon/runs/<id>/`), mode 0700:

    run.json       what was started, where, with what; written through `update` after its creation, by the supervisor
                   and by who renames the run
    telemetry.db   the recording
    logs/          each rank's stdout and stderr, and what supervisor and hub had to say
    report.json    the report, once the run has ended
    supervisor.lock, run.json.reserve
                   held by the supervisor for its life; room for how the run ends, on a disk that is full by then
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
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpmon.errors import DdpmonError, RunNotFoundError, UnsafePathError, UsageError

SOCKET_PATH_MAX = 107
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOCK_S = 2.0
SUPERVISOR_LOCK = "supervisor.lock"


@dataclass(frozen=True)
class Process:
    """A process by pid and start time, so that a recycled pid is never taken for it."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Look at a live process; None if there is none (a zombie counts as none)."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Process.of(self.pid) == self


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
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that were set for it, beside those of whoever started it."""
    notes: list[str] = field(default_factory=list)
    """What was asked for and cannot be had here, a line each."""

    @property
    def ended(self) -> bool:
        """Whether the supervisor has written how it ended."""
        return self.ended_at is not None

    def grace_left_s(self) -> float | None:
        """How long the ranks may still take once a stop was asked for; None where none was."""
        if self.stopping_at is None:
            return None
        return max(0.0, min(self.grace_s, self.stopping_at + self.grace_s - time.time()))

    def lost(self) -> bool:
        """Whether it neither ended nor has a live supervisor: killed, or the machine was restarted."""
        if self.ended or (self.supervisor is None and time.time() - self.created_at < 10):
            return False
        return self.boot_id != boot_id() or self.supervisor is None or not self.supervisor.alive()

    def state(self) -> str:
        """How it stands, as far as this file tells: "running", "done", "failed", "stopped" or "lost".

        "lost": nobody watches over it, or nobody saw how it ended.
        """
        if not self.ended and self.lost():
            # it may have ended since this was read
            now = load(self.id) if (run_dir(self.id) / "run.json").exists() else self
            return now.state() if now.ended else "lost"
        if not self.ended:
            return "running"
        if self.stopping:
            return "stopped"
        if self.exit_code is None and self.error is None:
            return "lost"
        return "done" if self.exit_code == 0 and self.error is None else "failed"


def home() -> Path:
    """The folder of all that ddpmon keeps."""
    if path := os.environ.get("DDPMON_HOME"):
        return Path(path).absolute()
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "ddpmon"


def runs_dir() -> Path:
    """The folder of all runs."""
    return home() / "runs"


def run_dir(run_id: str) -> Path:
    """The folder of one run."""
    return runs_dir() / run_id


def socket_dir(run_id: str) -> Path:
    """The folder of one run's sockets."""
    root = os.environ.get("DDPMON_RUNTIME_DIR") or f"/tmp/ddpmon-{os.getuid()}"  # noqa: S108  owner and mode are checked
    return Path(root) / run_id


def ingest_address(run_id: str) -> str:
    """Where the hub of a run listens for its ranks."""
    return f"ipc://{socket_dir(run_id) / 'ingest.sock'}"


def view_address(run_id: str) -> str:
    """Where the hub of a run listens for viewers."""
    return f"ipc://{socket_dir(run_id) / 'view.sock'}"


def private_dir(path: Path) -> Path:
    """Make a folder that only this user can enter, or check that it is one; UnsafePathError says what is wrong."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise UnsafePathError(
            f"cannot make {path}: {error.strerror}; set DDPMON_HOME or DDPMON_RUNTIME_DIR elsewhere"
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePathError(f"{path} is no folder (a link?); remove it or set DDPMON_RUNTIME_DIR elsewhere")
    if found.st_uid != os.getuid():
        raise UnsafePathError(f"{path} belongs to another user; set DDPMON_RUNTIME_DIR elsewhere")
    if found.st_mode & 0o077:
        raise UnsafePathError(f"{path} can be entered by others; chmod 700 it or set DDPMON_RUNTIME_DIR elsewhere")
    return path


def make_socket_dir(run_id: str) -> Path:
    """Make and check the folder of a run's sockets, and that a socket's path fits into it."""
    path = socket_dir(run_id)
    longest = len(os.fsencode(path / "ingest.sock"))
    if longest > SOCKET_PATH_MAX:
        raise UnsafePathError(
            f"{path}: a socket's path holds {SOCKET_PATH_MAX} bytes; set DDPMON_RUNTIME_DIR to a shorter one"
        )
    private_dir(path.parent)
    return private_dir(path)


def boot_id() -> str:
    """Identity of this boot of the machine; "" where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def new_id() -> str:
    """An id that sorts by time: 20261120-141502-7f3a."""
    return time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)


def check_name(name: str) -> str:
    """A name that works as an argument and as a part of a path."""
    if not NAME.fullmatch(name):
        raise UsageError(f"--name {name!r}: letters, digits, '.', '_' and '-' only, 64 at most")
    return name


def create(run: Run) -> Path:
    """Make a run's folder with its run.json; returns the folder."""
    check_name(run.name)
    private_dir(home())
    private_dir(runs_dir())
    path = private_dir(run_dir(run.id))
    private_dir(path / "logs")
    save(run)
    return path


def text(run: Run) -> str:
    """What run.json says of a run."""
    return json.dumps(dataclasses.asdict(run), indent=1)


def save(run: Run) -> None:
    """Write run.json whole or not at all."""
    path = run_dir(run.id) / "run.json"
    draft = path.with_name(f"run.json.{secrets.token_hex(4)}")
    try:
        draft.write_text(text(run))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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


def hold(run_id: str) -> int:
    """Take the lock that a supervisor holds for its life; returns the open file, which is never closed.

    The kernel lets go of it when the last process that holds the file ends, whatever ends it. DdpmonError if another
    supervisor holds it, OSError if the file cannot be made. Where the file system knows no locks nothing is held.
    """
    lock = os.open(run_dir(run_id) / SUPERVISOR_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # also while somebody asks `held`, for a moment
            if time.monotonic() >= deadline:
                os.close(lock)
                raise DdpmonError(f"run {run_id} has a supervisor already") from None
            time.sleep(0.01)
        except OSError:
            return lock
        else:
            return lock


def held(run_id: str) -> bool:
    """Whether a live process holds a run's supervisor lock, also one that cannot be seen from here.

    False proves nothing where the lock cannot be asked: a file system without locks, a run of an older ddpmon.
    """
    try:
        lock = os.open(run_dir(run_id) / SUPERVISOR_LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(lock)


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
    """Read one run.json; RunNotFoundError if it is missing or damaged."""
    path = run_dir(run_id) / "run.json"
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
        for key in ("supervisor", "hub", "agent"):
            raw[key] = Process(**raw[key]) if raw.get(key) else None
        known = {f.name for f in dataclasses.fields(Run)}
        return Run(**{key: value for key, value in raw.items() if key in known})
    except FileNotFoundError:
        raise RunNotFoundError(f"no run {run_id}; ddpmon ls shows what there is") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RunNotFoundError(f"{path} cannot be read: {error}") from None


def all_ids() -> list[str]:
    """The ids of all runs of this user, readable or not, oldest first. What begins with a dot is being deleted."""
    try:
        entries = [entry for entry in runs_dir().iterdir() if not entry.name.startswith(".")]
    except OSError:
        return []
    return sorted(entry.name for entry in entries if (entry / "run.json").exists())


def all_runs() -> list[Run]:
    """Every readable run of this user, oldest first."""
    found = []
    for run_id in all_ids():
        try:
            found.append(load(run_id))
        except RunNotFoundError:
            continue  # a damaged folder must not hide the others; naming it shows its error
    return sorted(found, key=lambda run: run.created_at)


def find(wanted: str | None) -> Run:
    """A run by name (the latest of that name), by the beginning of its id, or the latest of all."""
    runs = all_runs()
    if wanted is None:
        if not runs:
            raise RunNotFoundError("no runs yet; ddpmon run --nproc 4 SCRIPT starts one")
        return runs[-1]
    named = [run for run in runs if run.name == wanted]
    if named:
        return named[-1]
    matching = [run for run in runs if run.id.startswith(wanted)]
    if len(matching) > 1 and not any(run.id == wanted for run in matching):
        raise RunNotFoundError(f"{wanted} fits {len(matching)} runs; give more of the id (ddpmon ls)")
    if not matching:
        raise RunNotFoundError(f"no run {wanted!r}; ddpmon ls shows what there is")
    return matching[0]


def remove_sockets(run_id: str) -> None:
    """Take a run's sockets away once nothing listens on them."""
    shutil.rmtree(socket_dir(run_id), ignore_errors=True)
