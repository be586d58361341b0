"""Part of hostile.py: mutated snapshots on every screen of the dashboard, and in every text of the command line.

A true snapshot of each kind is changed in a few places and sent through the decoder of every viewer, until one is
taken; that is shown in 80x24 and 160x50, and now and then in other sizes, on all screens, with keys pressed. Found are
those that end the dashboard or a command, that take more than a few seconds of a core, or that put on the screen what
steers a terminal.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.tui.hostile import taken, true_snapshots
from tests.tui.hostile_views import assert_plain, dashboard, texts

COUNT = 1000
LONG_S = 10.0
"""Seconds of a core after which a snapshot counts as slow."""
MEMORY_BYTES = 4 << 30
"""Memory limit at which a runaway test ends, before it takes the machine's memory."""


class Hunt:
    """Shows one snapshot after the other, and counts what went wrong."""

    def __init__(self) -> None:
        self.trouble: list[str] = []
        self.shown = self.refused = 0

    async def run(self, seeds: Sequence[int]) -> None:
        """Show the snapshot of each seed; a dashboard that ended is started again."""
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
        self.trouble.append(f"{seed} {where}: {type(error).__name__} at {place}: {str(error)[:80]}")
        print(self.trouble[-1], flush=True)


def hunt(seed: int, numbers: Sequence[int]) -> list[str]:
    """Show one mutated snapshot per number everywhere, and return each failure with the number of its snapshot."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    shows = Hunt()
    asyncio.run(shows.run([seed + number for number in numbers]))
    print(f"{shows.shown} shown, {shows.refused} refused before them")
    return shows.trouble
