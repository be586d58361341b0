"""The Runs screen: what is listed, how another run is watched, and how one is stopped."""

import dataclasses
import json
import subprocess
import threading

import pytest

from ddpmon import comparison, runs
from ddpmon.source import place
from ddpmon.source.run_list import AllRuns, ListedVerdict
from ddpmon.tui.screens.ask import Dialog
from ddpmon.tui.watched import Outcome
from tests.fake_source import FakeSource
from tests.tui import golden, snapshots
from tests.tui.driving import drive, seen, settle, until

NOW = 1_789_003_720.0


def made(number, **changes):
    run = runs.Run(
        id=f"20260909-12000{number}-000{number}", name=f"run-{number}", argv=["torchrun"], script="train.py",
        script_args=["--lr", f"0.{number}"], cwd="/", host="here", boot_id=runs.boot_id(),
        created_at=NOW - 10_000 + 1_000 * number, world_size=4, ended_at=NOW - 9_500 + 1_000 * number, exit_code=0,
    )  # fmt: skip
    run = dataclasses.replace(run, **changes)
    runs.create(run)
    return run


def report(run, verdict, steps=0, seconds=0.0, found=()):
    """The report of a run, as far as it is looked at here."""
    said = {
        "schema": 1,
        "run": {"state": "failed" if run.exit_code else "done", "started_at": 5.0, "ended_at": 5.0 + seconds},
        "steps": {"count": steps},
        "verdict": verdict,
        "findings": [{"kind": "straggler", "severity": "warn", "text": text} for text in found],
        "ranks": [1],
    }
    (runs.run_dir(run.id) / "report.json").write_text(json.dumps(said))


