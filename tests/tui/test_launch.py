"""Starting runs from the dashboard, and what else is done to them there: again, another name, away, side by side."""

import subprocess

import pytest

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import last_launch, spec
from ddpmon.launch.last_launch import LaunchForm
from ddpmon.source import place
from ddpmon.tui import launching
from ddpmon.tui.screens.form import Form
from tests.fake_source import FakeSource
from tests.tui import golden, snapshots
from tests.tui.driving import drive, resized, screen_text, seen, settle, until
from tests.tui.test_runs import NOW, made


def shows(*texts):
    """Fails unless the screen shows these now."""

    def look(app, _):
        for text in texts:
            assert text in screen_text(app)

    return look


def holds(field, value):
    """Fails unless a field of the form holds this now."""

    def look(app, _):
        assert isinstance(app.screen, Form)
        assert app.screen.inputs[field].value == value

    return look


def typed(text):
    """Type a text into the field with the focus, in place of what is in it."""

    async def type_it(app, pilot):
        app.focused.value = ""
        await pilot.press(*text)

    return type_it


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a script; whether torch is installed is for other tests."""
    monkeypatch.setattr(spec, "check_torch", lambda: None)
    monkeypatch.setattr("ddpmon.tui.widgets.runlist.time.time", lambda: NOW)
    (tmp_path / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def started(monkeypatch):
    """What was started, instead of starting it; the dashboard watches a fake of it."""
    taken = []

    def start(wanted):
        taken.append(wanted)
        return made(9, id=wanted.id, name=wanted.name, argv=wanted.argv)

    def attach(run):
        return FakeSource(snapshots.replace(snapshots.running(), run=snapshots.replace(
            snapshots.running().run, id=run.id, name=run.name)))  # fmt: skip

    monkeypatch.setattr(launching, "start_run", start)
    monkeypatch.setattr(place, "attach", attach)
    return taken


@pytest.fixture
def living():
    """A process that stands for a supervisor."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        yield runs.Process.of(sleeper.pid)
        sleeper.kill()


def test_the_form(monkeypatch):
    monkeypatch.setattr("os.getcwd", lambda: "/home/ana/gpt2")
    golden.check("launch", drive(snapshots.slow(), "n")[1], golden.NARROW)


def test_what_is_filled_in_is_started_and_then_watched(started, folder):
    app, text = drive(
        snapshots.slow(), "n", typed("train.py"), "tab", typed("--lr '0 1'"), "down", typed("2"), "tab", typed("mine"),
        "tab", typed("A=1 B=2"), "enter", settle,
    )  # fmt: skip
    (wanted,) = started
    assert wanted.argv[-4:] == ["--", "train.py", "--lr", "0 1"]
    assert "--nproc-per-node=2" in wanted.argv
    assert any(wanted.id in word for word in wanted.argv if word.startswith("--log-dir="))
    assert (wanted.name, wanted.environment, wanted.cwd) == ("mine", {"A": "1", "B": "2"}, str(folder))
    assert "mine" in text.splitlines()[0]
    assert app.current_mode == "world"
    assert last_launch.load_form() == LaunchForm("train.py", "--lr '0 1'", "2", "mine", "A=1 B=2", str(folder))


def test_the_right_arrow_completes_the_paths_of_script_and_folder(started, folder):
    (folder / "project" / "source").mkdir(parents=True)
    (folder / "project" / "source" / "fit.py").touch()
    (folder / "project" / "source" / "notes.txt").touch()
    (folder / "other" / "lessons").mkdir(parents=True)  # The script's field does not show these names.

    def suggested(text):
        return until(lambda app: text in screen_text(app))

    drive(
        snapshots.slow(), "n", typed("pro"), suggested("project/"), "right", holds("script", "project/"),
        suggested("project/source/"), "right", suggested("project/source/fit.py"), "right",
        holds("script", "project/source/fit.py"), "up", typed("oth"), suggested("other/"),
        "right", holds("folder", "other/"), "down", typed("les"), suggested("lessons/"), "right",
        holds("script", "lessons/"),
    )  # fmt: skip
    assert not started


