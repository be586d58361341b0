"""A user without HOME and without an entry in passwd, as containers have: it works, or says in one line what to set."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys

import pytest

from tests.cli.test_bad_input import refused

NOBODY = 54321
KNOWN_TO_NOBODY = ["unshare", "-U", f"--map-user={NOBODY}", f"--map-group={NOBODY}"]
"""Puts a command line under a user whom the machine does not know, and who may read what this one may."""
SAID = (
    "ddpmon: this user has no home folder, because HOME is not set and passwd has no entry; set DDPMON_HOME to a folder"
)


@pytest.fixture
def call(home):
    """Run ddpmon as such a user, with nothing in the environment but what is given."""
    with pytest.raises(KeyError):
        pwd.getpwuid(NOBODY)
    if shutil.which("unshare") is None or subprocess.run([*KNOWN_TO_NOBODY, "true"], check=False).returncode:
        pytest.skip("no user namespace can be made here")

    def run(*arguments: str, **environment: str):
        return subprocess.run(
            [*KNOWN_TO_NOBODY, sys.executable, "-m", "ddpmon", *arguments],
            env={"PATH": os.environ["PATH"], **environment}, cwd=home, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("command", [["ls"], ["attach"], ["exec", "true"]])
def test_without_either_one_line_says_what_to_set(call, command):
    assert refused(call(*command), 1) == SAID


def test_what_needs_no_runs_works_without(call):
    assert call("--help").returncode == 0
    assert call("--version").stdout.startswith("ddpmon ")


@pytest.mark.parametrize("variable", ["DDPMON_HOME", "HOME", "XDG_STATE_HOME"])
def test_with_a_folder_of_its_own_all_works(call, home, variable):
    mine = str(home)
    environment = {variable: mine, "DDPMON_RUNTIME_DIR": f"{mine}/s"}
    done = call("exec", "--headless", "--name", "here", "--", "true", **environment)
    assert done.returncode == 0, done.stderr
    listed = call("ls", **environment)
    assert listed.stdout.splitlines()[1].split()[1:3] == ["here", "done"]
    assert len(list(home.rglob("run.json"))) == 1


def test_a_home_that_takes_nothing_is_one_line_too(call):
    assert call("ls", HOME="/proc").stdout.startswith("no runs yet")
    said = refused(call("exec", "--headless", "--", "true", HOME="/proc"), 1)
    assert "cannot make /proc/.local/state/ddpmon: " in said
    assert "set DDPMON_HOME" in said
