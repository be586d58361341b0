"""Two runs side by side, as text and as Markdown, whatever they are."""

import dataclasses
import json
import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddpmon import comparison
from ddpmon.analysis.compare import Comparison, Losses, Side
from ddpmon.analysis.statistics.resampling import Ratio, Resampled
from ddpmon.export import diff
from ddpmon.export.width import columns
from ddpmon.messages import Finding
from tests.export.made import WORDS
from tests.export.test_markdown import tables
from tests.export.test_report import RUN

LENGTHS = st.floats(1e-3, 1e12)
SPEEDS = st.tuples(*[st.floats(1e-4, 1e4)] * 3).map(lambda v: Ratio(*(sorted(v)[n] for n in (1, 0, 2))))
LOSSES = st.floats(-1e30, 1e30) | st.just(math.nan)
STEPS = st.integers(1, 1 << 48)
FINDINGS = st.lists(
    st.builds(
        Finding,
        kind=st.sampled_from(["straggler", "data_bound", "periodic_straggler"]) | WORDS,
        severity=st.just("warn"),
        text=WORDS,
        ranks=st.lists(STEPS, max_size=2),
        phase=st.sampled_from(["data", None]),
        cost_ms=st.none() | LENGTHS,
    ),
    max_size=10,
)


@st.composite
def sides(draw):
    numbers = draw(st.lists(st.floats(0, 1e12), min_size=14, max_size=14))
    waited = draw(st.booleans())
    return Side(
        window=(draw(STEPS), draw(STEPS)),
        steps=draw(STEPS),
        left_out=5,
        ranks=draw(st.integers(1, 1024)),
        step_ms_p50=draw(LENGTHS),
        step_ms_mean=draw(LENGTHS),
        halves_ms=(draw(LENGTHS), draw(LENGTHS)),
        work={
            "tokens": draw(st.sampled_from([0.0]) | st.floats(1, 1e12)),
            "samples": draw(st.sampled_from([0.0]) | st.floats(1, 1e9)),
        },
        phases_ms=np.array(numbers[:7]),
        path_ms=np.array(numbers[7:]),
        critical_rank=draw(st.integers(0, 1023)) if waited else None,
        critical_share=draw(st.floats(0, 1)) if waited else None,
        drawn=Resampled(1.0, 1.0, np.ones(2), np.ones(2)),
    )


@st.composite
def comparisons(draw):
    a, b = draw(sides()), draw(sides())
    units = ["steps"] + [unit for unit in a.work if a.work[unit] and b.work[unit]]
    losses = st.builds(
        Losses,
        STEPS,
        STEPS,
        LOSSES,
        LOSSES,
        st.sampled_from(["higher", "lower", "alike"]),
        st.sampled_from(["step", "samples"]),
    )
    kept = draw(FINDINGS)
    return Comparison(
        a, b, draw(st.sampled_from(units)), draw(SPEEDS), draw(SPEEDS), draw(st.none() | losses),
        draw(FINDINGS), draw(FINDINGS), list(zip(kept, kept, strict=True)),
    )  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(comparisons())
def test_any_comparison_fits_80_columns_and_gives_whole_tables(found):
    made = comparison.diff(RUN, dataclasses.replace(RUN, name="n" * 64), found)
    json.dumps(made, allow_nan=False)
    lines = diff.text(made).splitlines()
    assert max(map(columns, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    numbers, phases = tables(diff.text_markdown(made))
    assert {len(row) for row in numbers} == {4}
    assert {len(row) for row in phases} == {7}
    assert len(phases) == 2 + 7


def test_a_comparison_cannot_be_split_by_what_it_quotes():
    """The text that a finding brings along stays in its line."""
    finding = Finding("straggler", "warn", "a|b\n**c**", [2], "data", cost_ms=1.0)
    assert r"a\|b \*\*c\*\*" in diff.text_markdown(made_with(finding))
    assert "Gone a|b **c**" in diff.text(made_with(finding)).splitlines()


def test_what_did_not_change_is_no_negative_zero():
    found = made_with(Finding("straggler", "warn", "", [2], "data"))
    found["b"]["phases_ms"]["data"] -= 0.001
    (row,) = [line for line in diff.text(found).splitlines() if line.startswith("data")]
    assert row.split() == ["data", "1.00", "1.00", "+0.00", "1.00", "1.00", "+0.00"]


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
