"""Measure the way from nothing to a first screen: install a wheel of this checkout without torch, and show the demo.

    python benchmarks/first_picture.py [--count 3]

The output has medians, in seconds, over this many empty environments: of the installation with pip (including its
downloads, or from pip's cache), of `ddpmon demo` in an 80x24 terminal until its verdict is on the screen, and of
`ddpmon --help`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launching import middle, options

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.tui.terminal import Terminal

ROOT = Path(__file__).parent.parent
HEAD = "RUNNING"
"""A word in the head of the demo's screen."""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--count", type=int, default=3)
    count = parser.parse_args().count
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
    began = time.monotonic()
    with Terminal("demo", program=(program,)) as terminal:
        terminal.wait_for(HEAD)
        picture = time.monotonic() - began
        terminal.press(b"q")
        terminal.wait_end()
    began = time.monotonic()
    subprocess.run([program, "--help"], stdout=subprocess.DEVNULL, check=True)
    return installed, picture, time.monotonic() - began, installed + picture


if __name__ == "__main__":
    main()
