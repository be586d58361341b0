"""Ranks of 1,000 steps a second: nothing is lost with a hub that keeps up, and nothing slows down when it is stopped.

    python benchmarks/flood.py                 a minute each
    python benchmarks/flood.py --seconds 10    a quick look

First part: two ranks step as fast as told for the time given; printed are the records that arrived and were lost.
Second part: the same, and the hub is stopped (SIGSTOP) for the middle half of the time; printed are the ranks' speed
and memory before, while and after, measured inside the ranks, and the losses that the report counts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RATE = 1000.0


def rank(seconds: float, folder: str) -> None:
    """Runs inside a rank: paced optimizer steps, speed and memory noted four times a second."""
    import psutil
    import torch

    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    process = psutil.Process()
    notes = []
    began = noted = time.monotonic()
    done = before = 0
    while (now := time.monotonic()) - began < seconds:
        if now - noted >= 0.25:
            notes.append((time.time(), (done - before) / (now - noted), process.memory_info().rss))
            noted, before = now, done
        if (now - began) * RATE >= done:
            weight.square().sum().backward()
            optimizer.step()
            done += 1
        else:
            time.sleep(0.0002)
    (Path(folder) / f"{os.environ['RANK']}.json").write_text(json.dumps({"done": done, "notes": notes}))


def run(seconds: float, home: Path, stopped: bool) -> None:
    for old in home.glob("*.json"):
        old.unlink()
    env = os.environ | {"DDPMON_HOME": str(home / "ddpmon"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ddpmon"]
    watcher = subprocess.Popen(
        [*command, "run", "--headless", "--nproc", "2", __file__, "--inside", str(home), "--seconds", str(seconds)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    window = (0.0, 0.0)
    if stopped:
        run_json = wait_for(lambda: newest_run(home))
        hub = wait_for(lambda: (json.loads(run_json.read_text()).get("hub") or {}).get("pid"))
        wait_for(lambda: steps_recorded(run_json.parent))
        time.sleep(seconds / 4)
        os.kill(hub, signal.SIGSTOP)
        began = time.time()
        time.sleep(seconds / 2)
        os.kill(hub, signal.SIGCONT)
        window = (began, time.time())
    watcher.wait()
    report = json.loads(
        subprocess.run([*command, "report", "--format", "json"], env=env, capture_output=True, check=True).stdout
    )
    ranks = [json.loads((home / f"{number}.json").read_text()) for number in (0, 1)]
    done = sum(facts["done"] for facts in ranks)
    print(
        f"{'hub stopped for half of it' if stopped else 'hub keeps up'}: {done:,} steps done at "
        f"{done / seconds / 2:.0f} a second and rank; lost {report['steps']['records_lost']:,}",
        flush=True,
    )
    if stopped:
        for name, inside in (
            ("before", lambda at: at < window[0]),
            ("while", lambda at: window[0] <= at < window[1]),
            ("after", lambda at: at >= window[1]),
        ):
            notes = [note for facts in ranks for note in facts["notes"][2:] if inside(note[0])]
            rate = sum(note[1] for note in notes) / len(notes)
            memory = max(note[2] for note in notes) / 1e6
            print(f"  {name:6} {rate:6.0f} steps/s a rank, memory at most {memory:.0f} MB")


def newest_run(home: Path) -> Path | None:
    found = sorted((home / "ddpmon" / "runs").glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found and time.time() - found[-1].stat().st_mtime < 60 else None


def steps_recorded(folder: Path) -> bool:
    return (folder / "telemetry.db-wal").exists() and (folder / "telemetry.db-wal").stat().st_size > 200_000


def wait_for(what):
    deadline = time.monotonic() + 60
    while not (found := what()):
        if time.monotonic() > deadline:
            raise SystemExit("the run did not come up")
        time.sleep(0.1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        rank(args.seconds, args.inside)
        return
    for stopped in (False, True):
        with tempfile.TemporaryDirectory(prefix="ddpmon-f") as home:
            run(args.seconds, Path(home), stopped)


if __name__ == "__main__":
    main()
