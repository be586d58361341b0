"""ddpmon rename and rm."""

from __future__ import annotations

import pytest

from ddpmon import runs
from ddpmon.errors import RunNotFoundError, UsageError
from tests.cli.test_bad_input import refused
from tests.in_process import called_in_a_terminal


def test_rename_gives_another_name(cli, made):
    run = made()
    told = cli("rename", "mnist", "before")
    assert (told.returncode, told.stdout) == (0, f"mnist ({run.id}) is now before\n")
    assert runs.find("before").id == run.id
    with pytest.raises(RunNotFoundError):
        runs.find("mnist")


def test_rename_refuses_what_is_no_name_and_what_is_no_run(cli, made):
    run = made()
    for name in ("", "-x", "a b", "../up", "a/b", "x" * 65, "ä"):
        with pytest.raises(UsageError, match="NAME"):
            runs.rename(run, name)
    assert "NAME 'a b'" in refused(cli("rename", "mnist", "a b"))
    other = made(name="taken")
    assert f"run {other.id} already has the name taken" in refused(cli("rename", "mnist", "taken"))
    assert cli("rename", "taken", "taken").returncode == 0
    assert "no run 'nothing'" in refused(cli("rename", "nothing", "name"))


def test_rm_deletes_when_told_so(cli, made):
    gone, kept = made(), made(name="other")
    told = cli("rm", "mnist", "--yes")
    assert told.returncode == 0
    assert told.stdout.startswith(f"deleted mnist ({gone.id}), done, ")
    assert [run.id for run in runs.all_runs()] == [kept.id]


def test_rm_without_a_terminal_deletes_nothing_unless_told_so(cli, made):
    made()
    assert "give --yes" in refused(cli("rm", "mnist"))
    assert len(runs.all_runs()) == 1


@pytest.mark.parametrize(("answer", "left"), [(b"n", 1), (b"\r", 1), (b"y", 0)])
def test_rm_asks(made, answer, left):
    made()
    code, written = called_in_a_terminal("rm", "mnist", answer=answer + b"\r")
    assert code == 0
    assert "Delete mnist" in written
    assert len(runs.all_runs()) == left


def test_rm_refuses_what_runs(cli, made, living):
    made(ended_at=None, exit_code=None, supervisor=living)
    assert "is running; stop it first" in refused(cli("rm", "mnist", "--yes"))
    assert len(runs.all_runs()) == 1


def test_rm_wants_to_be_told_which(cli, made):
    made()
    assert "Missing argument 'RUN'" in refused(cli("rm"))
