"""Real supervisors, hubs, dashboards and ranks that share one import: forked from a process that has imported them.

A dashboard that is started as a program takes more than a second of CPU time for its imports, a hub half a second, a
rank four seconds for torch: several times as much as for what most tests ask of them. Start them as programs if the
test reads their command line or their first environment, also from /proc: a forked program shows those of the process
that forked it. A drain is always started as a program, as the next drain recognizes it by its command line. Tests of
torchrun, and of an interpreter that imports torch, start fresh ranks.

Run as a program, this file is that process. Its arguments are the descriptor of a socket with one JSON request a
message, and the modules to import. With --launch it is a launcher of ranks instead: see tests/ranks.py.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import types
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PYTHON = [sys.executable, "-P", "-m"]
"""Words with which ddpmon starts a program of its own."""
SUPERVISOR, HUB = "ddpmon.launch.supervisor", "ddpmon.hub"
SHOW = "tests.tui.show"
WITHOUT_SCREEN = (SUPERVISOR, f"{HUB}.hub")
"""Imports of a supervisor and a hub."""
DASHBOARD = ("ddpmon.cli", SHOW)
"""Imports of a dashboard."""
AT_IMPORT = frozenset(("DDPMON_SOCKET", "DDPMON_BUCKETS", "PYTHONPATH", "HF_HUB_OFFLINE"))
"""Variables that modules read once, at import: ranks that differ in them are not forked from one process."""
NO_VARIABLES: Mapping[str, str] = {}


class ForkServer:
    """The connection of a test worker to its process that forks programs, which ends together with the worker."""

    def __init__(self, modules: tuple[str, ...], at_import: frozenset[tuple[str, str]]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Without our variables: a test that looks for the processes of its own home must not find this one.
        own = (item for item in os.environ.items() if not item[0].startswith("DDPMON") and item[0] not in AT_IMPORT)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *modules],
                env=dict(own) | {"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"} | dict(at_import),
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()
        atexit.register(self._close)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()

    def ask(self, *descriptors: int, **request: Any) -> Any:
        """Send a request with open descriptors and return the answer."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(1 << 16)
        assert answer, "the process that forks programs has ended"
        return json.loads(answer)


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
                *command[3:],
                stdin=given,
                stdout=writes,
                stderr=stderr.fileno(),
                folder=cwd or os.getcwd(),
                session=True,
            )
            os.close(writes)
            return subprocess.CompletedProcess(command, first.wait(), output.read())


def _serve(requests: socket.socket) -> tuple[dict[str, Any], Sequence[int]] | None:
    """Fork a program for each request that has words, and return the exit code of a program for each that has a pid.

    Returns in each forked program, with its request, and in the process itself, with None, once no more requests come.
    """
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not message:
            return None
        request = json.loads(message)
        if "words" in request:
            os.environ.clear()  # Before the fork: the probe reads it in the child at once.
            os.environ.update(request["environment"])
            answer: int | None = os.fork()
            if answer == 0:
                requests.close()
                return request, descriptors
        else:
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(json.dumps(answer).encode())


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Do in this forked process what `python -m` does in a fresh one."""
    if request["session"] or request["terminal"]:
        os.setsid()
    os.umask(request["umask"])
    time.tzset()
    os.chdir(request["folder"])
    _set_streams(*streams)
    if not _is_script(request["words"]):
        _close_what_is_not_inherited()
    if os.isatty(1):
        _open_streams()
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in (signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
    if request["words"][0] == SUPERVISOR:
        from ddpmon.launch import processes  # not at the top: ranks are to import ddpmon only where it watches them

        processes.spawn_session = functools.partial(_spawn, processes.spawn_session)
    _run(request["words"])


def _set_streams(*streams: int) -> None:
    """Make these the standard streams."""
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
    for stream in {*streams}.difference(range(3)):
        os.close(stream)


def _close_what_is_not_inherited() -> None:
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(entry) > 2 and not os.get_inheritable(int(entry)):
                os.close(int(entry))


def _open_streams() -> None:
    """Make Python's streams anew: those of the process that forked may be of files, and remember that."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(words: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    if _is_script(words):
        _run_script(words)
    else:
        sys.argv[1:] = words[1:]
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _is_script(words: Sequence[str]) -> bool:
    return words[0].endswith(".py")


