"""Secrets of a run: its command gets them, starting it again has them, and nobody else is shown them."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest

from ddpmon import runs
from ddpmon.errors import RunNotFoundError, UsageError
from ddpmon.launch import last_launch, prepare, start, stop
from ddpmon.launch.prepare import Asked
from tests.conftest import wait_for

SECRETS = ("hunter2", "k3y-value", "t0ken-value", "p4ss")
ARGS = ["--password", "hunter2", "--api-key=k3y-value", "--tokenizer", "bert", "--url", "pg://me:p4ss@db/x"]
VARIABLES = {"HF_TOKEN": "t0ken-value", "GREETING": "hello"}


def files_with(folder, words) -> dict[str, list[str]]:
    """Return what is found in which files below a folder."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and (here := [word for word in words if word.encode() in path.read_bytes()]):
            found[str(path.relative_to(folder))] = here
    return found


@pytest.fixture
def script(tmp_path):
    """Writes down what it was given, in a file of its own."""
    path = tmp_path / "train.py"
    path.write_text(
        "import json, os, pathlib, sys\n"
        "given = json.dumps([sys.argv[1:], os.environ['HF_TOKEN']])\n"
        "pathlib.Path(sys.argv[0]).with_name('given.json').write_text(given)\n"
    )
    return path


@pytest.fixture
def ended(home, script):
    wanted = start.new_run(
        runs.new_id(), name="train", argv=[sys.executable, str(script), *ARGS], script=sys.executable,
        script_args=[str(script), *ARGS], cwd=str(script.parent), world_size=0, environment=VARIABLES,
    )  # fmt: skip
    run = start.start_run(wanted)
    found = stop.wait_until_gone(run, 60.0)
    assert found is not None
    assert found.state() == "done"
    return found


def given(script):
    return json.loads((script.parent / "given.json").read_text())


def test_the_command_is_given_them_one_file_alone_keeps_them_and_no_command_shows_them(ended, script, cli):
    assert given(script) == [ARGS, "t0ken-value"]
    kept = files_with(runs.home(), SECRETS)
    assert list(kept) == [f"runs/{ended.id}/secrets.json"]
    assert set(kept[f"runs/{ended.id}/secrets.json"]) == set(SECRETS)
    assert ended.environment == {"HF_TOKEN": "…", "GREETING": "hello"}
    hidden = ["--password", "…", "--api-key=…", "--tokenizer", "bert", "--url", "pg://me:…@db/x"]
    assert ended.script_args == [str(script), *hidden]
    assert ended.argv[2:] == hidden
    said = ""
    for command in (["ls"], ["ls", "--json"], ["status"], ["report"], ["report", "--format", "json"], ["logs"]):
        told = cli(*command)
        said += told.stdout + told.stderr
    assert ended.id in said
    assert not [word for word in SECRETS if word in said]
    assert json.loads(cli("ls", "--json").stdout)[0]["script_args"] == ended.script_args


def test_the_first_line_of_a_run_in_the_foreground_hides_them(cli, script):
    environment = {**os.environ, "HF_TOKEN": "t0ken-value"}
    told = cli("exec", "--headless", "--", sys.executable, str(script), *ARGS, env=environment)
    assert told.returncode == 0
    assert "--password … --api-key=… --tokenizer bert --url pg://me:…@db/x" in told.stdout.splitlines()[0]
    assert not [word for word in SECRETS if word in told.stdout + told.stderr]
    assert list(files_with(runs.home(), SECRETS)) == [f"runs/{runs.find(None).id}/secrets.json"]


def test_started_again_it_has_them_once_more_unless_they_were_deleted(ended, script):
    (script.parent / "given.json").unlink()
    with runs.reserved() as run_id:
        again = start.start_run(prepare.prepare_again(ended, run_id))
    assert again.script_args == ended.script_args, "who watches it is shown none either"
    wait_for((script.parent / "given.json").exists)
    assert stop.wait_until_gone(again, 60.0).state() == "done"
    assert given(script) == [ARGS, "t0ken-value"]
    (runs.run_dir(ended.id) / "secrets.json").unlink()
    with pytest.raises(RunNotFoundError, match=r"ddpmon cannot read the stored passwords of train .*: .*secrets\.json"):
        prepare.prepare_again(ended, "20260101-000002-0002")


def test_a_run_without_secrets_has_no_file_of_them(launch):
    started = launch("true")
    started.until_gone()
    assert not (started.folder / "secrets.json").exists()
    assert not started.run.hides


def test_the_form_remembers_none_and_does_not_start_without_them(home):
    asked = Asked("train.py", ARGS, environment=VARIABLES, cwd="/tmp")
    last_launch.store_form(last_launch.form_for(asked))
    assert not files_with(runs.home(), SECRETS)
    last = last_launch.load_form()
    assert last.environment == "'HF_TOKEN=…' GREETING=hello"
    with pytest.raises(UsageError, match=r"--password …: ddpmon does not store secrets, so type this value again"):
        last.requested_run()


def test_what_is_written_of_a_run_is_for_its_user_alone_and_its_own_files_are_as_its_user_wants(cli, tmp_path):
    made = tmp_path / "checkpoint.pt"
    command = ["exec", "--headless", "--", "sh", "-c", f"echo weights > {made}"]
    before = os.umask(0o022)
    try:
        assert cli(*command).returncode == 0
    finally:
        os.umask(before)
    files = [path for path in runs.home().rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {
        "run.json",
        "telemetry.db",
        "report.json",
        "supervisor.log",
        "launcher.log",
    }
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in files} == {path.name: 0o600 for path in files}
    assert stat.S_IMODE(made.stat().st_mode) == 0o644
