"""Measure what printing costs a rank whose output goes through the run's drain, beside one that prints into a file.

    python benchmarks/output.py [--ranks 8] [--lines 20000] [--megabytes 40] [--rounds 5]

Ranks are processes without torch that print at the same time. In turns they print into files, and into spools that a
real drain empties: flushed lines, and one burst in pieces of 64 KiB. Told are the medians of the slowest rank of each
round, and their ratio. Then all print 100 lines a second, and the drain's share of one core is told.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from launching import make_run

from ddpmon import runs
from ddpmon.launch import env

PRINTS = """
import os, sys, time
what, count = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
begin = time.perf_counter()
if what == "lines":
    for number in range(count):
        print("step", number, "loss 0.123456 accuracy 0.98765 lr 0.0001 samples/s 1234.5 eta 01:23:45 ....", flush=True)
elif what == "burst":
    piece = (b"x" * 127 + b"\\n") * 512
    for _ in range(count):
        os.write(1, piece)
else:
    for number in range(count):
        print("step", number, "loss 0.123456 accuracy 0.98765 lr 0.0001 samples/s 1234.5 eta 01:23:45 ....", flush=True)
        time.sleep(0.01)
with open(sys.argv[3], "w") as told:
    told.write(str(time.perf_counter() - begin))
"""


@contextlib.contextmanager
def drained(ranks: int) -> Iterator[tuple[str, int]]:
    """A run whose output is drained: its id, and the drain's pid."""
    run_id = make_run("output", ranks).id
    runs.make_socket_dir(run_id)
    with subprocess.Popen([sys.executable, "-P", "-m", "ddpmon.launch.drain", run_id, str(os.getpid())]) as drain:
        while not (runs.socket_dir(run_id) / "drain.sock").exists():
            time.sleep(0.01)
        try:
            yield run_id, drain.pid
        finally:
            drain.send_signal(signal.SIGTERM)
            drain.wait()
    runs.remove_sockets(run_id)


def slowest_s(ranks: int, what: str, count: int, folder: Path, run_id: str | None) -> float:
    """Return the seconds that the slowest rank takes to print. Without a run, ranks print into files."""
    started = []
    for rank in range(ranks):
        where = runs.socket_dir(run_id) if run_id else folder
        where = where / "ranks" / f"{what}_{time.monotonic_ns()}" / "attempt_0" / str(rank)
        where.mkdir(parents=True)
        environment = env.armed(run_id, os.environ) if run_id else dict(os.environ)
        told = folder / f"took-{rank}"
        with (where / "stdout.log").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", PRINTS, what, str(count), str(told)],
                stdin=subprocess.PIPE, stdout=out, env=environment | {"RANK": str(rank)},
            )  # fmt: skip
        started.append((process, told))
    time.sleep(0.5)  # all are there
    for process, _ in started:
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process, _ in started:
        process.wait()
        process.stdin.close()
    return max(float(told.read_text()) for _, told in started)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "s").mkdir(mode=0o700)
        os.environ |= {"DDPMON_HOME": str(folder / "home"), "DDPMON_RUNTIME_DIR": str(folder / "s")}
        with drained(given.ranks) as (run_id, drain):
            before = cpu_s(drain), time.monotonic()
            slowest_s(given.ranks, "steady", 1_000, folder, run_id)
            share = (cpu_s(drain) - before[0]) / (time.monotonic() - before[1])
            print(f"steady: {given.ranks} ranks x 100 lines/s: the drain takes {share:.1%} of a core")
            rss = next(line for line in Path(f"/proc/{drain}/status").read_text().splitlines() if "VmRSS" in line)
            print(f"drain: {rss.split()[1]} kB of memory")
        with drained(given.ranks) as (run_id, _):
            for what, count in (("lines", given.lines), ("burst", given.megabytes * 16)):
                took: dict[bool, list[float]] = {False: [], True: []}
                for _ in range(given.rounds):
                    for through in (False, True):
                        took[through].append(slowest_s(given.ranks, what, count, folder, run_id if through else None))
                file, spool = (statistics.median(took[through]) for through in (False, True))
                each = f"{1e6 * file / count:.1f} µs" if what == "lines" else f"{given.megabytes / file:.0f} MB/s"
                then = f"{1e6 * spool / count:.1f} µs" if what == "lines" else f"{given.megabytes / spool:.0f} MB/s"
                print(
                    f"{what}: {given.ranks} ranks x {count}, median of {given.rounds}: "
                    f"into a file {file:.3f} s ({each}), drained {spool:.3f} s ({then}), ratio {spool / file:.2f}"
                )


if __name__ == "__main__":
    main()
