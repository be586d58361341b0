"""Test the cost of all-reduce over requested steps, through a hub, its death and its recording."""

import msgspec
import pytest

from ddpmon import runs
from ddpmon.export import report
from ddpmon.messages import (
    Next,
    Sample,
    SeriesRequest,
    TimelineRequest,
    ViewRequest,
    encode,
)
from ddpmon.messages.changes import apply_changes
from ddpmon.source import RecordedSource
from tests.hub.conftest import until
from tests.recordings import record, story
from tests.worlds import own_times, records


def asked(stage, view_request):
    viewer = stage.viewer()
    viewer.socket.send(encode(Next(view_request=view_request)))
    assert viewer.socket.poll(20_000)
    return apply_changes(None, viewer.socket.recv())


def train(stage, steps=300, samples=()):
    """Start a hub, and have rank 1 be late in the first half alone. Both tell of their steps side by side."""
    own = own_times(steps, 2)
    own[: steps // 2, 1, 1] += 12.0
    told = records(own, first=1)
    ranks = stage.start()
    for begin in range(0, steps, 50):
        for rank in ranks:
            rank.train(told[rank.rank][begin : begin + 50], samples=[] if begin else list(samples))
    stage.viewer().until(lambda s: s.window and s.window[1] == steps, "the steps")


def test_each_window_has_its_own_efficiencies_and_the_count_goes_on_where_a_hub_died(stage):
    train(stage)
    shown = {over: asked(stage, ViewRequest(cost=over)).cost for over in ("window", "last", "start")}
    assert {over: cost.window for over, cost in shown.items()} == {
        "window": (2, 300), "last": (251, 300), "start": (2, 300),
    }  # fmt: skip
    assert [cost.steps for cost in shown.values()] == [299, 50, 299]
    assert shown["last"].efficiency.load_balance == pytest.approx(1.0, abs=1e-3)
    assert shown["start"].efficiency.load_balance == pytest.approx(0.91, abs=0.01)
    assert shown["start"].efficiency.parallel == pytest.approx(shown["window"].efficiency.parallel)
    assert shown["start"].slowest == 1
    assert shown["start"].all_reduce.wait_ms == pytest.approx(shown["window"].all_reduce.wait_ms)
    assert shown["start"].all_reduce.payload_bytes == shown["window"].all_reduce.payload_bytes
    assert asked(stage, ViewRequest()).cost is None
    stage.kill_hub()
    stage.hub()
    again = until(lambda: asked(stage, ViewRequest(cost="start")).cost, "what the recording tells")
    assert (again.window, again.steps) == ((2, 300), 299)
    assert again.efficiency.load_balance == pytest.approx(shown["start"].efficiency.load_balance)


def test_the_report_tells_of_all_steps_where_it_covers_fewer(home, monkeypatch):
    run = record(story(1200, 2, late=1, begin=300, end=600))
    whole = report.build(run)
    assert whole["efficiency_since_start"] is None  # it covers them all
    assert "all steps" not in report.text(whole)
    monkeypatch.setattr("ddpmon.recording.recorded.REPORT_RECORDS", 600)
    part = report.build(run)
    assert part["steps"]["window"] == [601, 1200]
    assert part["efficiency_since_start"]["window"] == [2, 1200]
    assert part["efficiency_since_start"]["load_balance"] == pytest.approx(
        whole["efficiency"]["load_balance"], abs=1e-3
    )
    assert part["efficiency_since_start"]["load_balance"] < part["efficiency"]["load_balance"] - 0.03
    (line,) = [line for line in report.text(part).splitlines() if line.startswith("all steps, 2 to 1,200")]
    assert "efficiency" in line


def test_gpu_utilization_reaches_the_heat_map_from_the_recording(stage):
    samples = [Sample(at, 90.0, 1 << 30, gpu_percent=35.0) for at in range(2_000_000, 9_000_000, 1_000_000)]
    train(stage, samples=samples)
    stage.finish()
    source = RecordedSource(runs.load(stage.run.id))
    source.request_view(ViewRequest(heat=SeriesRequest(("gpu",), per_column=8, rows=10, columns=60)))
    heat = source.snapshot().heat
    assert {round((cell - 1) / 253, 2) for cell in heat.cells if cell} == {0.65}
    assert all(row.hot_share > 0.9 for row in heat.rows)


def test_a_hub_leaves_out_the_ranks_that_were_not_requested(home):
    source = RecordedSource(record(story(steps=100, begin=10, end=90)))
    heat = SeriesRequest(rows=8, ranks=((1, 2), (7, 9)))
    source.request_view(ViewRequest(heat, TimelineRequest(2, 8, ranks=((0, 1),))))
    shown = source.snapshot()
    assert [row.ranks for row in shown.heat.rows] == [(1, 1), (2, 2)]
    assert len(shown.heat.cells) == 2 * shown.heat.columns
    assert {row.rank for row in shown.timeline.rows} == {0, 1}
    assert shown.timeline.ranks == 2
    source.request_view(ViewRequest(heat=SeriesRequest(ranks=()), timeline=TimelineRequest(ranks=())))
    shown = source.snapshot()
    assert (shown.heat.rows, shown.heat.cells) == ([], b"")
    assert (shown.timeline.rows, shown.timeline.ranks) == ([], 0)


def test_sums_in_a_recording_that_cannot_be_are_worked_out_anew(home):
    whole = RecordedSource(record(story(steps=100)))
    whole.request_view(ViewRequest(cost="start"))
    run = record(
        story(steps=100), sums=lambda sums: msgspec.structs.replace(sums, own_ms=[1.0]), id="20260909-120000-7f3b"
    )
    mended = RecordedSource(run)
    mended.request_view(ViewRequest(cost="start"))
    assert mended.snapshot().cost == whole.snapshot().cost
    assert any("is damaged" in note for note in mended.snapshot().notes)
