"""Two runs side by side: what is told of them, and how it is asked for."""

import threading

import pytest

from ddpmon import comparison, runs
from ddpmon.errors import DdpmonError
from ddpmon.export import diff
from tests import recordings
from tests.tui import golden, snapshots
from tests.tui.driving import drive, screen_text, settle
from tests.tui.test_runs import NOW, made


@pytest.fixture(autouse=True)
def now(monkeypatch):
    monkeypatch.setattr("ddpmon.tui.widgets.runlist.time.time", lambda: NOW)


@pytest.fixture
def two():
    """A run with a late rank and, later, one without."""
    before = recordings.record(
        recordings.story(steps=400, begin=0, end=400), id="20260909-120001-0001", name="before", created_at=NOW - 9000
    )
    after = recordings.record(
        recordings.story(steps=400, extra_ms=0.0), id="20260909-120002-0002", name="after", created_at=NOW - 5000
    )
    return before, after


COMPARED = ("8", "G", "c", "k", "c", settle)


@golden.at(golden.NARROW)
def test_two_runs_side_by_side(two, size):
    golden.check("compare", drive(snapshots.slow(), *COMPARED, size=size)[1], size)


def test_the_comparison_tells_what_diff_tells(two):
    _, text = drive(snapshots.slow(), *COMPARED, size=(120, 60))
    told = [" ".join(line.split()) for line in diff.text(comparison.build(*two), 117).splitlines()]
    shown = [" ".join(line.split()) for line in text.splitlines()]
    for line in filter(None, told):
        line = line.removeprefix("ms a step ")  # noqa: PLW2901  its heading is a line of its own here
        assert any(line.removesuffix(".") in row for row in shown), line


def test_the_first_of_the_two_is_marked_and_can_be_let_go(two):
    app, text = drive(snapshots.slow(), "8", "G", "c", "k")
    assert "A: before, c compares" in text
    assert [row[0] for row in text.splitlines() if "before" in row and "DONE" in row] == ["A"]
    app, text = drive(snapshots.slow(), "8", "G", "c", "c")
    assert app.views["runs"].main.marked is None
    assert "no longer marked" in text


def test_what_cannot_be_compared_says_why_in_one_line(two):
    short = made(3, created_at=NOW - 3000)
    _, text = drive(snapshots.slow(), "8", "c", "j", "c", settle)
    assert f"{short.name} ({short.id}) has 0 recorded steps" in text
    (runs.run_dir(two[0].id) / "telemetry.db").write_bytes(b"no database" * 100)
    _, text = drive(snapshots.slow(), *COMPARED, size=(240, 24))
    assert "telemetry.db is damaged" in text.splitlines()[1]


def test_a_comparison_that_is_left_before_it_is_there_is_let_go(two, monkeypatch):
    go = threading.Event()

    def build(*_):
        go.wait(10)
        raise DdpmonError("too late")

    monkeypatch.setattr("ddpmon.comparison.build", build)

    def reading(app, _):
        assert "reading both recordings" in screen_text(app)

    def release(*_):
        go.set()

    _, text = drive(snapshots.slow(), *COMPARED[:-1], reading, "escape", release, settle)
    assert "runs, the latest first" in text
    assert "too late" not in text
