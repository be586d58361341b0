"""ddpmon replay and demo: in a real terminal, and what they say where they cannot be."""

import contextlib
import gzip
import json
import sqlite3

import pytest

from ddpmon import runs
from ddpmon.cli.commands import replaying
from ddpmon.recording.player import Player
from ddpmon.recording.recording import recording_path
from tests.recordings import record, story
from tests.tui.terminal import Terminal


@pytest.fixture
def terminal(home):
    """Open a terminal with a command line of ddpmon in it."""
    with contextlib.ExitStack() as opened:
        yield lambda *arguments, **size: opened.enter_context(Terminal("ddpmon", *arguments, **size))


def test_replay_plays_pauses_and_jumps_to_the_story(terminal):
    record(story(600, begin=300, end=450), events=[(18.0, "rank 2 is slow")], judged="all")
    shown = terminal("replay", "told", "--speed", "2")
    shown.wait_for("REPLAY")
    shown.press(b" ")
    shown.wait_for("paused")
    shown.press(b"}")
    shown.wait_for("rank 2 is slow: +12")
    shown.press(b"q")
    assert shown.wait_end() == 0


def test_the_recording_that_ships_tells_its_story(home):
    """Well, then a rank whose data is late, then well again."""
    runs.private_dir(runs.home())
    runs.private_dir(runs.runs_dir())
    player = Player(replaying.unpack())
    length = player.end - player.begin
    told = [player.snapshot_at(player.begin + length * place / 50) for place in range(51)]
    accused = [tuple(f.ranks) if f.phase == "data" else () for shot in told for f in shot.findings[:1] if f.cost_ms]
    assert (2,) in accused
    slow = [shot.state == "slow" for shot in told]
    assert not slow[10]
    assert any(slow)
    assert told[-1].state == "done"
    player.close()


def test_what_ships_is_small_and_tells_nothing_of_where_it_was_made():
    files = list(replaying.SHIPPED.iterdir())
    assert sum(path.stat().st_size for path in files) < 1_000_000
    made = json.loads((replaying.SHIPPED / "run.json").read_text())
    assert (made["cwd"], made["boot_id"], made["supervisor"], made["host"]) == ("/", "", None, "node01")
    whole = b"".join(
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in files
    )
    for word in (b"/home/", b"/root", b"/work", b"/tmp"):
        assert word not in whole


@pytest.mark.parametrize("command", ["replay", "demo"])
def test_without_a_terminal_it_says_so_in_one_line(cli, command):
    record()
    told = cli(command)
    assert told.returncode == 2
    assert "needs a terminal" in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_a_recording_of_a_newer_version_is_refused_in_one_line(terminal):
    run = record()
    with sqlite3.connect(recording_path(run.id)) as db:
        db.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
    db.close()
    shown = terminal("replay", columns=200)
    assert shown.wait_end() == 1
    assert b"newer ddpmon (schema 99)" in shown.raw
    assert b"Traceback" not in shown.raw
