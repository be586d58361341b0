"""The docs of the recording: every column has a meaning, and the examples of docs/recording.md run on a real one."""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from ddpmon.recording import schema
from ddpmon.recording.recording import recording_path
from ddpmon.recording.tables import TABLES, VIEW_COLUMNS, VIEWS
from tests.hub.thinned import SOME_ROOM, slow
from tests.recordings import BEGAN, record

PAGE = Path(__file__).parents[2] / "docs" / "recording.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def recording(home):
    run = record(slow(), room=SOME_ROOM, events=[(4.0, "connected"), (300.0, "rank 1 is late")])
    return recording_path(run.id)


def test_every_column_of_a_new_recording_has_a_meaning():
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        schema.create_tables(db)
        for table, columns in (TABLES | VIEW_COLUMNS).items():
            made = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            assert made == [column.name for column in columns]
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    assert there == {*TABLES, *VIEWS}
    for columns in (TABLES | VIEW_COLUMNS).values():
        for column in columns:
            assert re.fullmatch(r"\S.{7,}\.", column.meaning), column
            if column.name.endswith(("_us", "_us_sum")):
                assert "µs" in column.meaning, column


def shell(number, path):
    told = subprocess.run(
        ["sh", "-ec", blocks("sh")[number]],
        env=os.environ | {"DB": str(path), "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, "")
    return [line.split() for line in told.stdout.splitlines()]


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="no sqlite3 shell here")
def test_the_examples_of_the_shell_answer_what_they_say(recording):
    assert shell(0, recording)[2:] == [["0", "0", "here", "3000", "0"], ["0", "1", "here", "3000", "0"]]
    head, _, *minutes = shell(1, recording)
    assert head == ["time", "worst_rank", "critical", "waited_steps"]
    assert len(minutes) > 3
    assert all(int(critical) <= int(waited) for *_, critical, waited in minutes)
    assert shell(2, recording)[1][1:] == ["00:31:40|info|rank", "1", "is", "late"]
    assert len(blocks("sh")) == 3


def test_the_examples_of_pandas_answer_what_they_say(recording, cli, tmp_path):
    pytest.importorskip("pandas")
    csv = tmp_path / "steps.csv"
    csv.write_text(cli("export", "--format", "csv").stdout)
    names = {"path": recording, "csv": csv}
    for block in blocks("python"):
        exec(compile(block, "recording.md", "exec"), names)
    names["db"].close()
    assert names["backward_ms"].loc[2990:3000, 1].mean() == pytest.approx(92, rel=0.05)
    assert names["minutes"]["steps"].sum() == 2 * 3000
    step_ms = names["step_ms"]
    assert step_ms.iloc[1] == pytest.approx(171, rel=0.05)
    assert step_ms.loc[4] == pytest.approx(240, rel=0.05)
    assert names["steps"]["time"].dt.tz_localize("UTC").min().timestamp() > BEGAN
    assert (names["steps"]["wait_ms"] >= 0).all()