def _run_script(words: Sequence[str]) -> None:
    """Run a script as Python does, with its own folder instead of this one on the path."""
    sys.argv[:] = words
    sys.path[0] = str(Path(words[0]).parent)
    main = types.ModuleType("__main__")
    main.__file__ = words[0]
    sys.modules["__main__"] = main
    exec(compile(Path(words[0]).read_text(), words[0], "exec"), main.__dict__)


def _spawn(
    spawn: Callable[..., int],
    argv: list[str],
    environment: dict[str, str],
    log: Path | int,
    *,
    blocked: Collection[signal.Signals] = (),
    ignored: Collection[signal.Signals] = (),
    **options: Any,
) -> int:
    """Stand in for `processes.spawn_session` in a forked supervisor: fork its hubs, start everything else."""
    if argv[:4] != [*PYTHON, HUB]:
        return spawn(argv, environment, log, blocked=blocked, ignored=ignored, **options)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    output = os.dup(log) if isinstance(log, int) else os.open(log, append, 0o600)
    started, starting = os.pipe()
    if pid := os.fork():
        os.close(output)
        os.close(starting)
        os.read(started, 1)  # Until the child has closed what it does not inherit, such as the run's lock.
        os.close(started)
        return pid
    return _leave_after(_start_hub, argv[3:], output, blocked, ignored)


def _start_hub(
    words: list[str], output: int, blocked: Collection[signal.Signals], ignored: Collection[signal.Signals]
) -> None:
    from ddpmon.launch import processes

    os.setsid()
    for number in {signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, *processes.SCHEDULERS}.difference(ignored):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    _set_streams(os.open(os.devnull, os.O_RDONLY), output, output)
    _close_what_is_not_inherited()
    _run(words)


def _leave_after(call: Callable[..., None], *arguments: Any) -> NoReturn:
    """Call and end as Python does, but return to nobody: the frames below are those of the process that forked.

    All that was imported is left as it lies: taking it apart copies it first, two thirds of the cost of a short rank.
    """
    code = 1
    try:
        call(*arguments)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def set_rank(environment: MutableMapping[str, str], rank: int, ranks: int) -> None:
    """Make an environment that of a rank that torchrun started."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    environment |= {name: str(value) for name, value in place.items()} | {"TORCHELASTIC_RUN_ID": "forked"}


def _launch(ranks: int, timeout_s: float, port: str, modules: Sequence[str], script: Sequence[str]) -> None:
    """Fork the ranks of a script and wait for their ends. After one that failed the others are ended."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # As torchrun does, and before torch reads it.
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    _import(modules)
    left = set()
    for rank in range(ranks):
        set_rank(os.environ, rank, ranks)
        if (pid := os.fork()) == 0:
            _leave_after(_run, script)
        left.add(pid)
    deadline, failed = time.monotonic() + timeout_s, False
    while left and time.monotonic() < deadline:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            left.remove(pid)
            if status:
                failed = True
                for other in left:
                    os.kill(other, signal.SIGTERM)
        else:
            time.sleep(0.005)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    raise SystemExit(failed or bool(left))


def _import(modules: Sequence[str]) -> None:
    gc.disable()  # As ddpmon/hub/__main__.py does while it imports.
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # So that programs share the pages of what was imported.


def main() -> None:
    """Import the programs and fork them on request."""
    if sys.argv[1] == "--launch":
        ranks, timeout_s, port, *words = sys.argv[2:]
        end = words.index("--")
        _leave_after(_launch, int(ranks), float(timeout_s), port, words[:end], words[end + 1 :])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The test ends first, and its programs with it.
    _import(sys.argv[2:])
    for program in (SUPERVISOR, SHOW):  # A forked process runs it as its own program; what it imports stays imported.
        sys.modules.pop(program, None)
    if (mine := _serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        _leave_after(_become, *mine)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # Instead of the folder of this file.
    sys.path.append(str(Path(__file__).parent / "light"))
    sys.modules["tests.forked"] = sys.modules["__main__"]
    main()
