"""Real supervisors, hubs, dashboards and ranks that share one import: forked from a process that has imported them.

A dashboard that is started as a program takes more than a second of CPU time for its imports, a hub half a second, a
rank four seconds for torch: several times as much as for what most tests ask of them. Start them as programs if the
test reads their command line or their first environment, also from /proc: a forked program shows those of the process
that forked it. A drain is always started as a program, as the next drain recognizes it by its command line. Tests of
torchrun, and of an interpreter that imports torch, start fresh ranks.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import fork_server
from tests.fork_server import HUB, PYTHON, SHOW, SUPERVISOR, is_launcher, locked

WITHOUT_SCREEN = (SUPERVISOR, f"{HUB}.hub")
"""Imports of a supervisor and a hub."""
DASHBOARD = ("ddpmon.cli", SHOW)
"""Imports of a dashboard."""
AT_IMPORT = frozenset(("PYTHONPATH", "HF_HUB_OFFLINE"))
"""Variables that are read once, at import: ranks that differ in them are not forked from one process."""
NO_VARIABLES: Mapping[str, str] = {}


class ForkServer:
    """The connection of a test worker to a process that forks programs. All workers of a session share it."""

    def __init__(self, modules: tuple[str, ...], at_import: frozenset[tuple[str, str]]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        folder = Path(tempfile.gettempdir()) / f"ddpmon-forks-{session}"
        key = hashlib.sha256(json.dumps([modules, sorted(at_import)]).encode()).hexdigest()
        with locked(folder):
            try:
                self._socket.connect(str(folder / key[:16]))
            except OSError:
                _start_server(folder / key[:16], modules, dict(at_import))
                self._socket.connect(str(folder / key[:16]))
        atexit.register(self._socket.close)

    def ask(self, *descriptors: int, **request: Any) -> Any:
        """Send a request with open descriptors and return the answer."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(1 << 16)
        assert answer, "the process that forks programs has ended"
        return json.loads(answer)


def _start_server(path: Path, modules: Sequence[str], at_import: dict[str, str]) -> None:
    """Start a process that forks programs, and ends after the last connection to its socket."""
    # Without our variables: a test that looks for the processes of its own home must not find this one.
    own = {name: value for name, value in os.environ.items() if not name.startswith("DDPMON") and name not in AT_IMPORT}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        path.unlink(missing_ok=True)  # That of one that was killed.
        listening.bind(str(path))
        listening.listen()
        listening.set_inheritable(True)
        words = [sys.executable, fork_server.__file__, str(listening.fileno()), *modules]
        os.posix_spawn(sys.executable, words, own | {"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"} | at_import)


_server = functools.cache(ForkServer)


class Forked:
    """A program of ddpmon, or a script, and the part of Popen's interface that tests use."""

    def __init__(
        self, program: str, *arguments: str, stdin: int, stdout: int, stderr: int,
        modules: tuple[str, ...] = (), at_import: Mapping[str, str] = NO_VARIABLES, **options: Any,
    ) -> None:  # fmt: skip
        """Fork it with these descriptors as its standard streams.

        Args:
            program: a module of ddpmon, as in `python -P -m MODULE`, or the path of a script.
            arguments: its command line after that.
            stdin: an open descriptor.
            stdout: an open descriptor.
            stderr: an open descriptor.
            modules: what a script finds imported.
            at_import: the variables among its environment that those modules read.
            options: `folder` and `environment` instead of the current ones; `session`: whether it begins a session of
                its own, and `terminal`: one that stdin controls.
        """
        imports = modules or (WITHOUT_SCREEN if program in {SUPERVISOR, HUB} else DASHBOARD)
        self._server = _server(imports, frozenset(at_import.items()))
        self.args = [*PYTHON, program, *arguments]
        self.returncode: int | None = None
        umask = os.umask(0o077)
        os.umask(umask)
        request = {"folder": os.getcwd(), "environment": dict(os.environ), "session": False, "terminal": False}
        self.pid: int = self._server.ask(
            stdin, stdout, stderr, words=[program, *arguments], umask=umask, **request | options
        )

    def poll(self) -> int | None:
        """Return the exit code as `Popen.poll` does: None while the program runs, -9 if signal 9 ended it."""
        if self.returncode is None:
            self.returncode = self._server.ask(pid=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program has ended, and return its exit code."""
        if self.poll() is None:
            ended = os.pidfd_open(self.pid)
            try:
                if not select.select([ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            finally:
                os.close(ended)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless the program has ended. Until it is waited for, its pid belongs to no other process."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def hub(run_id: str, log: Path) -> Forked:
    """Fork a hub that writes into this log."""
    with open(os.devnull) as nothing, log.open("ab") as output:
        descriptors = nothing.fileno(), output.fileno(), output.fileno()
        return Forked(HUB, run_id, **dict(zip(("stdin", "stdout", "stderr"), descriptors, strict=True)))


class Subprocess:
    """The part of the module `subprocess` with which a supervisor is started; this one forks it."""

    PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

    @staticmethod
    def run(command: list[str], *, stdin: int, cwd: str | None, stderr: Any, **_: Any) -> Any:
        """Run a supervisor's first process to its end and return its exit code and output."""
        assert command[:3] == PYTHON, command
        reads, writes = os.pipe()
        with open(os.devnull) as nothing, open(reads, "rb") as output:
            given = nothing.fileno() if stdin == subprocess.DEVNULL else stdin
            first = Forked(
                *command[3:], stdin=given, stdout=writes, stderr=stderr.fileno(), modules=_imports(command[3:]),
                folder=cwd or os.getcwd(), session=True,
            )  # fmt: skip
            os.close(writes)
            return subprocess.CompletedProcess(command, first.wait(), output.read())


def _imports(words: Sequence[str]) -> tuple[str, ...]:
    """Return what a supervisor finds imported so that it can fork its launcher; empty if that is none of ours."""
    if words[0] != SUPERVISOR:
        return ()
    from ddpmon import runs  # not at the top: ranks are to import ddpmon only where it watches them

    argv = runs.load(words[1]).argv
    return (*WITHOUT_SCREEN, *argv[6 : argv.index("--")]) if is_launcher(argv) else ()
