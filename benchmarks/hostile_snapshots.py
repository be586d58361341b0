"""Mutated snapshots on every screen of the dashboard, and in every text of the command line: none may end it.

    python benchmarks/hostile_snapshots.py --seed 0 --count 1000     an hour on a busy core
    python benchmarks/hostile_snapshots.py --seed 7 --count 1        the one that was said to fail

A true snapshot of each kind is changed in a few places and sent through the decoder of every viewer, until one is
taken; that is shown in 80x24 and 160x50, and now and then in other sizes, on all screens, with keys pressed. Printed
are the seeds of those that ended the dashboard or a command, that took more than a few seconds of a core, or that put
on the screen what steers a terminal. The exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.tui.hostile import taken, true_snapshots
from tests.tui.hostile_views import assert_plain, dashboard, texts

LONG_S = 10.0
"""Seconds of a core after which a snapshot counts as slow."""
MEMORY_BYTES = 4 << 30
"""Memory limit at which a runaway test ends, before it takes the machine's memory."""


class Hunt:
    """Shows one snapshot after the other, and counts what went wrong."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.shown = self.refused = 0

    async def run(self, seeds: range) -> None:
        """All seeds; a dashboard that ended is started again."""
        shots, left = true_snapshots(), iter(seeds)
        while self.shown < len(seeds):
            seed = -1
            try:
                async with dashboard(shots[0]) as app:
                    for seed in left:
                        shot, dice, refused = taken(shots, seed)
                        self.shown, self.refused = self.shown + 1, self.refused + refused
                        began = time.process_time()
                        self.read(seed, shot)
                        await app.show(shot, dice)
                        if (took := time.process_time() - began) > LONG_S:
                            self.tell(seed, "slow", AssertionError(f"took {took:.0f} s of a core"))
            except (Exception, SystemExit) as error:
                self.tell(seed, "screen", error)

    def read(self, seed: int, shot) -> None:
        """The texts of the command line."""
        try:
            for text in texts(shot):
                assert_plain(text)
        except Exception as error:
            self.tell(seed, "text", error)

    def tell(self, seed: int, where: str, error: BaseException) -> None:
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/ddpmon/" in frame.filename]
        place = f"{ours[-1].filename.rpartition('/ddpmon/')[2]}:{ours[-1].lineno}" if ours else "the check"
        told = f"{where}: {type(error).__name__} at {place}: {str(error)[:80]}"
        self.found[told] += 1
        print(f"seed {seed}: {told}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    hunt = Hunt()
    asyncio.run(hunt.run(range(given.seed, given.seed + given.count)))
    print(f"{hunt.shown} shown, {hunt.refused} refused before them")
    for what, times in hunt.found.most_common():
        print(f"{times:5} {what}")
    sys.exit(bool(hunt.found))
