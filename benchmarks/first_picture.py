"""Go from nothing to a picture: a wheel of this checkout in an empty environment, without torch, and the demo on a
screen.

    python benchmarks/first_picture.py [--count 3]

Prints seconds, medians of so many environments: the installation with pip (what it downloads included, or taken from
pip's cache), `ddpmon demo` in a terminal of 80x24 until its verdict is on the screen, and `ddpmon --help`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyte

ROOT = Path(__file__).parent.parent
SHOWN = "RUNNING"
"""In the head of the demo's screen."""
LONGEST_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        wheel = built(Path(folder))
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        figures = [once(wheel, Path(folder) / str(number)) for number in range(count)]
    names = ("pip install", "ddpmon demo until its screen", "ddpmon --help", "from pip install to a picture")
    for name, *values in zip(names, *figures, strict=True):
        print(f"{name:<30} {statistics.median(values):6.2f} s  ({min(values):.2f} to {max(values):.2f})")


def built(folder: Path) -> Path:
    """A wheel of this checkout."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(pip, check=True)
    return next(folder.glob("*.whl"))


def once(wheel: Path, folder: Path) -> tuple[float, float, float, float]:
    """Seconds of each part, in an environment of its own."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    began = time.monotonic()
    subprocess.run([folder / "bin/pip", "install", "-q", str(wheel)], check=True)
    installed = time.monotonic() - began
    assert subprocess.run([folder / "bin/python", "-c", "import torch"], capture_output=True, check=False).returncode
    program = str(folder / "bin/ddpmon")
    picture = until_shown(program)
    began = time.monotonic()
    subprocess.run([program, "--help"], stdout=subprocess.DEVNULL, check=True)
    return installed, picture, time.monotonic() - began, installed + picture


def until_shown(program: str) -> float:
    """Seconds until the demo's head is on the screen."""
    began = time.monotonic()
    screen = pyte.Screen(80, 24)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(program, [program, "demo"], {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"})
    try:
        while SHOWN not in "\n".join(screen.display):
            assert time.monotonic() - began < LONGEST_S, "\n".join(screen.display)
            if select.select([terminal], [], [], 0.5)[0]:
                stream.feed(os.read(terminal, 1 << 16))
        shown = time.monotonic() - began
        os.write(terminal, b"q")
        while os.waitpid(pid, os.WNOHANG) == (0, 0):  # it restores the terminal, which is to be read
            if select.select([terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # EIO: it has closed its end, and is about to be gone
                    os.read(terminal, 1 << 16)
        return shown
    finally:
        os.close(terminal)


if __name__ == "__main__":
    main()
