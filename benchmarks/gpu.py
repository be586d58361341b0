"""Measure watching on a GPU: steps per second bare and watched, run-ahead, weights, and the phases.

    python benchmarks/gpu.py               needs one CUDA device; about fifteen minutes
    python benchmarks/gpu.py --pairs 1     a quick look: four minutes

Cases: one nccl rank (resnet18, a small transformer) and two gloo ranks that share the device. Bare and watched runs
alternate. `ahead` is how long the device still works after the host has left the loop: if watching shortened it to
nothing, it would have synchronised. Weights are compared bit by bit, and the last loss with that in the recording.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from launching import bare, middle, options, own_home, result_of, watched

from ddpmon import runs
from ddpmon.messages import MAX_STEP, OWN_PHASES, Step
from ddpmon.recording.recorded import recorded_report
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
LAUNCHERS = {"bare": bare, "watched": watched}
WARM_UP_STEPS = 40


def run(launcher: str, nproc: int, arguments: list[str]) -> dict:
    """Return the measurements that a run made of itself."""
    return json.loads(result_of([*LAUNCHERS[launcher](nproc, SCRIPT), *arguments], {"OMP_NUM_THREADS": "4"}))


def recorded() -> list[list[Step]]:
    """Return the recorded steps of each rank of the latest run."""
    with Recording(runs.find(None)) as recording:
        ranks = sorted(recording.processes(), key=lambda process: process.rank)
        return [recording.steps.whole_steps(process.id, 1, MAX_STEP) for process in ranks]


def mean_ms(steps: list[Step], name: str) -> float:
    """Return the mean of one time, in ms, over all steps after the warm-up."""
    return statistics.fmean(getattr(step, f"{name}_us") for step in steps[WARM_UP_STEPS:]) / 1000


def print_case(name: str, nproc: int, arguments: list[str], count: int) -> None:
    """Compare bare and watched runs, and the last watched one with its recording."""
    found: dict[str, list[dict]] = {launcher: [] for launcher in LAUNCHERS}
    for number in range(count):
        for launcher in LAUNCHERS if number % 2 == 0 else reversed(LAUNCHERS):
            found[launcher].append(run(launcher, nproc, arguments))
    ratios = [two["steps_per_s"] / one["steps_per_s"] for one, two in zip(*found.values(), strict=True)]
    weights = {facts["weights"] for side in found.values() for facts in side}
    for launcher, side in found.items():
        rate, ahead_ms = (statistics.median(facts[key] for facts in side) for key in ("steps_per_s", "ahead_ms"))
        print(f"{name}, {launcher}: {rate:.2f} steps/s, ahead {ahead_ms:.1f} ms")
    print(f"  ratio {middle(ratios, 4)}; weights {'identical' if len(weights) == 1 else 'DIFFER'}")
    first, last = recorded()[0], found["watched"][-1]
    print(
        f"  recorded: step {mean_ms(first, 'length'):.2f} ms against {1000 / last['steps_per_s']:.2f} ms measured in"
        f" the script; last loss {first[-1].loss!r} against {last['loss']!r}",
        flush=True,
    )


def print_fault(name: str, arguments: list[str]) -> None:
    """Print the verdict on a run, and the means of its phases."""
    run("watched", 2, ["--backend", "gloo", "--steps", "100", *arguments])
    print(f"two gloo ranks with {name}: {recorded_report(runs.find(None))['verdict']}; mean ms per step")
    for rank, steps in enumerate(recorded()):
        length, phases = mean_ms(steps, "length"), [mean_ms(steps, phase) for phase in OWN_PHASES]
        split = "  ".join(f"{phase} {value:.2f}" for phase, value in zip(OWN_PHASES, phases, strict=True))
        print(f"  rank {rank}: step {length:.2f}  {split}  blocked {length - sum(phases):.2f}", flush=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    with own_home():
        for name, nproc, arguments in CASES:
            print_case(name, nproc, arguments, args.pairs)
        for name, arguments in FAULTS:
            print_fault(name, arguments)


if __name__ == "__main__":
    main()
