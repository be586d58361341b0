"""Attach to real jobs while they train and detach again, and compare each job with the same job without ddpmon.

    python benchmarks/attach.py --seed 1 --count 50

The jobs have two gloo ranks. They are started by torchrun, by torch.multiprocessing, with DataLoader workers, or with
Lightning if it is installed. ddpmon attaches at random moments: during all-reduces, in C code that holds the GIL, in
evaluations, beside threads that allocate memory. Each job is attached to and detached from several times, with ddpmon's
commands.

The output has the number of attaches, the jobs that crashed, hung or ended with other weights, the longest stop of a
rank (its longest step around an attach or detach, less the median step) and the time from the command to the first step
shown, with the job and the moment of the worst of each. With --straggler, it has the number of steps until a rank that
is 25% slower is named, after an attach and under `ddpmon run`. The exit code is 1 if a job was harmed.
"""

from __future__ import annotations

import array
import contextlib
import importlib.util
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import torch
from launching import DDPMON, TORCHRUN, options, own_home
from ports import free_port

JOB = Path(__file__).parent / "attach_job.py"
WAYS = ("ddp", "spawn", "workers", *(["lightning"] if importlib.util.find_spec("lightning") else []))
MOMENTS = ("any", "all-reduce", "C call", "evaluation", "allocation")
STEPS, ATTACHES_OF_A_JOB = 600, 4
LIMIT_S = 300.0
"""Seconds after which a job counts as hung."""
BETWEEN_S = (0.5, 3.0)
"""Shortest and longest time, in seconds, from one attach or detach to the next."""
AROUND_S = 2.0
"""A step that ends later than this many seconds after a command began is not delayed by that command."""
STEP = re.compile(r"\bstep ([\d,]+)")


@dataclass
class Figures:
    """The results of all jobs."""

    attaches: int = 0
    harmed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stops: list[tuple[float, str]] = field(default_factory=list)
    """Longest delay of a rank, in seconds, by each attach, with the name of the job; then by each detach."""
    detach_stops: list[tuple[float, str]] = field(default_factory=list)
    shown: list[tuple[float, str]] = field(default_factory=list)
    """Seconds from each command to the first step shown, with the name of the job."""


