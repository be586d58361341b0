"""Two runs side by side, as text and as Markdown, whatever they are."""

import numpy as np
import pytest

from ddpmon import comparison
from ddpmon.analysis.compare import Comparison, Side
from ddpmon.analysis.statistics.resampling import Ratio, Resampled
from ddpmon.export import diff
from ddpmon.messages import Finding
from tests.export.test_report import RUN


def test_a_comparison_cannot_be_split_by_what_it_quotes():
    """The text that a finding brings along stays in its line."""
    finding = Finding("straggler", "warn", "a|b\n**c**", [2], "data", cost_ms=1.0)
    assert r"a\|b \*\*c\*\*" in diff.text_markdown(made_with(finding))
    assert "Gone  a|b **c**" in diff.text(made_with(finding)).splitlines()


def test_what_did_not_change_is_no_negative_zero():
    found = made_with(Finding("straggler", "warn", "", [2], "data"))
    found["b"]["phases_ms"]["data"] -= 0.001
    (row,) = [line for line in diff.text(found).splitlines() if line.startswith("data")]
    assert row.split() == ["data", "1.00", "1.00", "+0.00", "1.00", "1.00", "+0.00"]


@pytest.mark.parametrize(("costs", "words"), [
    ((None, None), ""), ((1.0, None), " (A: 1.0 ms a step, B: not measured)"),
    ((1.0, 2.5), " (A: 1.0 ms a step, B: 2.5 ms a step)"),
])  # fmt: skip
def test_a_finding_of_both_runs_has_its_costs_where_they_are_measured(costs, words):
    made = made_with(Finding("straggler", "warn", "rank 2 is slow", [2], "data"))
    (finding,) = made["findings"]["gone"]
    made["findings"]["kept"] = [{name: finding | {"cost_ms": cost} for name, cost in zip("ab", costs, strict=True)}]
    assert ("Still", f"rank 2 is slow{words}") in comparison.sentences(made)


def test_a_comparison_says_what_its_losses_are_means_of():
    made = made_with(Finding("straggler", "warn", "", [2], "data"))
    made["loss"] = {"same": "step", "step_a": 99, "step_b": 99, "a": 1.0, "b": 1.0, "b_is": "alike"}
    assert "Loss  each loss is the mean of the last 20 steps and of all ranks" in diff.text(made).splitlines()


def made_with(finding):
    lone = Side(
        (2, 100),
        99,
        5,
        4,
        50.0,
        50.0,
        (50.0, 50.0),
        {"tokens": 0.0, "samples": 0.0},
        np.ones(7),
        np.ones(7),
        2,
        1.0,
        Resampled(1.0, 1.0, np.ones(2), np.ones(2)),
    )
    same = Ratio(1.0, 1.0, 1.0)
    return comparison.diff(RUN, RUN, Comparison(lone, lone, "steps", same, same, None, [finding], [], []))


def test_the_gate_lets_pass_what_is_not_certainly_slower_than_allowed():
    assert diff.gate({"slower_by": 0.0}, 0.0) == (
        True,
        "PASS: ddpmon cannot show that B is slower than A; the limit is 0%",
    )
    assert diff.gate({"slower_by": 0.05}, 5.0)[0]
    assert diff.gate({"slower_by": 0.0501}, 5.0) == (
        False,
        "FAIL: B is slower than A by at least 5.0%; the limit is 5%",
    )
