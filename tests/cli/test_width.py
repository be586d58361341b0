"""Text that commands print: it fits the width of a terminal, and nothing of it is missing in a pipe."""

from __future__ import annotations

import pytest

from ddpmon.export.width import columns
from ddpmon.plain import plain
from tests.in_process import called, called_in_a_terminal
from tests.recordings import record
from tests.worlds import own_times


@pytest.fixture
def slow(home):
    """A run with a slow rank and a long command."""
    own = own_times(200, 4, noise=0.05)
    own[:, 2, 0] += 20
    return record(
        own, id="20260909-120100-7f3a", name="slow", script_args=[f"--option-{number}" for number in range(40)]
    )


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("words", [("report", "slow"), ("status", "slow"), ("attach", "--once", "slow"), ("ls",),
                                   ("diff", "slow", "slow")], ids=" ".join)  # fmt: skip
def test_text_fits_the_terminal(slow, words, width):
    _, text = called_in_a_terminal(*words, columns=width)
    lines = text.replace("\r", "").splitlines()
    assert "slow" in text
    assert max(columns(plain(line)) for line in lines) <= width


def test_a_pipe_gets_whole_lines(slow):
    for words in (("ls",), ("status", "slow"), ("report", "slow")):
        assert "…" not in called(*words).stdout
    assert "--option-39" in called("ls").stdout
    sentence = called("report", "slow", "--format", "json").stdout.partition('"verdict": "')[2].partition('"')[0]
    assert called("status", "slow").stdout.splitlines()[1] in sentence
