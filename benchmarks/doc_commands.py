"""Run the commands of README, tutorial and how-tos as printed, in a clone of this checkout.

    python benchmarks/doc_commands.py                      all of these pages
    python benchmarks/doc_commands.py tutorial hang        pages with these names

Prints a line per command: its exit code and its seconds, or the reason for which it cannot run alone on one machine.
Exits with 1 if a command failed. `train.py` is a short training with two linear layers. Ctrl-C stops a command that
takes longer than --limit seconds, which counts as well; a busy machine needs more of them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from launching import options

from tests.test_docs import FIRST_READ, ROOT, blocks
from tests.tui.terminal import Terminal

PROGRAMS = {"ddpmon", "torchrun", "git"}
"""Lines that begin with another word install something, need another program, or are not commands."""
NOT_ALONE = {
    r"…|\b(CMD|CONFIG|K|RUN)\b": "a pattern",
    r"gpu07|node0|first:29400": "several machines",
    r"--pid 4711|ddpmon detach": "a job of the reader",
    r"--flops": "a GPU, or a peak in the config file",
    r"\b(deepspeed|ray|accelerate)\b": "another launcher",
    r"/var/lib|4318|0\.0\.0\.0": "a place or port of this machine",
}
"""Regular expressions for commands that cannot run alone here, and the reasons."""
LIVE = {"attach", "profile", "stack", "stop"}
"""Commands that need a run that is still running."""
KEYS = {"attach": b"q", "demo": b"q", "replay": b"q", "rm": b"y\r"}
"""Commands that need a terminal, and the keys that end them."""
LIMIT_S = 60.0
TRAIN = """
import argparse, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), args.lr * 1e-3)
data = torch.utils.data.TensorDataset(torch.randn(8 * args.steps, 64))
for (batch,) in torch.utils.data.DataLoader(data, 8, num_workers=args.workers):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
del model
dist.destroy_process_group()
"""
ENDED_RUN = "python -c 'from ddpmon.cli.commands.replaying import unpack; unpack()' && ddpmon rename line mnist"
LONG_RUN = "ddpmon run --headless --nproc 3 --name mnist training/linear_regression.py --fresh --epochs 100000"


def commands(page: Path) -> list[str]:
    """Return the command lines of a page, without comments at their ends."""
    lines = [re.split(r"\s{2,}#", raw)[0].strip() for raw in blocks(page)]
    return [line for line in lines if line.split()[0] in PROGRAMS]


def expected(line: str) -> set[int]:
    """Return the exit codes that a command may have here."""
    codes = {0, 130}  # 130 means stopped by Ctrl-C.
    if "--fail " in line or " status" in line or " stack" in line or "doctor" in line or "diff" in line:
        codes.add(1)  # These commands exit with 1 if they find what they look for.
    return codes


def run(line: str, folder: Path, environment: dict[str, str], limit_s: float = LIMIT_S) -> int:
    """Run a command, stop it after `limit_s`, and return its exit code."""
    words = line.split()
    if words[0] == "ddpmon" and words[1] in KEYS:
        return run_in_terminal(line, KEYS[words[1]], folder, environment)
    child = subprocess.Popen(
        ["bash", "-c", line], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        _, errors = child.communicate("y\n", limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGINT)
        _, errors = child.communicate()
        if words[0] != "ddpmon" or words[1] == "metrics":
            return 0  # Some programs end only by Ctrl-C, and each has its own exit code for it.
    if child.returncode not in expected(line):
        print(errors)
    return child.returncode


def run_in_terminal(line: str, keys: bytes, folder: Path, environment: dict[str, str]) -> int:
    """Run a command in a terminal, and press keys every few seconds until it ends."""
    command = ("env", "-C", str(folder), "bash", "-c", line)
    with Terminal(program=command, columns=120, rows=40, environment=environment) as terminal:
        pressed = time.monotonic()
        while terminal.process.poll() is None:
            terminal.read()
            if time.monotonic() - pressed > 5:
                pressed = time.monotonic()
                terminal.press(keys)
        return terminal.process.returncode


def prepare(folder: Path) -> tuple[Path, dict[str, str]]:
    """Clone this checkout, with train.py, a branch to compare with, and a run that has ended."""
    clone = folder / "ddpmon"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    (clone / "train.py").write_text(TRAIN)
    subprocess.run(["git", "branch", "-q", "feature"], cwd=clone, check=True)
    programs = folder / "bin"
    programs.mkdir()
    (programs / "mail").symlink_to(shutil.which("true") or "/bin/true")
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return clone, os.environ | {"DDPMON_HOME": str(folder / "home"), "PATH": path}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("page", nargs="*", help="names of pages, without .md; all if none")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="the longest that one may take")
    arguments = parser.parse_args()
    wanted = arguments.page
    failed = 0
    for page in FIRST_READ:
        if wanted and page.stem not in wanted:
            continue
        print(page.relative_to(ROOT))
        with tempfile.TemporaryDirectory(prefix="ddpmon-c") as name:
            folder, environment = prepare(Path(name))
            run(ENDED_RUN, folder, environment)
            live = None
            for line in commands(page):
                reason = next((why for what, why in NOT_ALONE.items() if re.search(what, line)), None)
                if reason:
                    print(f"      -  {line}  ({reason})")
                    continue
                words = line.split()
                if words[0] == "ddpmon" and words[1] in LIVE and live is None:
                    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                    live = subprocess.Popen(LONG_RUN.split(), cwd=folder, env=environment, **quiet)
                    time.sleep(10)
                began = time.monotonic()
                code = run(line, folder, environment, arguments.limit)
                if words[:2] == ["ddpmon", "stop"]:
                    live = None
                failed += code not in expected(line)
                verdict = "ok" if code in expected(line) else "FAILED"
                print(f"{verdict:>7}  {line}  (exit code {code}, {time.monotonic() - began:.0f} s)", flush=True)
            subprocess.run(["ddpmon", "stop", "--now"], env=environment, capture_output=True, check=False)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
