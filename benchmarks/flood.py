"""Flood a hub with ranks of 1,000 steps a second: a hub that keeps up loses nothing, and a stopped hub slows nothing.

    python benchmarks/flood.py                 a minute each
    python benchmarks/flood.py --seconds 10    a quick look

First part: two ranks step as fast as possible for the given time; the output has the records that arrived and those
that were lost.
Second part: the same, but the hub is stopped (SIGSTOP) for the middle half of the time; the output has a rank's speed
and memory before, during and after that, measured inside the rank, and the losses that the report counts.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

from launching import options, own_home, result_of, wait_until, watched

from ddpmon import runs
from ddpmon.recording.recorded import recorded_report
from ddpmon.source import snapshot_now

SCRIPT = Path(__file__).with_name("rank_measures.py")


def stop_the_hub(seconds: float, window: list[float]) -> None:
    """Stop the hub of the run that begins now for half of its time, and record both moments in `window`."""
    run = wait_until(lambda: next(iter(runs.all_runs()), None), "no run came")
    wait_until(lambda: (shot := snapshot_now(run)) and shot.step > 0, "no steps came")
    hub = runs.load(run.id).hub
    assert hub is not None
    time.sleep(seconds / 4)
    os.kill(hub.pid, signal.SIGSTOP)
    window.append(time.time())
    time.sleep(seconds / 2)
    os.kill(hub.pid, signal.SIGCONT)
    window.append(time.time())


def flood(seconds: float, stopped: bool) -> None:
    """Run two ranks, and print how many of their records arrived."""
    window: list[float] = []
    stopping = threading.Thread(target=stop_the_hub, args=(seconds, window))
    if stopped:
        stopping.start()
    measured = json.loads(result_of([*watched(2, SCRIPT), "flood", "--seconds", str(seconds)]))
    lost, done = recorded_report(runs.find(None))["steps"]["records_lost"], measured["done"]
    name = "hub stopped for half of it" if stopped else "hub keeps up"
    print(f"{name}: {done / seconds:.0f} steps a second and rank; {lost:,} of {2 * done:,} lost")
    if not stopped:
        return
    stopping.join()
    begin, end = window
    for name, since, until in (("before", 0.0, begin), ("while", begin, end), ("after", end, time.time())):
        notes = [note for note in measured["notes"][2:] if since <= note[0] < until]
        rate = sum(note[1] for note in notes) / len(notes)
        memory_mb = max(note[2] for note in notes) / 1e6
        print(f"  {name:6} {rate:6.0f} steps/s, memory at most {memory_mb:.0f} MB", flush=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    for stopped in (False, True):
        with own_home():
            flood(seconds, stopped)


if __name__ == "__main__":
    main()