def test_the_next_form_begins_with_what_was_started_last(started, folder):
    last_launch.store_form(LaunchForm("-m package.train", "--epochs 3", "cpu", "", "OMP_NUM_THREADS=1", str(folder)))
    _, text = drive(snapshots.slow(), "n")
    for shown in ("-m package.train", "--epochs 3", "cpu", "OMP_NUM_THREADS=1", str(folder)[:40]):
        assert shown in text


WRONG = (
    ("script", "", "give a script: a file, or -m and the name of a module"),
    ("arguments", "'open", "arguments: no closing quotation"),
    ("processes", "0", "give 1 to 1024 processes"),
    ("name", "a b", "at most 64 letters, digits, '.', '_' and '-'"),
    ("environment", "DDPMON_HOME=/x", "ddpmon sets DDPMON_HOME itself"),
    ("folder", "/no/such", "no folder /no/such"),
)
"""(a field of the form, what cannot be in it, what is said of that)"""


def test_what_is_wrong_is_told_in_the_form_and_nothing_is_started(started, folder):
    last_launch.store_form(LaunchForm("train.py", folder=str(folder)))

    def fill(field, value):
        def fill_in(app, _):
            app.screen.inputs[field].value = value

        return fill_in

    def takes_back(said):
        def look(app, _):
            assert said not in screen_text(app), "it is taken back as soon as something is changed"

        return look

    steps = [
        step for field, value, said in WRONG
        for step in ("n", fill(field, value), "enter", settle, shows(said), "x", takes_back(said), "escape")
    ]  # fmt: skip
    drive(snapshots.slow(), *steps, size=(200, 24))
    assert started == []
    assert last_launch.load_form() == LaunchForm("train.py", folder=str(folder)), "only what was started is remembered"


def test_a_supervisor_that_does_not_come_up_is_told_in_the_form(monkeypatch, folder):
    def start(*_):
        raise DdpmonError("the supervisor of run 1 does not start; /x/supervisor.log says why")

    monkeypatch.setattr(launching, "start_run", start)
    _, text = drive(snapshots.slow(), "n", typed("train.py"), "enter", settle)
    assert "the supervisor of run 1 does not start" in text
    assert "┌─Start a run" in text


