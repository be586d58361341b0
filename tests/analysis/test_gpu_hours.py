"""What a run has used and what its findings have cost, in hours of GPUs or ranks."""

import pytest

from ddpmon.analysis import gpu_hours
from ddpmon.messages import Episode, Finding
from tests.tui import snapshots


def finding(*episodes):
    return Finding("straggler", "warn", "", episodes=[Episode(*each) for each in episodes])


@pytest.mark.parametrize(("findings", "lost_s"), [
    ([], 0.0),
    ([finding((10, 19, 5.0))], 5.0),
    ([finding((10, 19, 5.0), (30, None, 7.0))], 12.0),
    ([finding((10, 19, 5.0)), finding((30, 39, 7.0))], 12.0),
    ([finding((10, 19, 5.0)), finding((10, 19, 3.0))], 5.0),
    ([finding((10, 29, 10.0)), finding((20, 39, 10.0))], 15.0),
    ([finding((0, 99, 10.0)), finding((50, 59, 5.0))], 14.0),
    ([finding((10, 19, None))], 0.0),
    ([Finding("gpu_memory", "warn", "")], 0.0),
    ([Finding("data_bound", "warn", "", cost_s=4.0)], 4.0),
])  # fmt: skip
def test_of_findings_that_share_steps_the_costliest_counts(findings, lost_s):
    assert gpu_hours.lost_s(findings, 99) == pytest.approx(lost_s)


def test_the_hours_are_those_of_all_ranks_and_never_more_lost_than_used():
    shot = snapshots.slow()
    used = gpu_hours.cost(shot, 0.525)
    seconds = shot.at - shot.run.started_at
    assert used["unit"] == "GPU"
    assert used["hours"] == pytest.approx(64 * seconds / 3600, abs=1e-3)
    assert used["works_as_ranks"] == pytest.approx(33.6)
    assert 0 <= used["lost_hours"] <= used["hours"]


@pytest.mark.parametrize(("hours", "price", "currency", "said"), [
    (0.0123, None, "", "0.012 GPU hours"),
    (3.2, 2.5, "$", "3.20 GPU hours ($8.00)"),
    (3.2, 2.5, "EUR", "3.20 GPU hours (8.00 EUR)"),
    (12_345.6, 2.0, "$", "12,346 GPU hours ($24,691.20)"),
])  # fmt: skip
def test_hours_are_written_with_their_price(hours, price, currency, said):
    assert gpu_hours.format_hours(hours, "GPU", price, currency) == said
