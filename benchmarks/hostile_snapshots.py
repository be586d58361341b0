"""Mutated snapshots on every screen of the dashboard, and in every text of the command line: none may end it.

    python benchmarks/hostile_snapshots.py --seed 0 --count 1000     some twenty minutes
    python benchmarks/hostile_snapshots.py --seed 7 --count 1        the one that was said to fail

A true snapshot of each kind is changed in a few places, sent through the decoder of every viewer, and what it takes is
shown in 80x24 and 160x50 on all screens, with keys pressed. Printed are the seeds of those that ended the dashboard or
a command, that took longer than a few seconds, or that put on the screen what steers a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.tui.hostile import decoded, mutated, true_snapshots
from tests.tui.hostile_views import assert_plain, dashboard, texts

LONG_S = 10.0


def dice_of(seed: int) -> random.Random:
    return random.Random(f"hostile {seed}")


def attempt(shots, seed, refused):
    """A snapshot made from a seed; None if no change of many is taken."""
    dice = dice_of(seed)
    while True:
        frame = mutated(dice.choice(shots), dice)
        shot = decoded(frame)
        if shot is not None:
            return shot, dice
        refused["refused"] += 1


async def hunt(first: int, count: int, verbose: bool) -> Counter[str]:
    shots = true_snapshots()
    found: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    seed, end = first, first + count
    while seed < end:
        try:
            async with dashboard(shots[0]) as shown:
                while seed < end:
                    seed += 1
                    shot, dice = attempt(shots, seed - 1, refused)
                    began = time.process_time()
                    try:
                        for text in texts(shot):
                            assert_plain(text)
                    except Exception as error:
                        tell(found, seed - 1, "text", error, verbose)
                    await shown.show(shot, dice)
                    if (took := time.process_time() - began) > LONG_S:
                        tell(found, seed - 1, "slow", AssertionError(f"took {took:.0f} s of CPU time"), verbose)
        except (Exception, SystemExit) as error:
            tell(found, seed - 1, "screen", error, verbose)
    print(f"{count} shown, {refused['refused']} refused")
    return found


def tell(found, seed, where, error, verbose):
    last = traceback.extract_tb(error.__traceback__)
    frames = [f for f in last if "/ddpmon/" in f.filename]
    place = f"{frames[-1].filename.rpartition('/ddpmon/')[2]}:{frames[-1].lineno}" if frames else "?"
    found[f"{where}: {type(error).__name__} at {place}: {str(error)[:80]}"] += 1
    print(f"seed {seed}: {where}: {type(error).__name__} at {place}: {str(error)[:200]}", flush=True)
    if verbose:
        traceback.print_exception(error)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(hunt(given.seed, given.count, given.verbose))
    for what, times in found.most_common():
        print(times, what)
    sys.exit(bool(found))
