"""Test which commands start, for a new run or a repeated one, and which are refused before that."""

from __future__ import annotations

import dataclasses

import pytest

from ddpmon import runs
from ddpmon.errors import UsageError
from ddpmon.launch import spec, start, torchrun
from ddpmon.launch.prepare import Asked, prepare_again, prepare_run


@pytest.fixture(autouse=True)
def with_torch(monkeypatch):
    """Skip the check for torch: other tests are about it."""
    monkeypatch.setattr(spec, "check_torch", lambda: None)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text("print('trained')\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text("")
    return tmp_path


def ended(run, **changes) -> runs.Run:
    """The run as it ended."""
    return dataclasses.replace(run, **{"ended_at": run.created_at + 1.0, "exit_code": 0, **changes})


def same(first, second, **changes) -> bool:
    """Whether two runs that have not started differ only in what each run has of its own, and in changes."""
    own = {"id": first.id, "created_at": first.created_at, "created_boot_s": first.created_boot_s}
    return dataclasses.replace(second, **own, **changes) == first


def test_scripts_and_modules_are_looked_for_in_the_folder_they_run_in(folder):
    wanted = prepare_run(Asked("train.py", ["--lr", "0.1"], nproc="3", cwd=str(folder)), "id-1")
    assert (wanted.name, wanted.world_size, wanted.cwd) == ("train", 3, str(folder))
    assert wanted.argv[-4:] == ["--", "train.py", "--lr", "0.1"]
    assert "--nproc-per-node=3" in wanted.argv
    module = prepare_run(Asked("package.train", module=True, cwd=str(folder)), "id-1")
    assert module.argv[-3:] == ["-m", "--", "package.train"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cwd": "/no/such/folder"}, "no folder /no/such/folder"),
        ({"environment": {"A B": "1"}}, "'A B' is not the name of a variable"),
        ({"environment": {"": "1"}}, "write KEY=VALUE"),
        ({"environment": {"DDPMON_SOCKET": "ipc:///tmp/other"}}, "ddpmon sets DDPMON_SOCKET itself"),
    ],
)
def test_what_cannot_be_started_is_refused_in_one_line(folder, changes, said):
    with pytest.raises(UsageError) as caught:
        prepare_run(dataclasses.replace(Asked("train.py", cwd=str(folder)), **changes), "id-1")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_is_started_again_as_it_was_but_for_where_its_ranks_write(folder):
    asked = Asked(
        "train.py", ["--log-dir=/x/id-1/logs/ranks"], nproc="2", name="mine", cwd=str(folder),
        environment={"OMP_NUM_THREADS": "1"}, max_restarts=2, grace_s=7.0, buckets=True,
    )  # fmt: skip
    first = prepare_run(asked, "id-1")
    second = prepare_again(ended(first), "id-2")
    assert same(second, prepare_run(asked, "id-2"), script_args=first.script_args)


def test_a_command_that_was_armed_is_started_again_as_it_was(folder):
    command = ["python3", "-m", "torch.distributed.run", "--log-dir=/somewhere", "train.py"]
    armed = start.new_run(
        "id-1", name="mine", argv=command, script="python3", script_args=command[1:], cwd=str(folder), world_size=0
    )
    assert same(prepare_again(ended(armed), "id-2"), armed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nnodes": 2}, "on several machines"),
        ({"cwd": "/no/such/folder"}, "no folder /no/such/folder"),
        ({"argv": []}, "did not record the command of this run"),
        ({"argv": ["/no/such/python", "train.py"]}, "no program /no/such/python"),
        ({"ended_at": None, "supervisor": "alive"}, "stop it first"),
    ],
)
def test_what_cannot_be_started_again_says_why(folder, changes, said):
    import os

    run = ended(prepare_run(Asked("train.py", cwd=str(folder)), "id-1"))
    if "supervisor" in changes:
        changes = {**changes, "supervisor": runs.Process.of(os.getpid())}
    with pytest.raises(UsageError) as caught:
        prepare_again(dataclasses.replace(run, **changes), "id-2")
    assert said in str(caught.value)


def test_what_an_older_torchrun_cannot_do_is_noted_when_it_starts_and_when_it_starts_again(folder, monkeypatch):
    asked = Asked("train.py", cwd=str(folder), grace_s=60.0)
    monkeypatch.setattr(torchrun, "known_options", lambda: frozenset({"--shutdown-timeout"}))
    newer = prepare_run(asked, "id-1")
    assert "--shutdown-timeout=60" in newer.argv
    assert newer.notes == []
    monkeypatch.setattr(torchrun, "known_options", frozenset)
    older = prepare_run(asked, "id-2")
    assert older.notes == [
        "--grace: torchrun in this version of torch has no --shutdown-timeout, so it kills ranks 30 s after a stop"
    ]
    once_more = prepare_again(ended(newer), "id-2")
    assert (once_more.argv, once_more.notes) == (older.argv, older.notes)