def test_the_form_opens_in_a_folder_that_is_gone(home, monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    drive(FakeSource(snapshots.slow()), "n", holds("folder", ""))


def test_where_runs_may_not_be_changed_nothing_is_offered_and_each_key_says_why(started):
    made(1)
    for key in "neDR":
        _, text = drive(snapshots.slow(), "8", key, readonly=True)
        assert "read-only: cannot" in text.splitlines()[-1]
    assert "n launch" not in drive(snapshots.slow(), "8", readonly=True, size=(160, 24))[1]
    help_text = drive(snapshots.slow(), "8", "question_mark", readonly=True, size=(120, 60))[1]
    for offered in ("start a run", "start this run again", "another name", "delete this run"):
        assert offered not in help_text
    assert started == []


def test_the_form_by_mouse(started):
    async def click(app, pilot):
        await pilot.click(app.screen.inputs["processes"])
        await pilot.press("3")
        await pilot.click(app.screen.box, offset=(5, 1))
        await pilot.press(*"train.py")
        await pilot.click(app.screen.box, offset=(4, app.screen.box.size.height - 2))

    drive(snapshots.slow(), "n", click, settle)
    (wanted,) = started
    assert wanted.world_size == 31


def test_the_form_at_any_size():
    """Every field can be reached: what has no room is scrolled to. Below that it says what it needs."""
    sizes = [(10, 3), (39, 24), (40, 6), (40, 9), (80, 10), (300, 100), (80, 5)]
    opened, left = [], []
    steps = [
        step for size in sizes
        for step in (resized(80, 24), "n", resized(*size), "up", seen(opened), "escape", seen(left))
    ]  # fmt: skip
    drive(snapshots.slow(), *steps)
    for (columns, lines), text in zip(sizes, opened, strict=True):
        rows = text.splitlines()
        if columns < 40 or lines < 6:
            assert "this form" in " ".join(rows)
        else:
            assert any("› folder" in row for row in rows)
            assert any("esc leave" in row for row in rows)
    assert len(left) == len(sizes)
    assert not any("Start a run" in text for text in left)


# --- again ---


@pytest.fixture
def ended(folder, started):
    """A run that has ended and could be started again."""
    remembered_run = launching.prepare_run(
        LaunchForm("train.py", "--lr 1", "2", "old", "A=1", str(folder)).requested_run(), "20260909-120001-0001"
    )
    return made(
        1, argv=remembered_run.argv, script_args=["--lr", "1"], cwd=str(folder), environment={"A": "1"}, name="old",
        world_size=2,
    )  # fmt: skip


def test_a_run_that_has_ended_is_started_again_after_a_question(ended, started):
    app, text = drive(snapshots.slow(), "8", "R")
    assert "Start train.py --lr 1 at 2 ranks in" in text
    assert started == []
    drive(snapshots.slow(), "8", "R", "enter")
    assert started == [], "Cancel is focused"
    app, text = drive(snapshots.slow(), "8", "R", "s", settle)
    (wanted,) = started
    assert wanted.id != ended.id
    assert wanted.argv == [word.replace(ended.id, wanted.id) for word in ended.argv]
    assert (wanted.name, wanted.cwd, wanted.environment) == ("old", ended.cwd, {"A": "1"})
    assert "old" in text.splitlines()[0]
    assert app.current_mode == "world"


def test_what_cannot_be_started_again_says_why(ended, started, folder, living):
    (folder / "train.py").unlink()
    _, text = drive(snapshots.slow(), "8", "R", "s", settle, size=(200, 24))
    assert "no script train.py in" in text.splitlines()[-1]
    made(2, ended_at=None, exit_code=None, supervisor=living)
    _, text = drive(snapshots.slow(), "8", "R")
    assert "run-2 is running; stop the run with x first" in text.splitlines()[-1]
    assert started == []


# --- another name ---


def test_a_run_gets_another_name(ended):
    _, text = drive(snapshots.slow(), "8", "e", holds("name", "old"), typed("after-fix"), "enter", settle)
    assert "after-fix" in text.splitlines()[5]
    assert runs.load(ended.id).name == "after-fix"


def test_what_is_no_name_is_told_and_nothing_is_renamed(ended):
    _, text = drive(snapshots.slow(), "8", "e", typed("a b"), "enter", settle)
    assert "letters, digits" in text
    drive(snapshots.slow(), "8", "e", typed("other"), "escape")
    assert runs.load(ended.id).name == "old"


# --- away ---


def test_a_run_is_deleted_after_a_question_that_says_what_goes(ended):
    (runs.run_dir(ended.id) / "telemetry.db").write_bytes(b"x" * 3_000_000)
    _, text = drive(snapshots.slow(), "8", "D", settle)
    assert "Delete old (20260909-120001-0001, done)" in text
    assert "3.0 MB" in text
    drive(snapshots.slow(), "8", "D", settle, "enter", settle)
    assert runs.load(ended.id) == ended, "Cancel is focused"
    _, text = drive(snapshots.slow(), "8", "D", settle, "d", settle)
    assert not runs.run_dir(ended.id).exists()
    assert "deleted old" in text.splitlines()[-1]
    assert "there is no run yet" in text


def test_what_runs_and_what_is_on_the_screens_is_not_deleted(living):
    run = made(2, ended_at=None, exit_code=None, supervisor=living)
    _, text = drive(snapshots.slow(), "8", "D", settle)
    assert "is running; stop it first" in text.splitlines()[-1]
    shown = made(3, id=snapshots.done().run.id)
    _, text = drive(snapshots.done(), "8", "D", settle)
    assert "the screens show" in text.splitlines()[-1]
    assert {each.id for each in runs.all_runs()} == {run.id, shown.id}
