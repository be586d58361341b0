"""From series to columns of dots."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon import numbers
from ddpmon.messages import Series
from ddpmon.tui import axis, curves
from ddpmon.tui.lines import line_width
from ddpmon.tui.widgets.chart import Style, draw_chart


def test_a_span_cuts_the_curve_where_it_leaves_it():
    assert curves.column_values([0, 10, 20], [0, 10, 20], 3, curves.safe_mean, (5, 15)) == [5, 10, 15]
    assert curves.column_values([0, 10], [0, 10], 3, curves.safe_mean, (20, 30)) == [None] * 3
    assert curves.column_of_moment(25, (10, 20), 11) == 15
    assert curves.column_of_moment(15, (10, 10), 11) == 0


def test_smoothing_begins_without_a_bias_and_skips_what_is_no_number():
    assert curves.smoothed([5.0] * 4, 0.9) == [pytest.approx(5.0)] * 4
    assert curves.smoothed([1.0, 3.0], 0.6) == [pytest.approx(1.0), pytest.approx((0.24 + 1.2) / 0.64)]
    told = curves.smoothed([2.0, None, math.nan, math.inf, 2.0], 0.6)
    assert told[:2] == [pytest.approx(2.0), None]
    assert math.isnan(told[2])
    assert told[3:] == [math.inf, pytest.approx(2.0)]
    assert curves.smoothed([], 0.9) == []


def test_a_warm_up_step_does_not_press_the_chart_flat():
    assert curves.chart_ceiling([500.0] + [20.0] * 99) == 30.0
    assert curves.chart_ceiling([20.0] * 50 + [35.0] * 50) == 35.0
    assert curves.chart_ceiling([100.0, 3.0, 2.0, 2.0, 2.0]) == 4.5
    assert curves.chart_ceiling([100.0, 60.0, 30.0, 10.0, 2.0]) == 100.0
    assert curves.chart_ceiling([100.0, 2.0]) == 100.0
    assert curves.chart_ceiling([20.0, *[-6.0, -5.0] * 10]) == -4.5, "values below zero are measured from the lowest"


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.integers(1, 400), st.integers(0, 1 << 60))
def test_an_axis_never_leaves_its_columns(first, length, columns, step):
    for text in (
        axis.span_labels(first, first + length, columns),
        axis.age_labels(length, columns),
        axis.steps(step, 64, columns),
    ):
        assert len(text) <= columns


numbers_ = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.floats(allow_nan=True, allow_infinity=True), numbers_, numbers_, numbers_), max_size=30),
    st.integers(0, 60), st.integers(0, 12), st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_series_is_a_chart_of_the_asked_size(points, width, height, log, clip):
    seconds, low, median, high = ([point[i] for point in points] for i in range(4))
    style = Style(numbers.loss, ("warn", "info"), log=log, clip=clip, smoothing=0.9 * log)
    lines = draw_chart(Series(seconds, low, median, high), "loss", style, width, height)
    assert len(lines) <= max(1, height) or height == 0
    assert all(line_width(line) <= max(width, 20) for line in lines)


@settings(deadline=None)
@given(st.one_of(st.none(), st.just(math.nan), st.just(math.inf), st.floats(0, 1e9)))
def test_numbers_keep_to_their_columns(value):
    assert len(numbers.ms(value)) <= 5
    assert len(numbers.loss(value)) <= 6 or 0 < value < 1e-9
    assert len(numbers.short(value)) <= 5
    assert len(numbers.percent(value)) <= 5
    assert len(numbers.duration(value)) <= 6


@settings(deadline=None)
@given(numbers_)
def test_no_number_is_an_error(value):
    for write in (
        numbers.ms,
        numbers.loss,
        numbers.short,
        numbers.percent,
        numbers.over,
        numbers.duration,
        numbers.span,
    ):
        assert write(value)
    assert numbers.aligned_ms(value, 1)
    assert numbers.gigabytes(value)
    assert numbers.clock(0.0 if value is None else value)
