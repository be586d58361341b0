"""Test how sentences name ranks and times."""

import pytest

from ddpmon import numbers
from ddpmon.analysis.words import duration


@pytest.mark.parametrize(
    ("seconds", "said"), [(8.24, "8.2 s"), (59.7, "59 s"), (77.9, "1m17s"), (3599.9, "59m59s"), (7500, "2h05m")]
)
def test_a_time_is_cut_as_a_clock_cuts_it(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize("seconds", [60.0, 77.9, 3599.9, 7559.9])
def test_the_verdict_and_the_head_say_one_time_alike(seconds):
    assert duration(seconds) == numbers.duration(seconds)
