"""The supervisor over real torchrun: scripts that fail early, stops, killed parents. The ranks need no torch."""

from __future__ import annotations

import dataclasses
import os
import signal
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.export.last_words import last_words
from ddpmon.launch import processes, start, stop
from ddpmon.launch.prepare import Asked, prepare_run
from tests.conftest import Started, wait_for

pytestmark = pytest.mark.e2e

PRELUDE = """
import os, signal, subprocess, sys, time
from pathlib import Path
here, rank = Path({here!r}), os.environ["RANK"]

def say(what, text="x"):
    draft = here / f"draft-{{what}}-{{rank}}"
    draft.write_text(str(text))
    draft.rename(here / f"{{what}}-{{rank}}")
"""


@pytest.fixture
def ranks(home, tmp_path) -> Callable[..., Started]:
    """Start two ranks of a script; `say(what)` in it makes a file that `told` waits for."""

    def call(source: str, grace_s: float = 10.0, max_restarts: int = 0, prefix: Sequence[str] = ()) -> Started:
        script = tmp_path / "train.py"
        script.write_text(PRELUDE.format(here=str(tmp_path)) + textwrap.dedent(source))
        asked = Asked(str(script), nproc="2", max_restarts=max_restarts, grace_s=grace_s, cwd=str(tmp_path))
        wanted = prepare_run(asked, runs.new_id())
        return Started(start.start_run(dataclasses.replace(wanted, argv=[*prefix, *wanted.argv])).id)

    return call


def told(folder: Path, what: str) -> list[str]:
    """Return what both ranks said, in their order, once they have."""
    paths = [folder / f"{what}-{rank}" for rank in range(2)]
    wait_for(lambda: all(path.exists() for path in paths), 60)
    return [path.read_text() for path in paths]


def test_a_script_that_raises_at_import_fails_with_its_rank_and_its_words(ranks, no_names):
    """No host name resolves, as in a container with an empty /etc/hosts: torchrun starts its ranks all the same."""
    started = ranks(
        """
        if rank == "1":
            import no_such_module_anywhere
        time.sleep(600)
        """,
        prefix=no_names,
    )
    ended = started.until_gone(60)
    assert (ended.state(), ended.exit_code) == ("failed", 1)
    words = last_words(ended)
    assert words.writer == "rank 1"
    assert "no_such_module_anywhere" in words.lines[-1]


def test_a_failed_attempt_is_restarted_as_asked_and_each_ranks_output_is_kept_apart(ranks):
    """A script that ends before DDP is done all the same."""
    started = ranks(
        """
        print("out of", rank)
        print("complaint of", rank, file=sys.stderr, flush=True)
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            if rank == "1":
                sys.exit(3)
            time.sleep(600)
        """,
        max_restarts=1,
    )
    assert started.until_gone(90).state() == "done"
    for attempt, rank in (("0", "1"), ("1", "0"), ("1", "1")):
        (out,) = started.folder.glob(f"logs/ranks/*/attempt_{attempt}/{rank}/stdout.log")
        (complaint,) = started.folder.glob(f"logs/ranks/*/attempt_{attempt}/{rank}/stderr.log")
        assert (out.read_text(), complaint.read_text()) == (f"out of {rank}\n", f"complaint of {rank}\n")


def test_after_a_stop_nothing_is_left_of_ranks_and_children_that_ignore_every_signal(ranks, tmp_path):
    started = ranks(
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        child = subprocess.Popen(
            ["sh", "-c", "trap '' TERM INT HUP; echo; while :; do sleep 1; done"],
            stdout=subprocess.PIPE, start_new_session=True)
        child.stdout.readline()
        say("pids", f"{os.getpid()} {child.pid}")
        time.sleep(600)
        """,
        grace_s=1.0,
    )
    pids = [int(pid) for line in told(tmp_path, "pids") for pid in line.split()]
    stop.request_stop(started.run)
    assert started.until_gone().state() == "stopped"
    assert [pid for pid in pids if runs.Process.of(pid)] == []
    assert not processes.with_run_id(started.id)


SAVES = """
        def save(*_):
            say("saving")
            time.sleep(3)  # longer than what is left of a run has without the grace
            say("checkpoint")
            sys.exit(0)
        if rank != {without!r}:
            signal.signal(signal.SIGTERM, save)
        say("ready", os.getpid())
        time.sleep(600)
        """


def test_a_stop_lets_each_rank_save_though_torchrun_was_stopped_by_a_signal(ranks, tmp_path):
    started = ranks(SAVES.format(without=None))
    told(tmp_path, "ready")
    os.kill(started.run.agent.pid, signal.SIGSTOP)
    stop.request_stop(started.run)
    assert started.until_gone().state() == "stopped"
    told(tmp_path, "checkpoint")
