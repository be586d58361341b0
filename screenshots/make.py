"""Makes the pictures of this folder from real runs: `python screenshots/make.py`.

Starts four ranks on the shipped digits with one of them late, waits until the verdict names it, and takes what the
dashboard shows of that run, as SVG, at the sizes below.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"  # read when textual is imported: the picture has no terminal to ask

from ddpmon import runs, source
from ddpmon.launch import stop
from ddpmon.messages import Snapshot
from ddpmon.tui.app import DdpmonApp

HERE = Path(__file__).parent
SIZES = {"world": (120, 36), "world-80x24": (80, 24)}
STRAGGLER = ["--slow", "data:2:60", "--epochs", "100"]
STEPS = 150
PATIENCE_S = 180


def wait_for_verdict(watched: source.Source) -> Snapshot:
    """The first snapshot in which the late rank has been named for a while."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        snapshot = watched.snapshot()
        if snapshot is not None and snapshot.state == "slow" and snapshot.step >= STEPS:
            return snapshot
        if snapshot is not None and snapshot.run.ended_at is not None:
            break
        time.sleep(0.2)
    raise SystemExit("the run never came to a verdict; try again on a quieter machine")


def self_contained(svg: str) -> str:
    """The picture with the viewer's own monospaced font, instead of one fetched from elsewhere."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code,", "'Fira Code','DejaVu Sans Mono',Menlo,Consolas,")


async def take(watched: source.Source, name: str, size: tuple[int, int]) -> None:
    """What the dashboard shows now, as SVG."""
    app = DdpmonApp(watched)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(1.5)
        svg = app.export_screenshot(title=f"ddpmon run --nproc 4 training/mnist.py {' '.join(STRAGGLER[:2])}")
        (HERE / f"{name}.svg").write_text(self_contained(svg))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ddpmon-s") as home:
        os.environ["DDPMON_HOME"] = home
        script = HERE.parent / "training" / "mnist.py"
        command = [sys.executable, "-m", "ddpmon", "run", "--headless", "--name", "digits", "--nproc", "4"]
        started = subprocess.Popen(
            [*command, str(script), *STRAGGLER, "--checkpoint", f"{home}/digits.pt"], stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 30
            while not runs.all_runs() and time.monotonic() < deadline:
                time.sleep(0.1)
            run = runs.find("digits")
            watched = source.attach(run)
            wait_for_verdict(watched)
            for name, size in SIZES.items():
                asyncio.run(take(watched, name, size))
            watched.close()
        finally:
            for run in runs.all_runs():
                stop.request(run, now=True)
            started.wait(60)


if __name__ == "__main__":
    main()
