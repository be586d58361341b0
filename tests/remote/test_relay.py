"""Test what the far side passes on of its source, over pipes in place of ssh."""

from __future__ import annotations

import os
import time

from ddpmon import runs
from ddpmon.remote.channel import Framer, Remark, RunsThere, Unframer, Want, from_there
from ddpmon.remote.relay import Relay
from tests.fake_source import FakeSource
from tests.tui import snapshots


class Announcing(FakeSource):
    """A source with lines that a person should read."""

    def __init__(self, *lines: str) -> None:
        super().__init__(snapshots.slow())
        self.lines = list(lines)

    def news(self) -> str:
        return self.lines.pop(0) if self.lines else ""


def passed_on(source: FakeSource, want: Want | None = None) -> list[object]:
    """Return what the near side gets of one look at the source."""
    incoming, outgoing = os.pipe()
    try:
        (run,) = runs.all_runs()
        relay = Relay(run, source, Framer(), incoming, outgoing)
        relay._take(want or Want())
        relay._pass_on(time.monotonic())
        return [from_there(each) for each in Unframer().feed(os.read(incoming, 1 << 20))]
    finally:
        os.close(incoming)
        os.close(outgoing)


def made(**changes: object) -> None:
    run = runs.Run(
        id="20260101-000001-0001", name="mnist", argv=["torchrun"], script="mnist.py", script_args=[], cwd="/",
        host="here", boot_id=runs.boot_id(), created_at=1.0, world_size=4, ended_at=2.0, exit_code=0,
    )  # fmt: skip
    runs.create(run)
    if changes:
        runs.update(run.id, **changes)


def test_what_a_person_should_read_there_is_read_here(home):
    made()
    told = [each for each in passed_on(Announcing("first", "second")) if isinstance(each, Remark)]
    assert told == [Remark("first"), Remark("second")]


def test_a_run_whose_files_have_names_that_are_no_utf8_is_listed(home):
    made(script="tr\udce4in.py", script_args=["\udcff"], cwd="/\udcfc", error="no program tr\udce4in.py")
    (listed,) = [
        each for each in passed_on(FakeSource(snapshots.slow()), Want(runs=True)) if isinstance(each, RunsThere)
    ]
    (row,) = listed.runs
    assert (row.run.script, row.run.script_args, row.run.cwd, row.verdict) == (
        *("tr?in.py", ["?"], "/?"),
        "no program tr?in.py",
    )
    assert (row.run.argv, row.run.environment, row.run.on_alert) == ([], {}, [])
