"""Start real and synthetic runs, and print measurements: shared by the programs in this folder."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ddpmon import runs

Found = TypeVar("Found")
DDPMON = [sys.executable, "-m", "ddpmon"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def bare(nproc: int, script: Path) -> list[str]:
    """Return the command that runs a script on torchrun alone."""
    return [*TORCHRUN, "--nproc-per-node", str(nproc), str(script)]


def watched(nproc: int, script: Path, *options: str) -> list[str]:
    """Return the command that runs a script under ddpmon. `options` are those of `ddpmon run`."""
    return [*DDPMON, "run", "--headless", "--nproc", str(nproc), *options, str(script)]


def result_of(command: Sequence[str], environment: dict[str, str] | None = None, expected: Iterable[int] = (0,)) -> str:
    """Run a command whose script writes to the file that `--result` names, and return what it wrote.

    Args:
        command: The command, without `--result`.
        environment: Variables besides those of this process.
        expected: Exit codes that do not count as a failure.
    """
    with tempfile.NamedTemporaryFile("r", suffix=".result") as result:
        finish([*command, "--result", result.name], environment, expected)
        if not (text := result.read()):
            raise SystemExit(f"{' '.join(command)}: no result")
        return text


def finish(command: Sequence[str], environment: dict[str, str] | None = None, expected: Iterable[int] = (0,)) -> None:
    """Run a command to its end, in the folder of the runs. If it fails, exit with its output."""
    done = subprocess.run(
        command, cwd=os.environ["DDPMON_HOME"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {}), stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode not in expected:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout.decode()[-3000:]}")


@contextlib.contextmanager
def own_home() -> Iterator[Path]:
    """Set DDPMON_HOME to a temporary folder."""
    before = os.environ.get("DDPMON_HOME")
    with tempfile.TemporaryDirectory(prefix="dm-") as folder:
        os.environ["DDPMON_HOME"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop("DDPMON_HOME")
            if before is not None:
                os.environ["DDPMON_HOME"] = before


def make_run(
    name: str, world_size: int, *, nnodes: int = 1, host: str = "", age_s: float = 0.0, supervisor: int = 0
) -> runs.Run:
    """Create a run that began `age_s` ago. `supervisor` is its pid; 0 means this process."""
    run = runs.Run(
        id=runs.new_id(), name=name, argv=["true"], script="train.py", script_args=[], cwd="/",
        host=host or socket.gethostname(), boot_id=runs.boot_id(), created_at=time.time() - age_s,
        world_size=world_size, nnodes=nnodes, supervisor=runs.Process.of(supervisor or os.getpid()),
    )  # fmt: skip
    runs.create(run)
    return run


def hub_log(run: runs.Run) -> Path:
    """Return the path of the log that the run's hub writes."""
    return runs.run_dir(run.id) / "logs" / "hub.log"


def start_hub(run: runs.Run) -> subprocess.Popen[bytes]:
    """Start the hub of a run."""
    with hub_log(run).open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "ddpmon.hub", run.id], stdout=log, stderr=log)


def kill(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill processes that this one started, and wait for their ends."""
    for process in processes:
        process.kill()
        process.wait()


def wait_until(found: Callable[[], Found], what: str, seconds: float = 180.0) -> Found:
    """Call a function until it returns something true, and return that. Exit if that takes too long."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.05)
    return value


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, as the kernel counts them in nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in tasks) / 1e9


def options(description: str) -> argparse.ArgumentParser:
    """Return an argument parser that shows a program's docstring unchanged."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def middle(values: Sequence[float], digits: int = 2, unit: str = "") -> str:
    """Return the median of measured values with the lowest and the highest one."""
    return f"{statistics.median(values):.{digits}f}{unit} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def load() -> str:
    """Return the load of this machine as text, to print beside figures that depend on it."""
    return f"load of the last minute {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def print_head(*names: str) -> None:
    """Print the first two lines of a table in Markdown."""
    print_row(*names)
    print("|---" * len(names) + "|")


def print_row(*cells: object) -> None:
    """Print a line of a table in Markdown."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
