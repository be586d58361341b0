"""Measure how soon ddpmon shows something: the demo after an installation, and the commands that must answer at once.

    python benchmarks/first_picture.py [--count 3]
    python benchmarks/first_picture.py --before COMMIT [--count 25]

The output of the first command has medians, in seconds, over this many empty environments: of the installation of a
wheel of this checkout with pip, without torch (including pip's downloads, or from its cache), of `ddpmon demo` in an
80x24 terminal until its verdict is on the screen, and of `ddpmon --help`. The second command compares this checkout
with a commit: both take turns with commands, among 20 ended runs, and with the demo's first screen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from launching import load, make_run, middle, options, own_home, print_head, print_row

sys.path.insert(0, str(Path(__file__).parent.parent))
from ddpmon import runs
from ddpmon.cli.commands.replaying import unpack
from tests.tui.terminal import Terminal

ROOT = Path(__file__).parent.parent
HEAD = "RUNNING"
"""A word in the head of the demo's screen."""
ENDED_RUNS = 20
DEMO = "line"
"""Name of the recorded run that ships with ddpmon; it is one of the ended runs."""
COMMANDS = ("ls", f"status {DEMO}", "--help", "--version")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--count", type=int)
    parser.add_argument("--before", metavar="COMMIT", help="compare with this commit instead of installing")
    arguments = parser.parse_args()
    if arguments.before:
        compare(arguments.before, arguments.count or 25)
    else:
        install(arguments.count or 3)


def install(count: int) -> None:
    """Print the medians of installations into empty environments."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = built(Path(folder))
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        figures = [seconds_of_each(wheel, Path(folder) / str(number)) for number in range(count)]
    names = ("pip install", "ddpmon demo until its screen", "ddpmon --help", "from pip install to a picture")
    for name, *values in zip(names, *figures, strict=True):
        print(f"{name:<30} {middle(values, 2, ' s')}")


def built(folder: Path) -> Path:
    """Build a wheel of this checkout, and return its path."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(pip, check=True)
    return next(folder.glob("*.whl"))


def seconds_of_each(wheel: Path, folder: Path) -> tuple[float, float, float, float]:
    """Return the seconds of each part, in an environment of its own."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    began = time.monotonic()
    subprocess.run([folder / "bin/pip", "install", "-q", str(wheel)], check=True)
    installed = time.monotonic() - began
    assert subprocess.run([folder / "bin/python", "-c", "import torch"], capture_output=True, check=False).returncode
    program = str(folder / "bin/ddpmon")
    picture = seconds_of_demo(program)
    began = time.monotonic()
    subprocess.run([program, "--help"], stdout=subprocess.DEVNULL, check=True)
    return installed, picture, time.monotonic() - began, installed + picture


def seconds_of_demo(*program: str, **environment: str) -> float:
    """Return the seconds until the first screen of `ddpmon demo` is complete."""
    began = time.monotonic()
    with Terminal("demo", program=program, environment=environment) as terminal:
        terminal.wait_for(HEAD)
        picture = time.monotonic() - began
        terminal.press(b"q")
        terminal.wait_end()
    return picture


def compare(commit: str, count: int) -> None:
    """Print the medians of a commit and of this checkout, whose runs alternate. Both are compiled before."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with checked_out(commit) as before, own_home():
        unpack()
        for number in range(ENDED_RUNS - 1):
            run = make_run(f"train-{number}", 4, age_s=3600.0 * (ENDED_RUNS - number))
            runs.save(dataclasses.replace(run, ended_at=run.created_at + 60, exit_code=0))
        places = (str(before), str(ROOT))
        measured: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for turn in range(count + 1):
            for command in (*COMMANDS, "demo"):
                for place in places if turn % 2 else places[::-1]:
                    cpu_before = children_cpu_s()
                    seconds = seconds_of(command, place)
                    if turn:  # The first turn compiles.
                        measured.setdefault((command, place), []).append((seconds, children_cpu_s() - cpu_before))
    print(f"{count} runs of each, in turns, among {ENDED_RUNS} ended runs; {load()}")
    print_head("command", f"s at {commit}", "s here", f"CPU s at {commit}", "CPU s here")
    for command in (*COMMANDS, "demo"):
        times = [list(zip(*measured[command, place], strict=True)) for place in places]
        print_row(f"ddpmon {command}", *(middle(each[kind], 3) for kind in (0, 1) for each in times))


def children_cpu_s() -> float:
    """Return the CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="dm-") as folder:
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "ddpmon"], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def seconds_of(command: str, place: str) -> float:
    """Return the seconds that a command of the checkout in a folder takes; of the demo, until its first screen."""
    program = (sys.executable, "-P", "-m", "ddpmon")
    if command == "demo":
        return seconds_of_demo(*program, PYTHONPATH=place)
    began = time.monotonic()
    done = subprocess.run(
        [*program, *command.split()], stdout=subprocess.DEVNULL, check=False, env=os.environ | {"PYTHONPATH": place}
    )
    assert done.returncode in {0, 1}, "status returns 1 for a run that needed attention"
    return time.monotonic() - began


if __name__ == "__main__":
    main()
