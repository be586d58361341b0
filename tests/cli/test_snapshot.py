"""ddpmon snapshot: a screen of the dashboard as text, SVG or PNG, of a run that ended or goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from ddpmon import runs
from ddpmon.cli.commands.replaying import unpack
from tests.conftest import ddpmon_program, wait_for
from tests.in_process import called
from tests.tui.terminal import Terminal


@pytest.fixture
def line(home):
    """The run that ships with ddpmon."""
    return unpack()


def snapshot(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: it chooses the colours before Textual is imported."""
    return subprocess.run(["env", *(f"{name}={value}" for name, value in variables.items()), ddpmon_program(),
                           "snapshot", *words], capture_output=True, text=True, check=False)  # fmt: skip


def test_a_config_file_with_an_unknown_column_is_refused_in_one_line(line, tmp_path, monkeypatch):
    (tmp_path / "ddpmon").mkdir()
    (tmp_path / "ddpmon" / "config.toml").write_text('[ranks]\ncolumns = ["own", "foo"]\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = called("snapshot", line.name, "--screen", "ranks")
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert "ranks.columns" in said
    assert "foo" in said


def test_a_screen_of_a_run_that_ended_is_text_on_stdout(line):
    done = snapshot(line.name, "--screen", "inspect", "--size", "80x24")
    assert (done.returncode, done.stderr) == (0, "")
    rows = done.stdout.split("\n")
    assert len(rows) == 24 + 1
    assert max(map(len, rows)) <= 80
    assert "✔ DONE     line  4 ranks" in rows[0]
    assert "─rank 2 · node01" in done.stdout
    assert "coming…" not in done.stdout


def test_an_svg_is_in_colours_and_fetches_nothing(line, tmp_path):
    path = tmp_path / "world.svg"
    assert snapshot("-o", str(path)).returncode == 0
    drawn = path.read_text()
    assert drawn.startswith("<svg")
    assert "ddpmon&#160;line" in drawn
    assert "#e69f00" in drawn
    assert "@font-face" not in drawn
    assert snapshot("-o", str(path), DDPMON_THEME="light").returncode == 0
    assert "#7d5100" in path.read_text()


def test_a_png_is_drawn_where_there_is_a_program_for_it_and_refused_in_a_line_where_there_is_none(line, tmp_path):
    path = tmp_path / "world.png"
    done = called("snapshot", "-o", str(path), env={**os.environ, "PATH": "/nowhere"})
    assert done.returncode == 2
    assert done.stderr.startswith("ddpmon: PNGs need rsvg-convert, which is missing: install librsvg2-bin, or write")
    assert not path.exists()
    if shutil.which("rsvg-convert"):
        assert snapshot("-o", str(path)).returncode == 0
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("words", "said"), [
    (["-o", "x.jpg"], "-o x.jpg: the name must end in .svg, .png or .txt"),
    (["--size", "3x3"], "'3x3' is no size: give COLUMNSxLINES from 20x5 to 500x300, as in 160x50"),
    (["--size", "big"], "'big' is no size"),
    (["--screen", "moon"], "'moon' is not one of"),
    (["-o", "/no/such/folder/world.txt"], "No such file or directory"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_said_in_a_line(line, words, said):
    done = called("snapshot", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_that_goes_on_is_drawn_as_it_is_now(launch):
    started = launch(sys.executable, "-c", "import time; time.sleep(600)")
    wait_for((runs.socket_dir(started.id) / "view.sock").exists)
    done = snapshot("--size", "80x24")
    assert done.returncode == 0
    assert "WAITING" in done.stdout.splitlines()[0]


@pytest.mark.terminal
def test_a_screen_is_saved_by_key_and_by_its_command(home):
    with Terminal("ddpmon", "demo", columns=160, rows=50) as terminal:
        terminal.wait_for("own ms per step")  # the first steps are there: before, Ranks lists what connects
        terminal.press(b" 2")
        terminal.wait_for("problems first, then own time")
        terminal.press(b"T")
        shown = terminal.wait_for("saved as ")
        terminal.press(b"\x10")
        terminal.wait_for("Search for commands")
        terminal.press(b"as a picture")
        terminal.wait_for("Save the screen as a picture (SVG)")
        terminal.press(b"\r")
        terminal.wait_for(".svg")
        assert "/ranks-" in shown
        assert ".txt" in shown
        terminal.press(b"q")
        assert terminal.wait_end() == 0
        assert b"Traceback" not in terminal.raw
