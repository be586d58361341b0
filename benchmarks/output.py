"""Measure the cost of reading the output of ranks: the share of a core that a run's drain takes.

    python benchmarks/output.py [--ranks 8] [--lines-per-s 100] [--seconds 10]

The ranks are processes without torch. All of them print this many lines a second into the run's spools, which a real
drain empties.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
from launching import cpu_s, make_run, options, own_home, wait_until

from ddpmon import runs
from ddpmon.launch import probe_environment

PRINTS = """
import sys, time
for number in range(int(sys.argv[1])):
    print("step", number, "loss 0.123456 accuracy 0.98765 lr 0.0001 samples/s 1234.5 eta 01:23:45 ....", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def start_printing(run_id: str, rank: int, lines: int, pause_s: float) -> subprocess.Popen[bytes]:
    """Start a rank that prints into the run's spool."""
    folder = runs.socket_dir(run_id) / "ranks" / "output" / "attempt_0" / str(rank)
    folder.mkdir(parents=True)
    environment = probe_environment.rank_environment(run_id, os.environ) | {"RANK": str(rank)}
    with (folder / "stdout.log").open("wb") as out:
        return subprocess.Popen([sys.executable, "-c", PRINTS, str(lines), str(pause_s)], stdout=out, env=environment)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--lines-per-s", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    with own_home():
        run_id = make_run("output", given.ranks).id
        runs.make_socket_dir(run_id)
        drain = subprocess.Popen([sys.executable, "-P", "-m", "ddpmon.launch.drain", run_id, str(os.getpid())])
        wait_until((runs.socket_dir(run_id) / "drain.sock").exists, "the drain does not come")
        before, began = cpu_s(drain.pid), time.monotonic()
        lines = round(given.lines_per_s * given.seconds)
        ranks = [start_printing(run_id, rank, lines, 1 / given.lines_per_s) for rank in range(given.ranks)]
        for rank in ranks:
            rank.wait()
        share = (cpu_s(drain.pid) - before) / (time.monotonic() - began)
        memory_mb = psutil.Process(drain.pid).memory_info().rss / 1e6
        rate = f"{given.ranks} ranks x {given.lines_per_s} lines/s"
        print(f"{rate}: the drain takes {share:.1%} of a core, {memory_mb:.0f} MB")
        drain.send_signal(signal.SIGTERM)
        drain.wait()
        runs.remove_sockets(run_id)


if __name__ == "__main__":
    main()