@pytest.fixture
def living():
    """A process that stands for a supervisor and ends when it is asked to."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        yield sleeper
        sleeper.kill()


@pytest.fixture
def several(living, monkeypatch):
    """Five runs: done, failed, lost, running, and the one that is watched."""
    monkeypatch.setattr("ddpmon.tui.widgets.runlist.time.time", lambda: NOW)
    slow = "rank 3 is slow: +12.4 ms data since step 210; 1.35x faster if fixed"
    report(made(1), f"done: 12,400 steps in 8m20s; {slow}", 12_400, 500.0, [slow])
    report(made(2, exit_code=3, name="a-rather-long-name-for-a-run"), "rank 1 failed first: ValueError: no such file")
    made(3, ended_at=None, exit_code=None, supervisor=runs.Process(2**22 + 1, 1), world_size=0)
    made(4, ended_at=None, exit_code=None, supervisor=runs.Process.of(living.pid))
    made(5, id=snapshots.running().run.id, name="gpt2-124m", ended_at=None, exit_code=None,
         supervisor=runs.Process.of(living.pid), script="bad\x1b[2J.py")  # fmt: skip


@golden.at((80, 24), (160, 50))
def test_runs(several, size):
    golden.check("runs", drive(snapshots.slow(), "8", "j", size=size)[1], size)


def test_no_runs_yet_say_how_to_start_one():
    assert "ddpmon run --nproc 4 SCRIPT" in drive(FakeSource(), "8")[1]


def test_a_run_can_be_watched_and_left_for_the_first_one_again(several, monkeypatch):
    opened = []

    def attach(run):
        opened.append(FakeSource(snapshots.replace(snapshots.done(), run=snapshots.replace(
            snapshots.done().run, id=run.id, name=run.name))))  # fmt: skip
        return opened[-1]

    monkeypatch.setattr(place, "attach", attach)
    first = FakeSource(snapshots.slow())
    app, text = drive(first, "8", "j", "enter", settle)
    assert "run-4" in text.splitlines()[0]
    assert app.current_mode == "world"
    assert app.watched.outcome is Outcome.DETACHED, "the outcome is that of the run that the dashboard was opened on"
    assert opened[0].closed
    assert not first.closed
    app, text = drive(first, "8", "G", "enter", settle, "8", "g", "enter", settle)
    assert "gpt2-124m" in text.splitlines()[0]
    assert app.playback.source is first
    assert opened[-1].closed
    assert not first.closed


def test_runs_of_another_machine_are_changed_there(several):
    elsewhere, texts = place.Here(), []
    elsewhere.name = "gpubox"
    steps = [step for key in "neDRc" for step in (key, seen(texts))]
    drive(snapshots.slow(), "8", *steps, place=elsewhere, size=(160, 24))
    said = {text.splitlines()[-1].strip() for text in texts}
    assert len(said) == 5
    assert all(line.endswith("ssh -t gpubox ddpmon attach") for line in said)


def test_a_run_whose_recording_cannot_be_read_is_one_line(several):
    (runs.run_dir("20260909-120001-0001") / "telemetry.db").write_bytes(b"no database" * 100)
    app, text = drive(snapshots.slow(), "8", "G", "enter", settle, size=(240, 24))
    assert app.current_mode == "runs"
    assert "telemetry.db" in text.splitlines()[-1]


def test_keys_work_while_a_run_is_opened_and_what_is_asked_for_last_is_shown(several, monkeypatch):
    opened, may_open, texts, opening = {}, threading.Event(), [], ("run-4", "run-1")

    def attach(run):
        assert may_open.wait(60)
        shot = snapshots.done()
        opened[run.name] = FakeSource(
            snapshots.replace(shot, run=snapshots.replace(shot.run, id=run.id, name=run.name))
        )
        return opened[run.name]

    monkeypatch.setattr(place, "attach", attach)
    first, last = (until(lambda app, name=name: getattr(app.watched.opening, "name", "") == name) for name in opening)
    steps = ["8", "j", "enter", first, "2", seen(texts), "8", "G", "enter", last, "3", seen(texts)]
    app, text = drive(snapshots.slow(), *steps, lambda *_: may_open.set(), settle)
    assert [shown.splitlines()[-1].strip() for shown in texts] == [f"opening {name}…" for name in opening]
    assert "ranks, " in texts[0]
    assert "run-1" in text.splitlines()[0]
    assert opened["run-4"].closed
    assert app.playback.source is opened["run-1"]
    assert app.current_mode == "heat", "who went to another screen meanwhile stays there"


def test_who_leaves_while_a_run_is_opened_or_compared_does_not_wait_for_it(several, monkeypatch):
    opens, compares, may_end = threading.Event(), threading.Event(), threading.Event()

    def reads(begun):
        def read(*_):
            begun.set()
            assert may_end.wait(60)

        return read

    monkeypatch.setattr(place, "attach", reads(opens))
    monkeypatch.setattr(comparison, "build", reads(compares))
    giving_up = threading.Timer(60, may_end.set)  # a dashboard that waits would never end
    giving_up.start()
    drive(snapshots.slow(), "8", "j", "enter", until(lambda _: opens.is_set()), "q")
    drive(snapshots.slow(), "8", "G", "c", "up", "c", until(lambda _: compares.is_set()), "q", "q")
    assert not may_end.is_set()
    reading = [thread for thread in threading.enumerate() if thread.name == "ddpmon-reading"]
    assert [thread.daemon for thread in reading] == [True, True], "Python waits for others when it ends"
    giving_up.cancel()
    may_end.set()
    for thread in reading:
        thread.join(60)


def test_another_run_is_stopped_after_a_question(several, living):
    source = FakeSource(snapshots.slow())
    _, text = drive(source, "8", "j", "x")
    assert "Stop run-4?" in text
    assert living.poll() is None
    asked = until(lambda app: isinstance(app.screen, Dialog))
    app, text = drive(source, "8", "j", "x", asked, "s")
    assert living.wait(60) == -15
    assert "stopping run-4" in text
    assert source.stops == []
    assert app.watched.outcome is Outcome.DETACHED


def test_the_watched_run_is_stopped_from_there_as_from_anywhere(several, living):
    source = FakeSource(snapshots.slow())
    app, _ = drive(source, "8", "x", "s")
    assert source.stops == [False]
    assert app.watched.outcome is Outcome.STOPPING
    assert living.poll() is None


def test_ctrl_c_asks_about_the_run_that_is_watched_wherever_the_cursor_is(several, living):
    source = FakeSource(snapshots.slow())
    _, text = drive(source, "8", "j", "ctrl+c", owns_run=True)
    assert "gpt2-124m is still running" in text
    drive(source, "8", "j", "ctrl+c", "s", owns_run=True)
    assert source.stops == [False]
    assert living.poll() is None


def test_what_is_done_to_another_run_before_its_hub_answers_is_not_taken_for_the_first_one(several, monkeypatch):
    silent = FakeSource()
    monkeypatch.setattr(place, "attach", lambda run: silent)
    first = FakeSource(snapshots.slow())
    app, text = drive(first, "8", "j", "enter", settle, "x", "s")
    assert "stopping" in text.splitlines()[-1]
    assert (first.stops, silent.stops) == ([], [False])
    assert app.watched.outcome is Outcome.DETACHED


def test_what_has_ended_or_is_read_only_cannot_be_stopped(several, living):
    _, text = drive(snapshots.slow(), "8", "G", "x")
    assert "the run has already ended" in text.splitlines()[-1]
    _, text = drive(snapshots.slow(), "8", "j", "x", readonly=True)
    assert "Stop" not in text
    assert living.poll() is None


def test_what_has_ended_is_read_once_until_it_is_written_again_and_what_runs_always(living, monkeypatch):
    ended = made(1)
    going = made(2, ended_at=None, exit_code=None, supervisor=runs.Process.of(living.pid))
    all_runs = AllRuns()
    assert [each.state for each in all_runs.read()] == ["running", "done"]
    loaded, load = [], runs.load
    monkeypatch.setattr(runs, "load", lambda run_id: loaded.append(run_id) or load(run_id))
    runs.save(dataclasses.replace(going, stopping=True))
    assert [each.state for each in all_runs.read()] == ["stopping", "done"]
    assert loaded == [going.id]
    runs.save(dataclasses.replace(going, stopping=True, ended_at=1.0, exit_code=1))
    runs.save(dataclasses.replace(ended, name="another"))
    assert [(each.state, each.run.name) for each in all_runs.read()] == [("stopped", "run-2"), ("done", "another")]


def test_the_verdict_of_a_run_that_has_ended_comes_from_its_report():
    slow = "rank 2 is slow: +12 ms data"
    report(made(1), f"done: 700 steps in 5m00s; {slow}", 700, 300.0, [slow])
    report(made(2), "done: 9 steps in 3.0 s", 9, 3.0)
    made(3, exit_code=127, error="cannot start torchrun: No such file or directory")
    (runs.run_dir(made(4).id) / "report.json").write_text("{")
    _, text = drive(snapshots.slow(), "8", "G")
    lines = {row.split()[2]: row for row in text.splitlines() if row.split()[1:2] in (["DONE"], ["FAILED"])}
    assert lines["run-1"].endswith("rank 2 is slow: +12 ms data")
    assert lines["run-2"].endswith("  9 steps in 3.0 s")
    assert lines["run-3"].endswith("cannot start torchrun: No such…")
    assert lines["run-4"].endswith("–")
    assert "done: 700 steps in 5m00s; rank 2 is slow: +12 ms data" in text, "whole under the cursor"


def test_a_replay_at_an_earlier_moment_says_nothing_of_how_the_run_ended():
    shot = snapshots.slow()
    run = made(1, id=shot.run.id)
    _, text = drive(shot, "8")
    assert "rank 13" in text.splitlines()[1]
    assert next(row for row in text.splitlines() if " DONE " in row).endswith("  –")
    assert " done; it left no report" in text.splitlines()
    report(run, "done: 9 steps in 3.0 s", 9, 3.0)
    assert next(row for row in drive(shot, "8")[1].splitlines() if " DONE " in row).endswith("  9 steps in 3.0 s")


def test_variables_of_a_run_are_told_but_for_secrets():
    made(1, environment={"OMP_NUM_THREADS": "1", "WANDB_API_KEY": "geheim"})
    assert " OMP_NUM_THREADS=1 WANDB_API_KEY=… train.py --lr 0.1   in /" in drive(snapshots.slow(), "8")[1]


def test_a_report_is_read_once_and_one_that_is_not_there_yet_again(living):
    run = made(1, supervisor=runs.Process.of(living.pid))
    all_runs = AllRuns()
    (listed,) = all_runs.read()
    assert all_runs.verdict(listed).brief == "ddpmon is still writing its report"
    path = runs.run_dir(run.id) / "report.json"
    path.write_text('{"verdict": "done: 9 steps"}')
    assert all_runs.verdict(listed) == ListedVerdict("done: 9 steps", "done: 9 steps")
    path.unlink()
    assert all_runs.verdict(listed) == ListedVerdict("done: 9 steps", "done: 9 steps")
    assert all_runs.verdict(dataclasses.replace(listed, state="running")) == ListedVerdict()


def test_a_report_that_is_written_between_two_looks_is_not_missing_for_ever(monkeypatch):
    run = made(1)
    path = runs.run_dir(run.id) / "report.json"
    supervised = runs.Run.supervised

    def looks(self):
        """Say that the supervisor lives, which then writes the report and ends."""
        if not path.exists():
            path.write_text('{"verdict": "stopped on request after 9 steps"}')
            return True
        return supervised(self)

    all_runs = AllRuns()
    (listed,) = all_runs.read()
    monkeypatch.setattr(runs.Run, "supervised", looks)
    all_runs.verdict(listed)
    assert all_runs.verdict(listed).sentence == "stopped on request after 9 steps"


def test_a_run_of_another_machine_is_unknown_and_neither_stopped_deleted_nor_started_again(home):
    where = "started on node07, and ddpmon cannot see it from here"
    made(6, ended_at=None, exit_code=None, host="node07", boot_id="another", cwd="/")
    _, text = drive(snapshots.slow(), "8", size=(160, 50))
    assert "? UNKNOWN   run-6" in text
    assert f" {where}" in text.splitlines()
    for keys, said in (
        (("x",), f"the run {where}; stop it there"),
        (("D", settle), f"{where}; delete the run there, or use ddpmon rm --force if the run has certainly ended"),
        (("R", settle, "s", settle), f"{where}; stop it there first, then start the run again"),
    ):
        assert said in drive(snapshots.slow(), "8", *keys, size=(200, 50))[1].splitlines()[-1]
    assert len(runs.all_runs()) == 1
