"""Commands whose run is on another machine: output, exit codes and Ctrl-C pass through; what fails is one line."""

import json
import signal
import sys

import pytest

from tests.conftest import wait_for

SLEEPER = (sys.executable, "-c", "import time; print('trained', flush=True); time.sleep(600)")


def refused(result, code=1):
    """The one line that was said."""
    assert result.returncode == code, result
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("ddpmon: ")
    return line


def test_what_is_said_there_is_printed_here_with_its_exit_code(far, training):
    run, *_ = json.loads(far.cli("ls", "--json", "there:").stdout)
    assert run["id"] == training.run.id, "those of here are others"
    status = json.loads(far.cli("status", "--json", "there:mnist").stdout)
    assert (status["name"], status["step"]) == ("mnist", 30)
    training.finish(exit_code=3)
    assert far.cli("status", "there:").returncode == 2
    refused(far.cli("stack", "there:"))
    assert "no run 'nothing'" in refused(far.cli("status", "there:nothing"), 2)


def test_a_machine_that_does_not_let_one_in_and_no_ssh_here_are_one_line(far):
    for machine, said in (
        ("stranger", "the host key of this machine is unknown to your ssh"),
        ("changed", "the host key of this machine has changed"),
        ("keyless", "login refused"),
        ("closed", "cannot be reached"),
        ("no-such-host.invalid", "cannot be reached"),
    ):
        line = refused(far.cli("status", f"{machine}:"))
        assert said in line
        assert machine in line
    far.near["DDPMON_SSH"] = "no-such-ssh -v"
    assert "cannot start no-such-ssh" in refused(far.cli("ls", "there:"))


def test_no_ddpmon_there_is_one_line_with_the_way_out(far, training):
    far.near["DDPMON_REMOTE"] = "no-such-ddpmon"
    assert "does not start: exit code 127" in refused(far.cli("status", "there:"))
    del far.near["DDPMON_REMOTE"]
    config = far.folder / "sshd_config"
    config.write_text(
        config.read_text().replace("SetEnv ", "SetEnv HOME=/nowhere ").replace("/bin:/usr/bin", "/no:/usr/bin")
    )
    far.server.send_signal(signal.SIGHUP)  # reads its configuration again
    wait_for(lambda: far.log.count("listening") > 1)
    line = refused(far.cli("status", "there:"))
    assert "ddpmon is neither on the PATH of that machine" in line
    assert "set DDPMON_REMOTE" in line
    assert "ssh -t there ddpmon" in line


def test_a_ddpmon_there_that_is_too_old_or_breaks_is_one_line(far, training):
    old = far.wrapped("#!/bin/sh\necho \"ddpmon: No such command '$1'. (ddpmon --help)\" >&2\nexit 2\n")
    assert "too old" in refused(far.cli("status", "there:", **old))
    broken = far.wrapped("#!/bin/sh\necho 'ImportError: no zmq' >&2\nexit 1\n")
    assert "ImportError: no zmq" in refused(far.cli("status", "there:", **broken))
    silent = far.wrapped("#!/bin/sh\nexec yes nothing\n")
    assert "prints text without end" in refused(far.cli("status", "there:", **silent))
    newer = far.wrapped("#!/bin/sh\nprintf '<<ddpmon 9 9.0.0>>\\n'\n")
    assert "9.0.0, which is incompatible with the version here" in refused(far.cli("status", "there:", **newer))


def test_a_login_that_prints_a_banner_is_no_part_of_what_is_said(far, training):
    chatty = far.wrapped(
        "#!/bin/sh\necho Welcome to gpu07!\nprintf 'your quota is <<half>> full: '\nexec ddpmon \"$@\"\n"
    )
    assert json.loads(far.cli("status", "--json", "there:", **chatty).stdout)["name"] == "mnist"
    with far.dashboard("attach", "there:", **chatty) as terminal:
        terminal.wait_for("mnist on there")
        assert "Welcome" not in "\n".join(terminal.screen.display)


def test_garbage_between_the_frames_is_refused_and_the_line_begins_anew(far, training):
    noisy = far.wrapped('#!/bin/sh\n(sleep 3; echo "you have new mail") &\nexec ddpmon "$@"\n')
    with far.dashboard("attach", "there:", columns=160, **noisy) as terminal:
        terminal.wait_for("mnist on there")
        terminal.wait_for("does not come from ddpmon")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "-oProxyCommand=id:"), "option"),
        (("status", "me@-oProxyCommand=id"), "ssh does not accept"),
        (("attach", "a b:mnist"), "USER@HOST or HOST:RUN"),
        (("ls", "mnist"), "USER@HOST or HOST:"),
        (("ls", "there:mnist"), "ls lists all runs"),
        (("stop", "::1"), "in brackets"),
    ],
)
def test_a_word_that_names_no_machine_is_refused_before_ssh_is_started(cli, words, said):
    assert said in refused(cli(*words, env={"PATH": "/nowhere"}), 2).replace("No such ", "")


def test_stop_there_waits_until_nothing_is_left(far, launch):
    run = launch(*SLEEPER, grace_s=5.0)
    stopped = far.cli("stop", "there:test")
    assert stopped.returncode == 0, stopped
    assert "all its processes have ended" in stopped.stdout
    assert run.run.state() == "stopped"


def test_logs_follow_there_and_ctrl_c_reaches_them(far, launch):
    run = launch(*SLEEPER)
    for number in (signal.SIGINT, signal.SIGKILL):
        with far.start("logs", "-f", f"there:{run.id}") as follower:
            assert any("trained" in line for line in follower.stdout)
            assert far.relays()
            follower.send_signal(number)
            assert follower.wait(30) == (130 if number == signal.SIGINT else -number)
        wait_for(lambda: not far.relays(), 20)
    assert run.run.state() == "running"


def test_ctrl_c_in_a_stop_reaches_the_stop(far, launch):
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN); "
    run = launch(sys.executable, "-c", stubborn + "print('trained', flush=True); time.sleep(600)", grace_s=300.0)
    log = run.folder / "logs" / "launcher.log"
    wait_for(lambda: log.exists() and "trained" in log.read_text())
    with far.start("stop", f"there:{run.id}") as stopping:
        assert "300 s" in stopping.stdout.readline()
        stopping.send_signal(signal.SIGINT)
        assert stopping.wait(60) == 0, stopping.stderr.read()
    assert run.run.state() == "stopped"