class Watching:
    """A running `ddpmon attach` or `run`, and its output so far, with the time of each line."""

    def __init__(self, *words: str) -> None:
        self.began = time.monotonic()
        self.lines: list[tuple[float, str]] = []
        self.process = subprocess.Popen(
            [*DDPMON, *words], text=True, bufsize=1,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append((time.monotonic(), line.rstrip()))

    def wait_for(self, pattern: str, limit_s: float) -> tuple[float, str] | None:
        """Return the first line that matches; None if it did not come in time, or if the command ended before."""
        while time.monotonic() - self.began < limit_s:
            ended = self.process.poll() is not None
            if found := next((line for line in list(self.lines) if re.search(pattern, line[1])), None):
                return found
            if ended:
                return None
            time.sleep(0.02)
        return None

    def steps_before(self, moment: float) -> int:
        """Return the count of steps that was shown last."""
        counts = [found[1] for at, line in self.lines if at <= moment and (found := STEP.search(line))]
        return int(counts[-1].replace(",", "")) if counts else 0


def command(way: str, moment: str, folder: Path, *options: str) -> list[str]:
    words = [str(JOB), way, moment, str(folder), *options]
    if way == "spawn":
        return [sys.executable, *words]
    return [*TORCHRUN, "--nproc-per-node", "2", *words]


@contextlib.contextmanager
def started(way: str, moment: str, folder: Path, steps: int) -> Iterator[subprocess.Popen]:
    """Yield a job that has begun to train; end its processes afterwards."""
    folder.mkdir()
    own = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with (folder / "output").open("w") as output:
        job = subprocess.Popen(
            command(way, moment, folder, "--steps", str(steps)),
            env=own, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (folder / "ends.1").exists() and job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        yield job
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def attach_and_detach(job: subprocess.Popen, name: str, figures: Figures) -> list[tuple[float, bool]]:
    """Attach once, wait for a step, and detach. Returns when each command began, and whether it was a detach."""
    watching = Watching("attach", "--pid", str(job.pid), "--headless", "--every", "0.2")
    shown = watching.wait_for(r"\bstep \d", 30.0)
    if shown is None:
        watching.process.kill()
        if job.poll() is None:
            figures.refused.append(" / ".join(line for _, line in watching.lines[-3:]) or "no step in 30 s")
        subprocess.run([*DDPMON, "detach"], capture_output=True, check=False)
        return [(watching.began, False)]
    figures.attaches += 1
    figures.shown.append((shown[0] - watching.began, name))
    time.sleep(0.5)
    leaving = time.monotonic()
    done = subprocess.run([*DDPMON, "detach"], capture_output=True, text=True, check=False)
    if done.returncode and job.poll() is None:
        figures.harmed.append(f"detach: {done.stdout} {done.stderr}")
    with contextlib.suppress(subprocess.TimeoutExpired):
        watching.process.wait(10)
    watching.process.kill()
    return [(watching.began, False), (leaving, True)]


def stops(folder: Path, name: str, entries: list[tuple[float, bool]], figures: Figures) -> None:
    """Add to `figures`, for each attach and detach, the longest step of a rank around it, less its median step."""
    ranks = []
    for rank in (0, 1):
        ends = array.array("d", (folder / f"ends.{rank}").read_bytes())
        ranks.append([(end, end - before) for before, end in pairwise(ends)])
    attaches = 0
    for begin, is_detach in entries:
        attaches += not is_detach
        longest = 0.0
        for steps in ranks:
            usual = statistics.median(length for _, length in steps)
            around = [length for end, length in steps if begin <= end - length + AROUND_S and begin <= end < begin + 5]
            longest = max([longest, *(length - usual for length in around)])
        stop = longest, f"{name}; attach {attaches} of the job"
        (figures.detach_stops if is_detach else figures.stops).append(stop)


def one_job(
    way: str,
    moment: str,
    bare: Path,
    folder: Path,
    chance: random.Random,
    figures: Figures,
) -> None:
    """Attach to a job several times, and check that it computes the same weights as the job without ddpmon."""
    name, entries = f"{way}, {moment}", []
    with started(way, moment, folder, STEPS) as job:
        for _ in range(ATTACHES_OF_A_JOB):
            time.sleep(chance.uniform(*BETWEEN_S))
            if job.poll() is None:
                entries += attach_and_detach(job, name, figures)
        try:
            code = job.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            figures.harmed.append(f"{name}: hung")
            return
    if code:
        figures.harmed.append(f"{name}: exit code {code}: {(folder / 'output').read_text()[-300:]}")
        return
    stops(folder, name, entries, figures)
    for rank in (0, 1):
        ours, theirs = (torch.load(where / f"weights.{rank}") for where in (folder, bare))
        if not all(torch.equal(ours[key], theirs[key]) for key in theirs):
            figures.harmed.append(f"{name}: other weights on rank {rank}")


def bare_job(way: str, moment: str, folder: Path) -> Path:
    with started(way, moment, folder, STEPS) as job:
        if job.wait(LIMIT_S):
            raise SystemExit(f"{way}, {moment}: fails without ddpmon: {(folder / 'output').read_text()[-1000:]}")
    return folder


def named_after(folder: Path, *, attached: bool) -> int | None:
    """Return the number of steps shown until rank 1, which is slow from the start, is named; None if it is not."""
    pattern = r"[!].*rank 1 is slow"
    if attached:
        with started("ddp", "slow", folder, 3 * STEPS) as job:
            watching = Watching("attach", "--pid", str(job.pid), "--headless", "--every", "0.2")
            return _named(watching, pattern)
    folder.mkdir()
    words = ["run", "--headless", "--every", "0.2", "--nproc", "2", str(JOB), "ddp", "slow", str(folder)]
    watching = Watching(*words, "--steps", str(3 * STEPS))
    return _named(watching, pattern)


def _named(watching: Watching, pattern: str) -> int | None:
    found = watching.wait_for(pattern, 120.0)
    steps = watching.steps_before(found[0]) if found else None
    subprocess.run([*DDPMON, "stop"], capture_output=True, check=False)
    with contextlib.suppress(subprocess.TimeoutExpired):
        watching.process.wait(30)
    watching.process.kill()
    return steps


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50, help="attaches, and as many detaches")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--moments", nargs="+", choices=MOMENTS, default=list(MOMENTS))
    parser.add_argument("--straggler", type=int, default=0, metavar="COUNT", help="jobs with a slow rank, of each kind")
    args = parser.parse_args()
    chance, figures, bare = random.Random(args.seed), Figures(), {}
    os.environ |= {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    with own_home(), tempfile.TemporaryDirectory(prefix="ddpmon-attach") as top:
        jobs = -(-args.count // ATTACHES_OF_A_JOB)
        for number in range(jobs):
            kind = way, moment = args.ways[number % len(args.ways)], args.moments[number % len(args.moments)]
            if kind not in bare:
                bare[kind] = bare_job(way, moment, Path(top) / f"bare{number}")
            before = len(figures.harmed)
            one_job(way, moment, bare[kind], Path(top) / str(number), chance, figures)
            print(f"{way}, {moment}: {figures.attaches} attaches so far", *figures.harmed[before:], flush=True)
        told = {
            word: [named_after(Path(top) / f"{word}{n}", attached=word == "attach") for n in range(args.straggler)]
            for word in ("run", "attach")
        }
    report(figures, jobs, told)
    return bool(figures.harmed)


def report(figures: Figures, jobs: int, told: dict[str, list[int | None]]) -> None:
    print(f"{figures.attaches} attaches and detaches, {jobs} jobs; harmed: {len(figures.harmed)}")
    for what, values in (
        ("longest stop of a rank, attach", figures.stops),
        ("longest stop of a rank, detach", figures.detach_stops),
        ("from the command to the first step shown", figures.shown),
    ):
        if values:
            worst_s, job = max(values)
            print(
                f"{what}: median {statistics.median(value for value, _ in values):.2f} s, worst {worst_s:.2f} s ({job})"
            )
    for line in (*(f"not entered: {one}" for one in figures.refused), *figures.harmed):
        print(line)
    for word, steps in told.items():
        if steps:
            print(f"straggler of 25% named after so many steps, {word}: {', '.join(map(str, steps))}")


if __name__ == "__main__":
    sys.exit(main())
