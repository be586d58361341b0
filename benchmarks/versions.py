"""Check which versions of torch the probe works with: the tests' ways of training, bare and watched, on each.

    python benchmarks/versions.py [--only 2.6 ...] [--keep FOLDER]

Each version gets a virtual environment of its own with this ddpmon (5 GB; from the package registry, deleted afterwards
unless --keep). In it, tests/probe/scripts/ways.py and small_ddp.py train with two ranks: bare, under `ddpmon run` and
under `ddpmon exec`. The output for each version: how many ways work bare; how many of those, watched, end with
bit-identical weights; how many of their steps were recorded; and ddpmon's messages.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from launching import options, own_home, print_head, print_row

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ddpmon import runs  # noqa: E402
from ddpmon.errors import DdpmonError  # noqa: E402
from ddpmon.recording.recorded import recorded_snapshot  # noqa: E402
from ddpmon.recording.recording import Recording  # noqa: E402
from tests.probe.test_ways import STEPS  # noqa: E402

VERSIONS = ("2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")
SCRIPTS = ROOT / "tests" / "probe" / "scripts"
SMALL, SMALL_STEPS = "small_ddp", 30
TIMEOUT_S = 300
QUIET = {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    # At its exit, torch 2.4 waits for inductor's compile workers, sometimes for ever.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
IDENTICAL = """
import sys, torch
kinds, ways = sys.argv[1].split(","), sys.argv[2:]
same = 0
for way in ways:
    pairs = [[torch.load(f"{kind}.{way}.{rank}") for kind in kinds] for rank in (0, 1)]
    same += all(a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in pairs)
print(same)
"""
"""A script that counts the ways of training that ended with equal weights. The torch that wrote the weights runs it."""


@dataclass
class Outcome:
    """The results of one version under one command."""

    version: str
    command: str
    ways: int = 0
    identical: int = 0
    steps: list[int] = field(default_factory=list)
    """Recorded steps of each rank."""
    expected: list[int] = field(default_factory=list)
    says: list[str] = field(default_factory=list)

    def print_row(self) -> None:
        steps = " ".join(f"{seen}/{of}" for seen, of in zip(self.steps, self.expected, strict=False))
        identical = f"{self.identical}/{self.ways}"
        print_row(self.version, self.command, self.ways, identical, steps, "; ".join(self.says))


class Environment:
    """A virtual environment with one version of torch and this ddpmon."""

    def __init__(self, version: str, folder: Path) -> None:
        self.folder = folder / version
        self.python = str(self.folder / "bin" / "python")
        if not self.folder.exists():
            subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)
        pip = [self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-cache-dir"]
        subprocess.run([*pip, f"torch=={version}.*", str(ROOT)], check=True)
        # The present version of ddpmon.
        subprocess.run([*pip, "--force-reinstall", "--no-deps", str(ROOT)], check=True)
        program = "import importlib.metadata as m; print(m.version('torch'))"
        self.torch = subprocess.check_output([self.python, "-c", program], text=True).strip()
        self.torchrun = [self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        program = [self.python, "-P", "-m", "ddpmon"]
        self.commands = {
            "run": [*program, "run", "--headless", "--nproc=2"],
            "exec": [*program, "exec", "--headless", "--", *self.torchrun],
        }

    def call(self, command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | QUIET
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )  # fmt: skip
        try:
            printed = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            subprocess.run([self.python, "-P", "-m", "ddpmon", "stop", "--now"], env=env, check=False)
            os.killpg(process.pid, signal.SIGKILL)
            printed = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, *printed)


def ways_without_us(env: Environment, work: Path) -> list[str]:
    """Return the ways of training that work bare with this torch."""
    ways = list(STEPS)
    env.call([*env.torchrun, str(SCRIPTS / "small_ddp.py"), "--save", f"bare.{SMALL}"], work)
    while ways:
        done = env.call([*env.torchrun, str(SCRIPTS / "ways.py"), *ways, "--save", "bare"], work)
        if done.returncode == 0:
            break
        fails = next(way for way in ways if not all((work / f"bare.{way}.{rank}").exists() for rank in (0, 1)))
        print(f"{env.torch}: {fails} does not work bare: {last_line(done.stderr)}", flush=True)
        ways.remove(fails)
        for left in (path for way in STEPS for path in work.glob(f"bare.{way}.?")):
            left.unlink()
    return [*ways, SMALL]


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "Error" in line and "elastic" not in line]
    return lines[0].partition("]:")[2][:150] if lines else "?"


def watched(env: Environment, command: str, ways: list[str], work: Path) -> Outcome:
    """Run all ways under one command of ddpmon."""
    outcome = Outcome(env.torch, command, len(ways))
    scripts = {
        "ways.py": [*(way for way in ways if way != SMALL), "--save", command],
        "small_ddp.py": ["--steps", str(SMALL_STEPS), "--save", f"{command}.{SMALL}"],
    }
    outcome.expected = [sum(STEPS.get(way, (SMALL_STEPS,) * 2)[rank] for way in ways) for rank in (0, 1)]
    outcome.steps = [0, 0]
    for script, arguments in scripts.items():
        done = env.call([*env.commands[command], str(SCRIPTS / script), *arguments], work)
        if done.returncode:
            outcome.says.append(f"{script}: exit {done.returncode}: {(done.stdout + done.stderr)[-300:]!r}")
            continue
        run = runs.find(None)
        try:
            with Recording(run) as recording:
                for rank, process in recording.registry().process_of_rank.items():
                    outcome.steps[rank] += len(recording.steps.whole_steps(process.id, 1, 1 << 40))
            outcome.says += [note for note in recorded_snapshot(run).notes if note not in outcome.says]
        except DdpmonError as error:
            outcome.says.append(str(error))
        logs = [path.read_text() for path in (runs.run_dir(run.id) / "logs").rglob("*.log")]
        outcome.says += [line for log in logs for line in log.splitlines() if line.startswith("ddpmon:")]
    compared = env.call([env.python, "-c", IDENTICAL, f"bare,{command}", *ways], work)
    outcome.identical = int(compared.stdout) if compared.returncode == 0 else 0
    return outcome


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", action="append", metavar="VERSION", help="such as 2.6; may be given several times")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where environments are kept for the next time")
    arguments = parser.parse_args()
    print_head("torch", "command", "ways", "identical", "steps of each rank", "notes")
    for version in arguments.only or VERSIONS:
        with own_home(), tempfile.TemporaryDirectory(prefix="ddpmon-v") as name:
            work = Path(name) / "work"
            work.mkdir()
            try:
                env = Environment(version, (arguments.keep or Path(name)).absolute())
                ways = ways_without_us(env, work)
                for command in env.commands:
                    watched(env, command, ways, work).print_row()
            except (subprocess.SubprocessError, OSError) as error:
                print_row(version, "", "", "", "", str(error)[:200])


if __name__ == "__main__":
    main()
