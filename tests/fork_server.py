"""The process of tests/forked.py that forks programs, each for a request over a socket.

Its arguments are the descriptor of a listening socket, whose connections carry one JSON request a message, and the
modules to import. With --launch or --launch-fresh it is a launcher of ranks instead: see tests/ranks.py.
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
import sys
import termios
import threading
import time
import types
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PYTHON = [sys.executable, "-P", "-m"]
"""Words with which ddpmon starts a program of its own."""
SUPERVISOR, HUB = "ddpmon.launch.supervisor", "ddpmon.hub"
SHOW = "tests.tui.show"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others from starting or ending a process that forks programs; its socket is in this folder."""
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_launcher(argv: Sequence[str]) -> bool:
    """Return whether a command line is that of our launcher of ranks, and it may be forked."""
    return list(argv[1:3]) == [__file__, "--launch"]


def _serve(listening: socket.socket) -> tuple[dict[str, Any], Sequence[int]] | None:
    """Fork a program for each request that has words, and return the exit code of a program for each that has a pid.

    Returns in each forked program, with its request, and in the process itself, with None, once nobody is connected.
    """
    connected = [listening.accept()[0]]
    while connected:
        for ready in select.select([listening, *connected], [], [])[0]:
            if ready is listening:
                connected.append(listening.accept()[0])
                continue
            message, descriptors, _, _ = socket.recv_fds(ready, 1 << 20, 3)
            if not message:
                connected.remove(ready)
                ready.close()
                continue
            request = json.loads(message)
            if "words" in request:
                os.environ.clear()  # Before the fork: the probe reads it in the child at once.
                os.environ.update(request["environment"])
                answer: int | None = os.fork()
                if answer == 0:
                    for each in (listening, *connected):
                        each.close()
                    return request, descriptors
            else:
                pid, status = os.waitpid(request["pid"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            for descriptor in descriptors:
                os.close(descriptor)
            with contextlib.suppress(OSError):  # The test worker was killed.
                ready.send(json.dumps(answer).encode())
        if not connected:
            connected = _last_connections(listening)
    return None


def _last_connections(listening: socket.socket) -> list[socket.socket]:
    """Return the connection that came meanwhile; if there is none, remove the socket, so that none can come."""
    path = Path(listening.getsockname())
    with locked(path.parent):
        if select.select([listening], [], [], 0)[0]:
            return [listening.accept()[0]]
        path.unlink()
        with contextlib.suppress(OSError):  # Sockets of others are there.
            path.parent.rmdir()
    return []


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
    elif os.environ.get("DDPMON_SOCKET"):
        _arm()
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
    """Stand in for `processes.spawn_session` in a forked supervisor: fork its hubs and our launcher of ranks."""
    starts_hub = argv[:4] == [*PYTHON, HUB]
    if not starts_hub and not (is_launcher(argv) and "torch" in sys.modules):
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
    if starts_hub:
        return _leave_after(_start_hub, argv[3:], output, blocked, ignored)
    return _leave_after(_start_launcher, argv[3:], output, environment, options["umask"])


def _start_hub(
    words: list[str], output: int, blocked: Collection[signal.Signals], ignored: Collection[signal.Signals]
) -> None:
    _begin_session(os.open(os.devnull, os.O_RDONLY), output, blocked, ignored)
    _run(words)


def _start_launcher(words: list[str], output: int, environment: dict[str, str], umask: int) -> None:
    """Do what `forked.py --launch` does in a process in which torch is imported already, and arm the probe there."""
    _begin_session(0, output)
    os.umask(umask)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    _arm()
    _launch_words(words)


def _arm() -> None:
    """Arm the probe, as sitecustomize does as soon as torch is imported."""
    from ddpmon.probe import arm

    arm.from_environment()


def _begin_session(
    stdin: int, output: int, blocked: Collection[signal.Signals] = (), ignored: Collection[signal.Signals] = ()
) -> None:
    from ddpmon.launch import processes

    os.setsid()
    for number in {signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, *processes.SCHEDULERS}.difference(ignored):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    _set_streams(stdin, output, output)
    _close_what_is_not_inherited()


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


def _launch_words(words: Sequence[str]) -> None:
    ranks, timeout_s, port, *rest = words
    end = rest.index("--")
    _launch(int(ranks), float(timeout_s), port, rest[:end], rest[end + 1 :])


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
    if sys.argv[1] in {"--launch", "--launch-fresh"}:
        _leave_after(_launch_words, sys.argv[2:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The test ends first, and its programs with it.
    _import(sys.argv[2:])
    for program in (SUPERVISOR, SHOW):  # A forked process runs it as its own program; what it imports stays imported.
        sys.modules.pop(program, None)
    if (mine := _serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        _leave_after(_become, *mine)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # Instead of the folder of this file.
    sys.path.append(str(Path(__file__).parent / "light"))
    sys.modules["tests.fork_server"] = sys.modules["__main__"]
    main()
