"""Measure what a dashboard over ssh costs: bytes on the line a second, and the time to its first screen.

    python benchmarks/ssh_rate.py [--ranks 64] [--seconds 20] [--times 5]

A real hub has synthetic ranks at work (synthetic_ranks.py: every value of every rank differs in each snapshot, which no
real run comes near). A real `ddpmon _relay` is read as fast as it writes, on a pipe in place of ssh, so the count is of
the bytes that ssh would encrypt. The output has a line for each screen that requests parts of its own, with the size of
the snapshots themselves at the same moments; then the time from the relay's start to its first snapshot, to which a
login's own time is added. All figures are medians.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

from launching import load, middle, options
from synthetic_ranks import world_at_work

from ddpmon import runs
from ddpmon.messages import SeriesRequest, Snapshot, TimelineRequest, ViewRequest, encode
from ddpmon.messages.changes import apply_changes
from ddpmon.remote.channel import GREETING, Framer, Shot, Taken, Unframer, Want, from_there

SCREENS = {
    "World": ViewRequest(),
    "Heat": ViewRequest(heat=SeriesRequest(rows=32, columns=64, beyond_chance=True)),
    "Comm": ViewRequest(cost="window"),
    "Timeline": ViewRequest(timeline=TimelineRequest(rows=16)),
}
SETTLE_S = 3.0


class Relay:
    """A relay and the near end of its line."""

    def __init__(self, run: runs.Run) -> None:
        self._began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ddpmon", "_relay", run.id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._framer, self._unframer = Framer(), Unframer()
        self._base: Snapshot | None = None
        self._greeted = b""
        self.came_bytes = 0

    def _send(self, message: Taken | Want) -> None:
        self._process.stdin.write(self._framer.frame(message))

    def request_view(self, view_request: ViewRequest) -> None:
        self._send(Want(view_request))

    def read(self, seconds: float) -> list[Snapshot]:
        """Return the snapshots that come within so many seconds; only the first one, if none came before."""
        end = time.perf_counter() + seconds
        found: list[Snapshot] = []
        while (left := end - time.perf_counter()) > 0:
            if not select.select([self._process.stdout], [], [], left)[0]:
                continue
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise SystemExit("the relay has ended")
            self.came_bytes += len(data)
            if not self._greeted.endswith(b"\n>"):
                whole = self._greeted + data
                greeting = GREETING.search(whole)
                self._greeted, data = (b"\n>", whole[greeting.end() :]) if greeting else (whole, b"")
            for message in map(from_there, self._unframer.feed(data)):
                if isinstance(message, Shot):
                    self._send(Taken())
                    self._base = apply_changes(self._base, message.changes)
                    found.append(self._base)
        return found

    def first_s(self) -> float:
        """Return the seconds from its start to its first snapshot."""
        while not self.read(0.01):
            pass
        return time.perf_counter() - self._began

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)


def rate(run: runs.Run, view_request: ViewRequest, seconds: float) -> tuple[float, float, float, float]:
    """Measure the line of a screen.

    Returns:
        Bytes a second, snapshots a second, bytes of the first snapshot, and bytes a second of the plain snapshots.
    """
    relay = Relay(run)
    try:
        relay.first_s()
        first_bytes = relay.came_bytes
        relay.request_view(view_request)
        relay.read(SETTLE_S)
        before, began = relay.came_bytes, time.perf_counter()
        shots = relay.read(seconds)
        took = time.perf_counter() - began
        return (
            (relay.came_bytes - before) / took,
            len(shots) / took,
            first_bytes,
            sum(map(len, map(encode, shots))) / took,
        )
    finally:
        relay.close()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--times", type=int, default=5, help="of the first snapshot")
    given = parser.parse_args()
    with world_at_work(given.ranks) as run:
        print(f"{given.ranks} ranks, {given.seconds:g} s each; {load()}")
        print(f"{'screen':<10} {'KB/s':>6} {'a second':>9} {'first KB':>9} {'as they are KB/s':>17}")
        for name, view_request in SCREENS.items():
            came, often, first, plain = rate(run, view_request, given.seconds)
            print(f"{name:<10} {came / 1e3:>6.2f} {often:>9.2f} {first / 1e3:>9.1f} {plain / 1e3:>17.1f}", flush=True)
        times = []
        for _ in range(given.times):
            relay = Relay(run)
            times.append(relay.first_s())
            relay.close()
        print(f"first snapshot after {middle(times, 2, ' s')}")


if __name__ == "__main__":
    main()
