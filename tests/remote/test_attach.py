"""The dashboard of a run on another machine: through a real sshd, to a real hub, in a real terminal."""

import re
import signal
import sys

import psutil
import pytest

from tests.conftest import wait_for
from tests.tui.terminal import Terminal


def words(screen):
    """Return the words of a screen, whatever lines they are broken into."""
    return " ".join(screen.split())


def shows_it(terminal, name="mnist on there"):
    """The screen once it shows the run as it is now."""
    return terminal.wait_until(lambda shown: name in shown and "step 30" in shown and "STALE" not in shown, name)


@pytest.mark.timeout(600)
def test_whatever_breaks_on_the_way_the_dashboard_shows_the_last_state_and_comes_back(far, training):
    with far.dashboard("attach", "there:", columns=160) as terminal:
        shows_it(terminal)
        a_line_that_is_cut_shows_the_last_state_with_its_age(far, terminal)
        while_there_is_no_machine_it_says_so_and_stops_nothing(far, terminal)
        a_killed_relay_is_replaced(far, terminal)
        a_stopped_ssh_is_silence_until_it_goes_on(far, terminal)
        a_hub_that_dies_there_is_silence_of_the_hub_not_of_the_line(training, terminal)
        terminal.press(b"q")
        assert terminal.wait_end() == 0


def its_ssh(terminal):
    (ssh,) = [child for child in psutil.Process(terminal.process.pid).children() if child.name() == "ssh"]
    return ssh


def a_line_that_is_cut_shows_the_last_state_with_its_age(far, terminal):
    before = far.the_relay()
    with far.locked():
        far.cut()
        shown = terminal.wait_until(lambda shown: re.search(r"STALE [1-9]\d*s", shown), "STALE with an age")
        assert "training continues; trying again: there: " in words(shown)
        assert "step 30" in shown
    shows_it(terminal)
    wait_for(lambda: not before.is_running())
    assert "STALE" not in "\n".join(terminal.screen.display)


def while_there_is_no_machine_it_says_so_and_stops_nothing(far, terminal):
    far.the_relay()
    with far.locked():
        far.cut()
        terminal.wait_for("the login needs a password")
        terminal.press(b"x")
        terminal.wait_for("Stop mnist on there?")
        terminal.press(b"s")
        terminal.wait_for("ddpmon did not stop the run")
    shows_it(terminal)


def a_killed_relay_is_replaced(far, terminal):
    relay = far.the_relay()
    with far.locked():
        relay.kill()
        terminal.wait_until(lambda shown: "STALE" in shown and "there: " in shown, "a word about the line")
    shows_it(terminal)
    wait_for(lambda: not relay.is_running())
    assert far.the_relay() != relay


def a_stopped_ssh_is_silence_until_it_goes_on(far, terminal):
    relay, ssh = far.the_relay(), its_ssh(terminal)
    ssh.send_signal(signal.SIGSTOP)
    shown = words(terminal.wait_for("STALE"))
    assert "no data from there" in shown
    ssh.send_signal(signal.SIGCONT)
    shows_it(terminal)
    assert far.the_relay() == relay


def a_hub_that_dies_there_is_silence_of_the_hub_not_of_the_line(training, terminal):
    training.hubs[-1].kill()
    training.hubs[-1].wait()
    assert "no answer from the hub" in words(terminal.wait_for("STALE"))
    training.hub()
    shows_it(terminal)


def test_a_dashboard_that_is_gone_leaves_no_relay(far, training):
    for how in ("left", "killed", "hung up"):
        with far.dashboard("attach", "there:") as terminal:
            shows_it(terminal)
            far.the_relay()
            if how == "left":
                terminal.press(b"q")
                assert terminal.wait_end() == 0
                still = f"mnist still runs on there; ddpmon attach there:{training.run.id} shows it again"
                assert still in words("\n".join(terminal.screen.display))
            elif how == "killed":
                terminal.process.kill()
            else:
                terminal.hang_up()
            terminal.wait_end()
        wait_for(lambda: not far.relays(), every_s=0.2)
        wait_for(lambda: not far.sessions())
    assert training.run.supervisor.alive()


