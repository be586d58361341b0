"""What World shows of a failure: one rank's, or one fault of several."""

import pytest
from msgspec.structs import replace

from ddpmon.tui.widgets.failure import trouble
from tests.findings import finding
from tests.tui import snapshots


@pytest.mark.parametrize(
    ("ranks", "head"),
    [
        ([3], "rank 3 on node00: how it failed"),
        ([3, 5, 6], "ranks 3, 5-6 failed in the same way; rank 3 on node00:"),
        (list(range(8)), "all 8 ranks failed in the same way; rank 0 on node00:"),
    ],
)
def test_ranks_that_failed_alike_are_told_beside_the_one_that_is_shown(ranks, head):
    shot = snapshots.failed()
    shot = replace(shot, findings=[finding("rank_failed", "critical", "it failed", ranks)])
    (first, *_) = trouble(shot, 80, 20)
    assert "".join(text for text, _ in first).strip("─ ").startswith(head)
