"""Real ranks that share one import of torch: forked, as torch.multiprocessing forks them, from a process that has it.

A fresh rank spends more than four seconds of a core on importing torch and what an optimizer needs of it, and so does
nearly torchrun itself: more than most tests have it train. What is tested of torchrun, or of an interpreter that comes
to torch, starts fresh ones; what is tested of the training takes these.

Run as a program, this file is the process that forks: it imports the modules it is given and takes orders, a line of
JSON each, until its stdin ends. With --order it takes that one, as a launcher of somebody's own.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from tests.deadlines import Deadline

TORCH = ("torch", "torch._dynamo")
"""Modules that a rank imports anyway: without the second no optimizer is made."""
LIGHT = ("eager", "torch")
"""Half of it, where neither torch.compile nor FSDP is asked for: tests/light/eager.py."""
LIGHT_TRAIN = Path(__file__).parent / "light" / "train.py"
"""Begins the command line of a script of training/ that does so too."""
EAGER = f"import sys; sys.path.append({str(Path(__file__).parent / 'light')!r}); import eager\n"
"""The same for a script that a test writes: its first line."""


@dataclasses.dataclass
class Order:
    """Ranks to fork, what they run, and where."""

    ranks: int | None
    """None: one process that no launcher told a rank."""
    command: list[str]
    environment: dict[str, str]
    """All of it, or what comes to that of who forks."""
    timeout_s: float
    folder: str = "."
    output: tuple[str, ...] = ()
    """The files of stdout and stderr, of all ranks together; none: where they are."""
    whole: bool = True
    """True if the environment is all of it."""

    def set_environment(self, rank: int) -> None:
        """Make it that of a rank that torchrun started."""
        if self.whole:
            os.environ.clear()
        os.environ.update(self.environment)
        if self.ranks is not None:
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.ranks, "LOCAL_WORLD_SIZE": self.ranks}
            os.environ.update({name: str(value) for name, value in place.items()}, TORCHELASTIC_RUN_ID="forked")


def run(
    ranks: int | None,
    script: Path,
    *args: str,
    environment: Mapping[str, str],
    folder: Path | None = None,
    modules: tuple[str, ...] = TORCH,
    together: bool = False,
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a script on ranks that have imported `modules`, and wait for its end.

    together: stdout and stderr are one. The return code is the first one of a rank that is not 0.
    """
    with tempfile.TemporaryDirectory(prefix="ddpmon-t") as written:
        stdout, stderr = Path(written) / "stdout", Path(written) / "stderr"
        stdout.touch()
        stderr.touch()
        command = [str(script), *args]
        meeting = {} if ranks is None else _meeting()
        order = Order(ranks, command, {**environment, **meeting}, timeout_s, str(folder or written))
        order.output = (str(stdout), str(stdout if together else stderr))
        imported = frozenset((name, value) for name, value in environment.items() if name in AT_IMPORT)
        codes = _origin(modules, imported).follow(order)
        said = stdout.read_text(), stderr.read_text()
    return subprocess.CompletedProcess(command, next(filter(None, codes), 0), *said)


def launcher(
    ranks: int, script: Path, *args: str, modules: tuple[str, ...] = LIGHT, timeout_s: float = 120.0
) -> list[str]:
    """The command line of a launcher of somebody's own, which imports `modules` and forks the ranks."""
    order = Order(ranks, [], _meeting(), timeout_s, whole=False)
    words = json.dumps(dataclasses.asdict(order))
    return [sys.executable, __file__, "--order", words, *modules, "--", str(script), *args]


def _meeting() -> dict[str, str]:
    from benchmarks.ports import free_port  # not at the top: as a program, this file does not see that folder

    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}


AT_IMPORT = frozenset(("DDPMON_SOCKET", "DDPMON_BUCKETS", "PYTHONPATH", "HF_HUB_OFFLINE"))
"""Variables that modules read once, at import: ranks that differ in them are not forked from one process."""


class _Origin:
    """A process that has imported modules and forks ranks. It ends when this one does."""

    def __init__(self, modules: tuple[str, ...], imported: frozenset[tuple[str, str]]) -> None:
        mine = {
            name: value for name, value in os.environ.items() if name not in AT_IMPORT and not name.startswith("DDPMON")
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            env=mine | {"OMP_NUM_THREADS": "1"} | dict(imported),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def follow(self, order: Order) -> list[int]:
        """Have the ranks run; the exit code of each, in the order in which they ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(order)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "who forks the ranks is gone"
        codes = json.loads(answer)
        assert isinstance(codes, list), codes
        return codes


_origin = functools.cache(_Origin)


def _serve(lines: Iterable[str]) -> Order | None:
    """Fork ranks for one order after the other. In a rank: its order. None once there are no more."""
    gc.freeze()  # else each rank writes to all that torch brought, and so copies it: a second of a core, at its end
    for line in lines:
        order = Order(**json.loads(line))
        left = set()
        for rank in range(order.ranks or 1):
            order.set_environment(rank)  # before the fork: the probe reads it in the child at once
            pid = os.fork()
            if pid == 0:
                return order
            left.add(pid)
        codes = _codes(left, order.timeout_s)
        if not order.output:
            _leave(int(any(codes)))
        print(json.dumps(codes), flush=True)
    return None


def _codes(left: set[int], timeout_s: float) -> list[int] | str:
    """The exit codes of processes. After one that failed the others are ended, as torchrun does."""
    codes = []
    deadline = Deadline(timeout_s)
    while left:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            left.remove(pid)
            codes.append(os.waitstatus_to_exitcode(status))
            if codes[-1]:
                for other in left:
                    os.kill(other, signal.SIGTERM)
        elif deadline.passed:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return f"ranks have not ended, it was not within {timeout_s:g} s"
        else:
            time.sleep(0.005)
    return codes


def _become(order: Order) -> None:
    """Run the script as Python would."""
    for descriptor, path in enumerate((os.devnull, *order.output)):
        file = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(order.folder)
    script = order.command[0]
    sys.argv[:] = order.command
    sys.path.insert(0, str(Path(script).parent))
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    exec(compile(Path(script).read_text(), script, "exec"), main.__dict__)


def _leave(code: int = 0) -> NoReturn:
    """End as Python does, but leave all that torch brought as it lies: taking it apart copies it first.

    Two thirds of what a rank took that trains a few steps.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    del sys.path[0]  # this folder: the script's own comes in its place
    sys.path.append(str(Path(__file__).parent / "light"))
    words = sys.argv[1:]
    orders: Iterable[str] = sys.stdin
    if words[0] == "--order":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does, and before torch reads it
        end = words.index("--")
        orders = [json.dumps(json.loads(words[1]) | {"command": words[end + 1 :]})]
        words = words[2:end]
    gc.disable()  # what is imported stays: it takes a fifth less
    for module in words:
        importlib.import_module(module)
    gc.enable()
    mine = _serve(orders)
    if mine is not None:
        try:
            _become(mine)
        except SystemExit as left:
            if left.code:
                raise
    _leave()
