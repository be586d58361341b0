"""Comm: what all-reduce costs and why, rank by rank and bucket by bucket."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ddpmon.messages import (
    BUCKETS,
    BucketView,
    CostView,
    EfficiencyView,
    HeatRow,
    HeatView,
    RankView,
    SeriesRequest,
    TimesView,
)
from ddpmon.tui import lines
from ddpmon.tui.widgets import bucketlist, cost, synclanes, waittable
from tests.fake_source import FakeSource
from tests.tui import golden, inspected, measured, snapshots, through_time
from tests.tui.driving import drive, until

STATES = {"waiting": snapshots.waiting, "cores": measured.cpu, "slow": measured.slow, "many": measured.many}
number = st.floats() | st.floats(0, 1e4)
replace = snapshots.replace


def blocked(text: str) -> list[int]:
    """The ranks of the bars, in their order."""
    rows = text.split("─wait and transfer", maxsplit=1)[1].splitlines()[2:-2]
    return [int(row[1:].split()[0]) for row in rows if row[1:].strip()]


@golden.of_states({"waiting": [golden.NARROW], "cores": [golden.WIDE], "slow": golden.SIZES})
def test_comm(state, size):
    golden.check(f"comm-{state}", drive(STATES[state](), "4", size=size)[1], size)


@golden.at(golden.WIDE)
def test_comm_with_buckets(size):
    golden.check("comm-buckets", drive(measured.bucketed(), *"4bjj", size=size)[1], size)


def test_buckets_stand_below_the_ranks_where_there_is_height_and_beside_them_where_there_is_width():
    _, text = drive(measured.bucketed(), "4", size=(100, 50))
    rows = text.splitlines()
    assert next(y for y, row in enumerate(rows) if "─buckets" in row) > next(
        y for y, row in enumerate(rows) if "─wait and transfer" in row
    )
    _, text = drive(measured.bucketed(), "4", size=(160, 30))
    assert any("─wait and transfer" in row and "─buckets" in row for row in text.splitlines())
    _, text = drive(measured.bucketed(), "4", size=(80, 24))
    assert "─buckets" not in text
    assert "b the all-reduce of 14 buckets" in text


def test_where_the_time_went_is_told_unless_all_of_it_was_training():
    times = TimesView(12.0, 300.0, {"checkpoint": 20.0, "evaluation": 80.0}, {"checkpoint": 2, "evaluation": 4})
    _, text = drive(replace(measured.slow(), times=times, accumulation=4), "4", size=(100, 30))
    assert " since the first step: 75% training, 20% evaluation (4x), 5% checkpoint (2x)" in text
    assert " each step accumulates 4 batches" in text
    uncounted = TimesView(12.0, 300.0, {"evaluation": 100.0})
    assert "25% evaluation (0x)" in drive(replace(measured.slow(), times=uncounted), "4", size=(100, 30))[1]
    _, text = drive(replace(measured.slow(), times=TimesView(12.0, 300.0)), "4", size=(100, 30))
    assert "since the first step:" not in text


def test_b_goes_to_the_buckets_and_back():
    _, text = drive(measured.bucketed(), *"4bG")
    assert "in bucket 13: transformer.h.-2" in text
    app, text = drive(measured.bucketed(), *"4bjb", "j")
    assert "─wait and transfer" in text
    assert app.views["comm"].waits.chosen == 13
    assert app.views["comm"].buckets.chosen == 1
    app, text = drive(measured.bucketed(), *"4b", "enter")
    assert app.current_mode == "comm"
    assert "no rank under the cursor" in text


def test_without_buckets_it_says_how_to_record_them_or_why_there_are_none():
    app, text = drive(measured.slow(), *"4b")
    assert "ddpmon run --buckets SCRIPT" in text
    assert not app.views["comm"].buckets.active
    told = replace(
        measured.slow(), missing={BUCKETS: "--buckets: ddpmon records the buckets only for models on the CPU"}
    )
    assert "records the buckets only for models on the CPU" in drive(told, "4")[1]


def test_buckets_that_are_gone_give_the_keys_back_to_the_ranks():
    source = FakeSource(measured.bucketed())

    def gone(app, _):
        source.current = measured.slow()
        app.tick()

    app, text = drive(source, *"4b", gone, "j")
    assert app.views["comm"].cursor is app.views["comm"].waits
    assert "─wait and transfer" in text


def test_the_rank_that_the_others_wait_for_comes_first_and_s_changes_the_order():
    assert blocked(drive(measured.slow(), "4")[1])[0] == 13
    _, text = drive(measured.slow(), *"4s")
    assert "longest wait first" in text
    assert 13 not in blocked(text)
    assert "longest transfer first" in drive(measured.slow(), *"4ss")[1]
    assert blocked(drive(measured.slow(), *"4sss")[1])[:3] == [0, 1, 2]


@pytest.mark.parametrize(("weak", "branch", "said"), [
    ("load_balance_persistent", "persistent", "rank 13 is slow"),
    ("load_balance_moving", "moving", "the slow rank keeps rotating"),
    ("communication", "communication", "even the slowest rank is blocked 20%"),
])  # fmt: skip
def test_the_tree_marks_the_leaf_that_costs_most(weak, branch, said):
    well = dict.fromkeys(
        ("parallel", "load_balance", "load_balance_persistent", "load_balance_moving", "communication"), 0.99
    )
    rows = cost.tree(cost.branches(EfficiencyView(**{**well, weak: 0.8}), 13, 0.17), 160)
    texts = ["".join(text for text, _ in row) for row in rows]
    marked = [text for text in texts if text.startswith("▲")]
    assert len(marked) == 1
    assert branch in marked[0]
    assert said in marked[0]
    assert not any("▲" in row[0][0] for row in cost.tree(cost.branches(EfficiencyView(**well)), 160))


def test_w_goes_through_the_windows_and_the_title_says_which():
    def title(*keys):
        source = through_time.slow(steps=240)
        return source, drive(source, "4", *keys, size=(120, 40))[1]

    source, text = title()
    assert source.requested.cost is None
    assert "wait and transfer in a step" in text
    source, text = title("w")
    assert source.requested.cost == "last"
    assert "and why: the last 50 steps, 191–240" in text
    assert "rank 5 is slow: +33" in text
    assert "wait and transfer in steps 11,887–12,486" in text
    source, text = title("w", "w")
    assert "and why: since the start, steps 1–240" in text
    assert "rank 5 is slow: +13" in text
    assert "with even transfers" not in text
    source, text = title("w", "w", "w")
    assert source.requested.cost is None
    assert "wait and transfer in a step" in text


def test_a_count_that_began_late_says_since_when():
    sums = CostView("start", (4_001, 9_000), 5_000, None, None)
    assert cost.of_steps(sums) == "all steps since step 4,001, to 9,000"
    whole = replace(sums, window=(2, 9_000))
    assert cost.of_steps(whole) == "since the start, steps 2–9,000"
    assert cost.of_steps(whole, attached=True) == "since the attach, steps 2–9,000"


def test_without_gradients_it_says_so_and_the_efficiency_stays():
    calm = replace(measured.slow(), all_reduce=None, all_reduce_ms=None)
    _, text = drive(calm, "4")
    assert "no gradient synchronisation" in text
    assert "parallel efficiency" in text
    assert "if all ranks took their mean" not in text
    assert "a single rank" in drive(replace(calm, run=replace(calm.run, world_size=1)), "4")[1]


@given(wait=number, transfer=number, longest=number, width=st.integers(0, 80))
def test_a_bar_never_leaves_its_scale(wait, transfer, longest, width):
    rank = RankView(0, phases_ms=(0.0, 0.0, 0.0, 0.0, 0.0, wait, transfer))
    assert lines.line_width(waittable.blocked_bar(rank, longest, width)) <= width


@example(launch=1e308, end=0.0, transfer=0.0, payload=0, width=67)
@given(launch=number, end=number, transfer=number, payload=st.integers(0, 1 << 40), width=st.integers(30, 200))
def test_any_bucket_can_be_drawn(launch, end, transfer, payload, width):
    buckets = [
        BucketView(0, 0, payload, launch, end, transfer, ["\x1b[31m"]),
        BucketView(1, 0, 1, 1.0, 2.0, 0.5, []),
    ]
    for row in bucketlist.bucket_lines(buckets, range(2), width, 0)[1:]:
        assert lines.line_width(lines.fit_line(row, width)) == width
    assert "\x1b" not in str(bucketlist.contents(buckets[0], "0.0", width, 3))


@golden.at(golden.WIDE)
def test_what_it_cost_before_and_each_ranks_wait_stand_below_the_ranks(size):
    source = inspected.late()

    def fills_its_place(app):
        requested, shown = app.view.view_request, app.playback.shown
        return source.requested == requested and shown.sync is not None and shown.heat is not None

    _, text = drive(source, "4", until(fills_its_place), "j", "k", size=size)
    golden.check("comm-few", text, size)


def test_it_is_asked_for_only_where_the_ranks_leave_room():
    source = through_time.slow(64, steps=120, late=5)
    drive(source, "4", lambda app, _: app.tick(), size=(160, 50))
    assert source.requested.sync is None
    source = inspected.late()
    drive(
        source, "4", until(lambda _: source.requested.sync == SeriesRequest(per_column=8, columns=114)), size=(160, 50)
    )
    drive(source, "4", "1", until(lambda _: source.requested.sync is None), size=(160, 50))


def test_each_ranks_wait_has_lanes_where_each_may_be_two_lines_high():
    source = inspected.late(ranks=16)
    app, _ = drive(source, "4", until(lambda _: source.requested.sync is not None), size=(160, 50))
    assert not app.view.wait_lanes.display
    assert source.requested.heat is None
    shown = until(lambda app: source.requested.heat is not None and app.playback.shown.heat is not None)
    _, text = drive(source, "4", shown, size=(240, 70))
    assert source.requested.heat == SeriesRequest(("wait",), per_column=8, rows=16, columns=194)
    assert "─each rank's wait through time, the last 600 steps     up to 22% of a step" in text
    named = [row.index("▲rank 2 ") for row in text.splitlines() if "▲rank 2 " in row]
    assert named == [1]


def test_waits_share_a_scale_that_ends_at_the_longest_or_at_5_percent():
    def shown(*cells):
        rows = [HeatRow(("a", "a"), (rank, rank), 1, rank, 0.0) for rank in range(len(cells))]
        high, made = synclanes.wait_courses(HeatView("wait", 8, 0, 2, 16, 0.0, 1.0, rows, b"".join(cells)))
        return high, [list(course.cells) for course in made]

    assert shown(bytes([1, 128]), bytes([0, 64])) == (127 / 253, [[1, 254], [0, 127]])
    assert shown(bytes([1, 7]), bytes([255, 1]))[0] == 0.05
    assert shown(bytes([255, 0])) == (1.0, [[255, 0]])
