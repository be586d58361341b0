"""Snapshots that differ at random from true ones, and are taken all the same: every screen and command shows them."""

import asyncio

import pytest

from tests.tui import hostile
from tests.tui.hostile_views import assert_plain, dashboard, texts

PIECE = 3
"""Mutated snapshots on all screens: `benchmarks/hostile.py snapshots` shows as many as are wanted."""


@pytest.mark.parametrize("seed", range(PIECE))
def test_a_mutated_snapshot_ends_no_screen_and_no_command(seed):
    """Of what is decoded; the same seeds as those of the program."""
    shot, dice, _ = hostile.taken(hostile.true_snapshots(), seed)

    async def show():
        async with dashboard(shot) as shown:
            await shown.show(shot, dice)

    for text in texts(shot):
        assert_plain(text)
    asyncio.run(show())
