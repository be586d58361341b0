"""ddpmon completion: what shells complete."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.cli.commands.completing import place
from ddpmon.cli.commands.replaying import unpack
from tests.in_process import called


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A user with an empty home, and one run."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "BASH_COMPLETION_USER_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDPMON_HOME", str(tmp_path / "ddpmon"))
    monkeypatch.setenv("SHELL", "/bin/bash")
    unpack()
    return tmp_path


def completed(*words: str) -> list[str]:
    """Return what bash would offer for the last word, by the file that was installed."""
    script = f"""
        source "$HOME/.local/share/bash-completion/completions/ddpmon"
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
        _ddpmon_completion ddpmon; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    answer = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path}, check=True
    )
    assert not answer.stderr
    return answer.stdout.split()


def test_bash_completes_commands_and_runs_by_what_one_command_installed(user):
    installed = called("completion")
    assert installed.returncode == 0
    assert str(user / ".local/share/bash-completion/completions/ddpmon") in installed.stdout
    assert completed("ddpmon", "rep") == ["replay", "report"]
    [run] = runs.all_runs()
    assert completed("ddpmon", "report", run.name[:2]) == [run.name]


def test_where_there_can_be_no_runs_nothing_is_offered_and_nothing_complained_of(user, monkeypatch):
    called("completion", "bash")
    (user / "file").touch()
    monkeypatch.setenv("DDPMON_HOME", str(user / "file" / "below"))
    assert completed("ddpmon", "report", "") == []


def test_each_shell_has_its_place(user):
    assert place("bash", {"XDG_DATA_HOME": "/d"}) == Path("/d/bash-completion/completions/ddpmon")
    assert place("bash", {"BASH_COMPLETION_USER_DIR": "/b"}) == Path("/b/completions/ddpmon")
    assert place("fish", {}) == user / ".config/fish/completions/ddpmon.fish"
    assert "fpath+=" in called("completion", "zsh").stdout
    assert "#compdef ddpmon" in (user / ".local/share/zsh/site-functions/_ddpmon").read_text()


def test_a_shell_that_is_none_and_a_place_that_cannot_be_are_one_line(user, monkeypatch):
    assert called("completion", "tcsh").returncode == 2
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    refused = called("completion")
    assert refused.returncode == 2
    assert refused.stderr == (
        "ddpmon: completion: $SHELL is tcsh, which has no completion; give one of these shells: bash, fish, zsh\n"
    )
    (user / ".config").write_text("")
    refused = called("completion", "fish")
    assert refused.returncode == 2
    assert "--print" in refused.stderr
    assert "complete" in called("completion", "fish", "--print").stdout
