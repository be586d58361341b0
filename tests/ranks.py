"""Real ranks that share one import of torch: forked, as torch.multiprocessing forks them, from a process that has it.

A fresh rank spends more than four seconds of a core on importing torch and what an optimizer needs of it, and so does
nearly torchrun itself: more than most tests have it train.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import ddpmon
from benchmarks.ports import free_port
from tests import fork_server, forked
from tests.deadlines import Deadline

INJECT = Path(ddpmon.__file__).parent / "inject"
"""The folder on the PYTHONPATH of watched ranks."""
TORCH = ("torch", "torch._dynamo")
"""Modules that a rank imports anyway: without the second no optimizer is made."""
LIGHT = ("eager", "torch")
"""Half of it, where neither torch.compile nor FSDP is asked for: tests/light/eager.py."""
LIGHT_TRAIN = Path(__file__).parent / "light" / "train.py"
"""Begins the command line of a script of training/ that does so too."""
EAGER = f"import sys; sys.path.append({str(Path(__file__).parent / 'light')!r}); import eager\n"
"""The same for a script that a test writes: its first line."""


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

    Args:
        ranks: how many; None: one process that no launcher told a rank.
        script: its path.
        args: its arguments.
        environment: all of it.
        folder: where it runs; None: a temporary one.
        modules: imported before the ranks are forked.
        together: stdout and stderr are one.
        timeout_s: after this time the test fails.

    Returns:
        The output of all ranks, and the first return code that is not 0, after which the other ranks are ended.
    """
    with contextlib.ExitStack() as opened:
        written = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="ddpmon-t")))
        stdin, stdout = opened.enter_context(open(os.devnull)), opened.enter_context((written / "out").open("ab+"))
        stderr = stdout if together else opened.enter_context((written / "err").open("ab+"))
        own, started = dict(environment), []
        if ranks is not None:
            own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for rank in range(ranks or 1):
            if ranks is not None:
                fork_server.set_rank(own, rank, ranks)
            started.append(
                forked.Forked(
                    str(script), *args, stdin=stdin.fileno(), stdout=stdout.fileno(), stderr=stderr.fileno(),
                    modules=modules, folder=str(folder or written), environment=own,
                    at_import=_at_import(environment),
                )
            )  # fmt: skip
        code = _code(started, timeout_s)
        said = (written / "out").read_text(), "" if together else (written / "err").read_text()
    return subprocess.CompletedProcess([str(script), *args], code, *said)


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that imports read. The probe is armed in each rank that has the folder of its injection."""
    found = {name: value for name, value in environment.items() if name in forked.AT_IMPORT}
    found["PYTHONPATH"] = os.pathsep.join(
        folder for folder in found.get("PYTHONPATH", "").split(os.pathsep) if folder != str(INJECT)
    )
    return {name: value for name, value in found.items() if value}


def _code(left: list[forked.Forked], timeout_s: float) -> int:
    """Return the first exit code of a process that is not 0. After it the others are ended, as torchrun does."""
    code, deadline = 0, Deadline(timeout_s)
    while left:
        for process in list(left):
            if process.poll() is not None:
                left.remove(process)
                code = code or process.returncode or 0
                if process.returncode:
                    for other in left:
                        other.terminate()
        if deadline.passed:
            for process in left:
                process.kill()
            raise AssertionError(f"ranks have not ended, it was not within {timeout_s:g} s")
        time.sleep(0.005)
    return code


def launcher(
    ranks: int,
    script: Path,
    *args: str,
    modules: tuple[str, ...] = LIGHT,
    fresh: bool = False,
    timeout_s: float = 120.0,
) -> list[str]:
    """Return the command line of a launcher that imports `modules` and forks the ranks.

    Args:
        ranks: how many.
        script: its path.
        args: its arguments.
        modules: imported before the ranks are forked.
        fresh: a forked supervisor starts the launcher as a program, whose environment says where modules or libraries
            are; otherwise it forks the launcher too.
        timeout_s: after this time the ranks are killed.
    """
    how = ["--launch-fresh" if fresh else "--launch", str(ranks), str(timeout_s), str(free_port()), *modules, "--"]
    return [sys.executable, fork_server.__file__, *how, str(script), *args]
