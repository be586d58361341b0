"""The head: how far the run is, what goes first where it gets narrow, and what stands out of the verdict."""

import pytest

from ddpmon.messages import VerdictFacts
from ddpmon.tui import head
from ddpmon.tui.frame import Frame
from ddpmon.tui.head import head_text
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


def test_an_attached_job_has_been_watched_for_a_while_but_not_up_for_so_long():
    shot = snapshots.slow()
    attached = replace(shot, run=replace(shot.run, attached=True, exit_code=0))
    line = "".join(text for text, _ in head.state_line(Frame(attached), 160))
    assert ("up " in line, "watched " in line) == (False, True)


def test_who_it_is_stands_out_of_the_verdict_and_of_an_older_hubs_all_of_it():
    shot = replace(snapshots.slow(), verdict="rank 3 is slow: at a:b", verdict_facts=VerdictFacts(["x"], 15))
    assert head.verdict_line(Frame(shot), 80)[:2] == [("rank 3 is slow:", "warn"), (" at a:b", "text")]
    assert head.verdict_line(Frame(replace(shot, verdict_facts=None)), 80)[0] == ("rank 3 is slow: at a:b", "warn")
