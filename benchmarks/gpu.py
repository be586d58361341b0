"""Watching on a GPU: steps per second bare and watched, run-ahead, weights, and what the phases say.

    python benchmarks/gpu.py               needs one CUDA device; about fifteen minutes
    python benchmarks/gpu.py --pairs 1     a quick look: four minutes

Cases: one nccl rank (resnet18, a small transformer) and two gloo ranks that share the device. Bare and watched runs
alternate. `ahead` is how long the device still works after the host has left the loop: watching must not shorten it to
nothing, for then it would have synchronised. Weights are compared bit by bit, and the last loss with the recording's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ddpmon import runs
from ddpmon.messages import MAX_STEP, Step
from ddpmon.recording.recording import Recording

SCRIPT = Path(__file__).parent / "gpu_steps.py"
CASES = (
    ("one nccl rank, resnet18", 1, ["--model", "resnet18"]),
    ("one nccl rank, transformer", 1, ["--model", "transformer"]),
    ("two gloo ranks, resnet18", 2, ["--model", "resnet18", "--backend", "gloo", "--steps", "100"]),
)
FAULTS = (
    ("nothing", []),
    ("40 matrix products of 4096 in rank 1's forward", ["--slow-rank", "1", "--slow-work", "40"]),
    ("30 ms of sleep in rank 1", ["--slow-rank", "1", "--slow-data-ms", "30"]),
)
PHASES = ("data", "forward", "backward", "optimizer", "other")
WARM_UP_STEPS = 40


def run(watched: bool, nproc: int, arguments: list[str], home: Path) -> dict:
    result = home / "result.json"
    launcher = (
        [sys.executable, "-m", "ddpmon", "run", "--headless", "--nproc", str(nproc)]
        if watched
        else [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
    )
    done = subprocess.run(
        [*launcher, str(SCRIPT), *arguments, "--result", str(result)],
        env=os.environ | {"DDPMON_HOME": str(home / "ddpmon"), "OMP_NUM_THREADS": "4"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return json.loads(result.read_text())


def recorded(home: Path) -> list[list[Step]]:
    """Return the recorded steps of each rank of the latest run."""
    os.environ["DDPMON_HOME"] = str(home / "ddpmon")
    latest = max(runs.all_runs(), key=lambda run: run.created_at)
    with Recording(latest) as recording:
        ranks = sorted(recording.processes(), key=lambda process: process.rank)
        return [recording.steps(process.id, 1, MAX_STEP) for process in ranks]


def mean_ms(steps: list[Step], name: str) -> float:
    """Return the mean of a time of all steps after the warm-up."""
    return statistics.fmean(getattr(step, f"{name}_us") for step in steps[WARM_UP_STEPS:]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ddpmon-g") as folder:
        home = Path(folder)
        for name, nproc, arguments in CASES:
            pairs = []
            for number in range(args.pairs):
                order = (False, True) if number % 2 == 0 else (True, False)
                facts = {watched: run(watched, nproc, arguments, home) for watched in order}
                pairs.append((facts[False], facts[True]))
            bare, watched = zip(*pairs, strict=True)
            rates = [statistics.median(f["steps_per_s"] for f in side) for side in (bare, watched)]
            ahead = [statistics.median(f["ahead_ms"] for f in side) for side in (bare, watched)]
            ratios = sorted(w["steps_per_s"] / b["steps_per_s"] for b, w in pairs)
            weights = {f["weights"] for pair in pairs for f in pair}
            print(
                f"{name}: bare {rates[0]:.2f}, watched {rates[1]:.2f} steps/s, ratio median "
                f"{statistics.median(ratios):.4f} ({ratios[0]:.4f} to {ratios[-1]:.4f}, {len(pairs)} pairs); "
                f"ahead {ahead[0]:.1f} and {ahead[1]:.1f} ms; weights "
                f"{'identical' if len(weights) == 1 else f'DIFFER ({len(weights)} kinds)'}",
                flush=True,
            )
            first = recorded(home)[0]
            loss, length = first[-1].loss, mean_ms(first, "length")
            print(
                f"  recorded: step {length:.2f} ms against {1000 / watched[-1]['steps_per_s']:.2f} ms measured "
                f"in the script; last loss {loss!r} against {watched[-1]['loss']!r}",
                flush=True,
            )
        for name, arguments in FAULTS:
            run(True, 2, ["--backend", "gloo", "--steps", "100", *arguments], home)
            print(f"two gloo ranks with {name}: mean ms per step")
            for rank, steps in enumerate(recorded(home)):
                length, phases = mean_ms(steps, "length"), [mean_ms(steps, phase) for phase in PHASES]
                split = "  ".join(f"{p} {value:.2f}" for p, value in zip(PHASES, phases, strict=True))
                print(f"  rank {rank}: step {length:.2f}  {split}  blocked {length - sum(phases):.2f}", flush=True)


if __name__ == "__main__":
    main()