def test_the_logs_screen_reads_there_and_a_stop_asks_says_where_and_reaches_the_run(far, training):
    folder = training.dir / "logs" / "ranks" / "r" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("the first line\n")
    with far.dashboard("attach", "there:") as terminal:
        shows_it(terminal)
        terminal.press(b"7")
        terminal.wait_for("the first line")
        with (folder / "stdout.log").open("a") as log:
            log.write("\x1b[31ma \x07second line\n")
        terminal.wait_for("a ?second line")
        with far.locked():
            far.cut()
            terminal.wait_for("STALE")
            with (folder / "stdout.log").open("a") as log:
                log.write("a third line\n")
        shown = terminal.wait_for("a third line")
        assert shown.count("the first line") == 1
        terminal.press(b"1")
        shows_it(terminal)
        terminal.press(b"x")
        terminal.wait_for("Stop mnist on there?")
        terminal.press(b"s")
        terminal.wait_for("stopping")
        assert training.supervisor.wait(20) == -signal.SIGTERM


def test_the_runs_screen_lists_those_there_and_another_one_is_watched_and_stopped(far, training, launch):
    other = launch(sys.executable, "-c", "import time; print('x', flush=True); time.sleep(600)", grace_s=1.0)
    with far.dashboard("attach", "there:mnist", columns=160) as terminal:
        shows_it(terminal)
        terminal.press(b"8")
        terminal.wait_for("runs, the latest first: 2, 2 running")
        terminal.wait_for(other.id)
        terminal.press(b"n")
        terminal.wait_for("ssh -t there ddpmon attach")
        terminal.press(b"g\r")
        terminal.wait_for("test on there")
        terminal.press(b"x")
        terminal.wait_for("Stop test on there?")
        terminal.press(b"s")
        terminal.wait_for("STOPPED")
        assert other.until_gone().state() == "stopped"
        assert training.run.supervisor.alive()
        terminal.press(b"q")
        assert terminal.wait_end() == 0


def test_readonly_stops_nothing_and_a_run_that_ends_is_shown_to_its_end_with_its_exit_code(far, training):
    with far.dashboard("attach", "there:", "--readonly") as terminal:
        shows_it(terminal)
        terminal.press(b"x")
        terminal.wait_for("read-only: cannot stop the run from here")
        assert training.run.supervisor.alive()
        training.finish(exit_code=3)
        terminal.wait_for("FAILED")
        terminal.press(b"q")
        assert terminal.wait_end() == 3
        assert "mnist on there: failed, exit code 3" in words("\n".join(terminal.screen.display))
    with far.dashboard("attach", "there:mnist") as terminal:
        assert "step 30" in terminal.wait_for("FAILED")
        terminal.press(b"3")  # a part that only this screen shows comes from the recording
        terminal.wait_for("heat: slower than peers")
        terminal.press(b"q")
        assert terminal.wait_end() == 3


def test_another_version_there_says_so_and_is_shown_as_far_as_it_can_be(far, training):
    older = far.wrapped(
        f"""#!{sys.executable}
import sys, ddpmon
ddpmon.__version__ = "0.0.7"
import msgspec
from ddpmon.hub import changes
whole = changes.encode
def fewer(message):
    if not isinstance(message, changes.Changed):
        return whole(message)
    tree = msgspec.to_builtins(message)
    for name in ("times", "quantities", "accumulation", "measured", "efficiency", "run_is_new"):
        tree.pop(name, None)
    for name in ("named_ms", "unmeasured", "threads", "environment"):
        tree["rows"].pop(name, None)
    tree["rows"]["of_a_newer_one"] = [1, 2]
    return whole(tree)
changes.encode = fewer
from ddpmon.cli import main
main()
"""
    )
    with far.dashboard("attach", "there:", columns=160, **older) as terminal:
        shown = terminal.wait_until(lambda shown: "mnist on there" in shown and "0.0.7" in shown, "the version")
        assert "there has ddpmon 0.0.7, and this machine has" in words(shown)
        assert "step 30" in shown


@pytest.mark.e2e
def test_attach_in_a_terminal_over_ssh_is_the_way_where_nothing_else_is(far, training):
    """`ssh -t HOST ddpmon attach`: the fallback that messages print."""
    config = far.near["DDPMON_SSH"].split()[-1]
    with Terminal("-F", config, "-t", "there", "ddpmon attach mnist", program=("ssh",), columns=100) as terminal:
        shows_it(terminal, "mnist")
        terminal.press(b"q")
        assert terminal.wait_end() == 0
        assert "mnist continues" in words("\n".join(terminal.screen.display))
