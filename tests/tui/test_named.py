"""Inspect shows what the script named: a line a name, in a few columns, whatever the name."""

import msgspec

from ddpmon.tui.widgets.inspection import inspection
from tests.tui import snapshots

LONG = "augmentation of the images"


def named(slow_rank=13):
    snapshot = snapshots.slow()
    ranks = [
        msgspec.structs.replace(rank, named_ms={"augment": 41.9 if rank.rank == slow_rank else 0.5, LONG: 2.0})
        for rank in snapshot.ranks
    ]
    return msgspec.structs.replace(snapshot, ranks=ranks)


def lines(snapshot, rank):
    return ["".join(text for text, _ in line) for line in inspection(snapshot, snapshot.ranks[rank], 80)]


def test_what_the_script_named_stands_under_the_phases_and_an_excess_is_marked():
    (augment,) = [line for line in lines(named(), 13) if line.startswith(" in augment ")]
    assert augment.split() == ["in", "augment", "41.9", "0.5", "0.5–0.5", "▲", "+41.4"]
    (augment,) = [line for line in lines(named(), 5) if line.startswith(" in augment ")]
    assert augment.split() == ["in", "augment", "0.5", "0.5", "0.5–41.9"]
