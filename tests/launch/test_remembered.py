"""The last launch: what is typed means, and that it is kept for its user alone and never trusted."""

from __future__ import annotations

import json
import os
import stat

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ddpmon import runs
from ddpmon.cli import command_line
from ddpmon.errors import UsageError
from ddpmon.launch import last_launch
from ddpmon.launch.last_launch import LaunchForm, form_for, load_form, store_form
from ddpmon.launch.prepare import Asked

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20)


@pytest.fixture(autouse=True)
def _own_home(home):
    """A home of this test's own."""


def test_what_is_typed_means_what_a_shell_would_make_of_it():
    asked = LaunchForm("train.py", "--note 'two words' -x", "4", " mine ", "A=1 B='2 3' C=").requested_run()
    assert asked == Asked(
        "train.py", ["--note", "two words", "-x"], False, "4", "mine", None, {"A": "1", "B": "2 3", "C": ""}
    )  # fmt: skip
    assert LaunchForm("-m package.train", folder="~").requested_run() == Asked(
        "package.train", module=True, cwd=os.path.expanduser("~")
    )


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (LaunchForm(), "give a script"),
        (LaunchForm("  "), "give a script"),
        (LaunchForm("t.py", arguments="'open"), "arguments: no closing quotation"),
        (LaunchForm("t.py", environment="A=1 B"), "'B' is not of the form KEY=VALUE"),
        (LaunchForm("t.py", environment='A="'), "environment: no closing quotation"),
    ],
)
def test_what_cannot_be_understood_is_one_line(given_, said):
    with pytest.raises(UsageError) as caught:
        given_.requested_run()
    assert said in str(caught.value)


@given(st.lists(WORDS), st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]*", fullmatch=True), WORDS))
def test_a_command_line_is_remembered_as_it_would_be_typed(args, environment):
    asked = Asked("train.py", args, nproc="2", name="n", cwd="/tmp", environment=environment)
    assert form_for(asked).requested_run() == asked


def test_it_is_kept_for_its_user_alone_and_read_again():
    assert load_form() == LaunchForm()
    one = LaunchForm("train.py", "--note 'two words'", "2", "", "LEVEL=high", "/tmp")
    store_form(one)
    store_form(one)
    path = runs.home() / "launch.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_form() == one
    assert [entry.name for entry in runs.home().iterdir()] == ["launch.json"], "no draft is left"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe", b"[1]", b'"text"', b"null", b'{"script": 3, "arguments": ["x"]}', b"[" * 100_000,
        b'{"script": "\\u001b[2J"}', b'{"script": "a\\nb"}', b" " * 200_000,
    ],
)  # fmt: skip
def test_a_damaged_file_is_as_good_as_none(content):
    runs.private_dir(runs.home())
    (runs.home() / "launch.json").write_bytes(content)
    assert load_form() == LaunchForm()


def test_what_is_unknown_or_wrong_in_it_does_not_hide_the_rest():
    runs.private_dir(runs.home())
    (runs.home() / "launch.json").write_text(json.dumps({"script": "a.py", "name": 3, "colour": "blue"}))
    assert load_form() == LaunchForm("a.py")


def test_what_the_command_line_starts_is_remembered_too(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr("ddpmon.launch.spec.check_torch", lambda: None)
    monkeypatch.setattr("ddpmon.cli.commands.launching._start", lambda *arguments: started.append(arguments))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    run = CliRunner()
    run.invoke(command_line, ["run", "--nproc", "2", "--name", "mine", "train.py", "--note", "two words"])
    assert load_form() == LaunchForm("train.py", "--note 'two words'", "2", "mine", "", str(tmp_path))
    run.invoke(command_line, ["run", "nothing.py"])
    node = ["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "127.0.0.1:29500"]
    run.invoke(command_line, ["run", *node, "train.py"])
    assert load_form().name == "mine", "neither what was not started, nor one machine of several"
    assert len(started) == 2


def test_a_home_that_cannot_be_written_is_no_reason_not_to_start(monkeypatch):
    monkeypatch.setenv("DDPMON_HOME", "/proc/nowhere")
    last_launch.store_form(LaunchForm("train.py"))
    assert load_form() == LaunchForm()
