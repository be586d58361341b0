"""Part of hostile.py: show mutated snapshots on every screen of the dashboard, and in every text of the command line.

A valid snapshot of each kind is changed in a few places and sent through the decoder of every viewer, until the decoder
accepts one. That one is shown in 80x24 and 160x50, sometimes in other sizes, on all screens, with keys pressed. A
snapshot is a fault if it ends the dashboard or a command, takes more than a few seconds of a core, or puts text on the
screen that steers a terminal.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from ddpmon.messages import Snapshot
from tests.tui.hostile import taken, true_snapshots
from tests.tui.hostile_views import assert_plain, dashboard, texts

COUNT = 1000
LONG_S = 10.0
"""CPU seconds after which a snapshot counts as slow."""
MEMORY_BYTES = 4 << 30
"""Memory limit at which a runaway test ends before it uses up the machine's memory."""


async def show_everywhere(shot: Snapshot, dice: random.Random) -> None:
    """Show a snapshot in the texts of the command line and on all screens."""
    began = time.process_time()
    for text in texts(shot):
        assert_plain(text)
    async with dashboard(shot) as app:
        await app.show(shot, dice)
    took_s = time.process_time() - began
    assert took_s < LONG_S, f"took {took_s:.0f} s of a core"


def hunt(seed: int, numbers: Sequence[int]) -> list[str]:
    """Show one mutated snapshot per number everywhere, and return each failure with the number of its snapshot."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    shots, trouble, refused = true_snapshots(), [], 0
    for number in numbers:
        shot, dice, refused_before = taken(shots, seed + number)
        refused += refused_before
        try:
            asyncio.run(show_everywhere(shot, dice))
        except (Exception, SystemExit):
            trouble.append(f"{seed + number}: {traceback.format_exc(-3)}")
            print(trouble[-1], flush=True)
    print(f"{len(numbers)} shown, {refused} refused before them")
    return trouble
