"""Test which runs are of this machine, which are elsewhere, and the arguments that ssh gets."""

import contextlib
import os
import pty
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.errors import UsageError
from ddpmon.remote.address import Address, command, parse
from ddpmon.remote.channel import greeting
from tests.conftest import ddpmon_program


@pytest.mark.parametrize("word", [None, "", "mnist", "20260101-000001-0001", "..", "-x"])
def test_a_word_without_colon_and_at_is_a_run_of_this_machine(word):
    assert parse(word) is None


@pytest.mark.parametrize(
    ("word", "host", "run", "where"),
    [
        ("me@gpu07", "me@gpu07", None, "gpu07"),
        ("me@gpu07:", "me@gpu07", None, "gpu07"),
        ("me@gpu07:mnist", "me@gpu07", "mnist", "gpu07"),
        ("gpu07:", "gpu07", None, "gpu07"),
        ("gpu07:2026", "gpu07", "2026", "gpu07"),
        ("gpu07.cluster.org:mnist", "gpu07.cluster.org", "mnist", "gpu07.cluster.org"),
        ("[::1]:mnist", "::1", "mnist", "::1"),
        ("me@[fe80::1%eth0]", "me@fe80::1%eth0", None, "fe80::1%eth0"),
        ("me@corp.org@gpu07:mnist", "me@corp.org@gpu07", "mnist", "gpu07"),
    ],
)
def test_a_word_with_one_is_a_run_elsewhere(word, host, run, where):
    found = parse(word)
    assert found == Address(host, run)
    assert found.where == where
    assert parse(found.word("r1")) == Address(host, "r1")


@pytest.mark.parametrize(
    "word",
    [":", "@", ":mnist", "me@", "@gpu07", "::1", "fe80::1:mnist", "-oProxyCommand=id:", "me@-oProxyCommand=id", "-l@h",
     "gpu 07:", "gpu07:a b", "gpu07:../x", "gpu07:-f", "gpu07:a:b", "$(id):", "a;id:", "me`id`@h", "h\n:", "[::1:x"],
)  # fmt: skip
def test_a_word_that_is_neither_is_refused_in_one_line(word):
    with pytest.raises(UsageError) as error:
        parse(word)
    assert "\n" not in str(error.value)


@given(st.text(max_size=40))
def test_no_word_makes_an_option_or_anything_else_than_a_machine(word):
    try:
        found = parse(word)
    except UsageError:
        return
    if found is not None:
        assert not found.host.startswith("-")
        assert not set(found.host) & set(" \t\n\"'`$;&|<>(){}*?!#")


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "fish", "tcsh"])
def test_words_reach_ddpmon_there_as_they_are_whatever_the_shell(shell, tmp_path, monkeypatch):
    if subprocess.run(["which", shell], capture_output=True, check=False).returncode:
        pytest.skip(f"no {shell} here")
    told = tmp_path / "told"
    (tmp_path / "ddpmon").write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {told}\n")
    (tmp_path / "ddpmon").chmod(0o755)
    words = ["_there", "--", "logs", "a b", "$(id)", "it's", 'say "x"', "*", "a\\b", ";"]
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    subprocess.run([shell, "-c", command("there", words, unattended=False)[-1]], check=True)
    assert told.read_text().splitlines() == words


FAR = r"""#!/bin/sh
printf '%b' '{greeting}'
printf 'done \033]0;title\007\033[2J\n'
printf 'warned \033[8m\r\n' >&2
"""


def test_what_another_machine_prints_steers_no_terminal(tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text(FAR.format(greeting=greeting().decode().replace("\n", "\\n")))
    ssh.chmod(0o755)
    master, terminal = pty.openpty()
    environment = os.environ | {"DDPMON_SSH": str(ssh), "DDPMON_HOME": str(tmp_path)}
    command = [ddpmon_program(), "status", "there:"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment):
        os.close(terminal)
        printed = b""
        with contextlib.suppress(OSError):  # the terminal's other end is closed
            while data := os.read(master, 4096):
                printed += data
    os.close(master)
    assert sorted(printed.decode().split()) == ["done", "warned"]


def test_ssh_and_the_command_there_can_be_told(monkeypatch):
    monkeypatch.setenv("DDPMON_SSH", "ssh -F 'my config' -p 2222")
    monkeypatch.setenv("DDPMON_REMOTE", "cd ~/project && uv run ddpmon")
    words = command("me@gpu07", ["_relay", "mnist"], unattended=True)
    assert words[:5] == ["ssh", "-F", "my config", "-p", "2222"]
    assert words[-3:-1] == ["--", "me@gpu07"]
    assert "BatchMode=yes" in words
    assert shlex.split(words[-1]) == ["exec", "sh", "-c", "cd ~/project && uv run ddpmon _relay mnist"]
    attended = command("me@gpu07", ["_relay"], unattended=False)
    assert "BatchMode=yes" not in attended
    assert "ConnectTimeout=20" in attended
    monkeypatch.setenv("DDPMON_SSH", "ssh 'x")
    with pytest.raises(UsageError, match="DDPMON_SSH"):
        command("me@gpu07", ["_relay"], unattended=False)
