"""How far the run is, in the head: what goes first where it gets narrow."""

import pytest

from ddpmon.tui.text import head_text
from tests.tui import snapshots
from tests.tui.snapshots import replace


def first_line(width, **changes):
    shot = replace(snapshots.slow(), **{"training_epoch": 2, "training_epochs": 3} | changes)
    line = head_text(shot, width)[0]
    assert len(line) <= width
    return line


def test_a_wide_head_tells_all_of_it():
    line = first_line(160)
    for words in ("step 12,486/50,000", "━", " 25%", "epoch 2/3", "ETA", "up"):
        assert words in line


@pytest.mark.parametrize(("width", "gone"), [(80, "━"), (80, " up "), (60, "epoch"), (50, "ETA")])
def test_a_narrow_one_leaves_out_the_least_important(width, gone):
    line = first_line(width)
    assert gone not in line
    assert "step 12,486/50,000" in line


def test_without_a_total_the_epoch_is_told_all_the_same():
    line = first_line(80, total_steps=None, eta_s=None)
    assert "step 12,486  epoch 2/3" in line
