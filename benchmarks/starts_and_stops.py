"""Start and stop runs, half of them with a process killed at a random moment, and search for remains of them.

    python benchmarks/starts_and_stops.py --count 50 --seed 1

Most runs are cheap commands with children that daemonize; every tenth is torchrun with two ranks. A run may lose its
supervisor, its hub, its command, one of its children or one of each. It is stopped, or ends by itself, and is watched
until it has ended. A run that does not end, because a child of a dead command lives on, is stopped at last. Afterwards
none of its processes may live, and the folder of its sockets must be gone. Otherwise the exit code is 1.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import processes, start, stop, torchrun
from ddpmon.launch.adoption import adopt_run

sys.path.insert(0, str(Path(__file__).parent))
from launching import options, own_home

VICTIMS = ("supervisor", "hub", "command", "child", "all of them")
MOMENTS_S = (0.0, 2.0)
BY_ITSELF_S = 20.0
ENDED_S = 90.0
COMMAND = """
import os, subprocess, sys, time
if "RANK" not in os.environ:
    for _ in range(2):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
time.sleep(float(sys.argv[1]))
"""


@dataclass
class Outcome:
    """The results of all runs."""

    states: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    """One line for each run that left processes or folders behind, with their names."""


def begin(script: Path, *, with_torchrun: bool, seconds: float) -> runs.Run:
    run_id = runs.new_id()
    if with_torchrun:
        command = torchrun.launch_command(
            str(script), [str(seconds)], module=False, nproc=2, nodes=torchrun.NodeOptions(), max_restarts=0,
            grace_s=3.0, run_id=run_id, log_dir=str(runs.run_dir(run_id) / "logs" / "ranks"),
        )  # fmt: skip
    else:
        command = [sys.executable, str(script), str(seconds)]
    ranks = 2 if with_torchrun else 0
    wanted = start.new_run(
        run_id, name="many", argv=command, script=str(script), script_args=[], cwd=str(script.parent),
        world_size=ranks, grace_s=3.0,
    )  # fmt: skip
    return start.start_run(wanted)


def kill(run: runs.Run, victim: str, chance: random.Random) -> None:
    """Send SIGKILL to one process of a run, or to one of each kind."""
    run = runs.load(run.id)
    children = [process for process in processes.with_run_id(run.id) if process not in {run.agent, run.hub}]
    found = {
        "supervisor": run.supervisor,
        "hub": run.hub,
        "command": run.agent,
        "child": chance.choice(children) if children else None,
    }
    for process in found.values() if victim == "all of them" else [found[victim]]:
        if process is not None:
            processes.send_signal(process, signal.SIGKILL)


def see_it_end(run: runs.Run) -> runs.Run:
    """Watch a run, as a viewer does, until it has ended."""
    began = time.monotonic()
    while (at := time.monotonic() - began) < ENDED_S:
        run = adopt_run(run)
        if run.ended and not (run.supervisor and run.supervisor.alive()):
            return run
        if at > BY_ITSELF_S and not run.stopping:
            stop.request_stop(run)
        time.sleep(0.1)
    return run


def one(number: int, script: Path, chance: random.Random, outcome: Outcome) -> None:
    stopped = chance.random() < 0.5
    run = begin(script, with_torchrun=number % 10 == 3, seconds=600.0 if stopped else chance.uniform(0.0, 2.0))
    victim = chance.choice(VICTIMS) if number % 2 else None
    time.sleep(chance.uniform(*MOMENTS_S))
    if victim:
        kill(run, victim, chance)
        outcome.killed[victim] += 1
    if stopped:
        time.sleep(chance.choice((0.0, 0.2)))
        stop.request_stop(run, now=chance.random() < 0.3)
    ended = see_it_end(run)
    outcome.states[ended.state() if ended.ended else "not ended"] += 1
    deadline = time.monotonic() + 5.0  # Time for a hub that run.json does not name: it ends by itself.
    while (left := leftovers(run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left or not ended.ended:
        outcome.left.append(f"run {number} ({run.id}, killed: {victim}, stopped: {stopped}): {left or 'has not ended'}")


def leftovers(run: runs.Run) -> list[str]:
    """Return the remains of a run: command lines of processes, folders of sockets."""
    found = [f"process {process.pid}" for process in processes.with_run_id(run.id)]
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    found += [line for line in lines if run.id in line]
    if runs.socket_dir(run.id).exists():
        found.append(str(runs.socket_dir(run.id)))
    return found


def many(count: int, seed: int, folder: Path) -> Outcome:
    """Start and stop `count` runs, one after the other, in a folder of their own."""
    script = folder / "command.py"
    script.write_text(COMMAND)
    chance = random.Random(seed)
    outcome = Outcome()
    for number in range(count):
        try:
            one(number, script, chance, outcome)
        except DdpmonError as error:
            outcome.left.append(f"run {number}: {error}")
    return outcome


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with own_home() as folder:
        try:
            outcome = many(arguments.count, arguments.seed, folder)
        finally:
            for run in runs.all_runs():
                stop.request_stop(run, now=True)
    print(f"{arguments.count} runs with seed {arguments.seed}: {dict(outcome.states)}")
    print(f"killed: {dict(outcome.killed)}")
    print(f"something is left of {len(outcome.left)}")
    print("\n".join(outcome.left))
    sys.exit(bool(outcome.left))


if __name__ == "__main__":
    main()
