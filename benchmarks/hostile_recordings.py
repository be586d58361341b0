"""Part of hostile.py: damage recordings, and read each with every command.

The recording that ships with ddpmon is truncated; bytes are changed and pages overwritten; columns get values of other
types and sizes; rows, tables and columns are removed; views, folders and pipes replace it.
"""

# ruff: noqa: S608  the names of tables and columns are our own

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from launching import own_home

from ddpmon import cli, runs
from ddpmon.cli.commands.replaying import unpack
from ddpmon.errors import RecordingError
from ddpmon.messages import SeriesRequest, TimelineRequest, ViewRequest, decode_snapshot, encode
from ddpmon.recording import tables
from ddpmon.recording.player import Player
from ddpmon.runs import Run

COUNT = 300
HANGS_S = 120.0
"""Seconds after which a command on such a small recording counts as hung."""
GROWS_BYTES = 1 << 30
ID = "20260101-000000-{:04x}"
VALUES = (
    *("NULL", "0", "-1", "1", "2147483648", "4294967296", "9007199254740991", "9007199254740992"),
    *("9223372036854775807", "-9223372036854775808", "1e308", "9e999", "-9e999", "0.5", "'nan'", "'text'", "''"),
    *("x''", "x'c1'", "x'ffffffffffffffff'", "zeroblob(70000)", "char(0)", "CAST(x'ff' AS TEXT)", "random()"),
)
COMMANDS = (
    ("report", "--format", "json"),
    ("export", "--format", "csv"),
    ("export", "--format", "perfetto"),
    ("export", "--format", "openmetrics"),
    ("status", "--json"),
)


class HangError(Exception):
    """Reports that a reader took longer than `HANGS_S`."""


def cut(rng: random.Random, path: Path, whole: bytes) -> str:
    """Remove the end of the file, most often a small part."""
    lost = rng.choice((1, 100, 4096, 5000, rng.randrange(1, len(whole)), rng.randrange(1, len(whole))))
    path.write_bytes(whole[:-lost])
    return f"cut by {lost:,} bytes"


def flip(rng: random.Random, path: Path, whole: bytes) -> str:
    """Change bytes, anywhere or in the first pages."""
    data = bytearray(whole)
    count = rng.choice((1, 10, 100, 1000))
    until = rng.choice((100, 40_000, len(data), len(data)))
    for _ in range(count):
        data[rng.randrange(until)] = rng.randrange(256)
    path.write_bytes(data)
    return f"{count} bytes flipped in the first {until:,}"


def wipe(rng: random.Random, path: Path, whole: bytes) -> str:
    """Overwrite pages with zeros, with noise, or with other pages."""
    data = bytearray(whole)
    count = rng.choice((1, 3, 30))
    what = rng.choice(("zeros", "noise", "others"))
    for _ in range(count):
        at, other = (4096 * rng.randrange(len(data) // 4096) for _ in range(2))
        new = {"zeros": bytes(4096), "noise": rng.randbytes(4096), "others": bytes(data[other : other + 4096])}
        data[at : at + 4096] = new[what]
    path.write_bytes(data)
    return f"{count} pages of {what}"


def update(rng: random.Random, path: Path, whole: bytes) -> str:
    """Write impossible values, into one column or several, in one row or all."""
    told = []
    with _open(path, whole) as db:
        for _ in range(rng.choice((1, 1, 1, 3, 10))):
            table = rng.choice([*tables.TABLES, "processes", "step_blocks", "samples"])
            column = rng.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
            value, some = rng.choice(VALUES), rng.choice(("", "WHERE random() % 10 = 0", "LIMIT 1"))
            where = some
            if some == "LIMIT 1":
                key = tables.PRIMARY_KEYS.get(table, "rowid")
                where = f"WHERE ({key}) IN (SELECT {key} FROM {table} ORDER BY random() LIMIT 1)"
            told.append(f"{table}.{column} = {value} {some}".strip())
            with contextlib.suppress(sqlite3.Error):
                db.execute(f'UPDATE OR REPLACE {table} SET "{column}" = {value} {where}')
    return ", ".join(told)


def restructure(rng: random.Random, path: Path, whole: bytes) -> str:
    """Remove tables, columns and rows, or add others."""
    with _open(path, whole) as db:
        table = rng.choice([*tables.TABLES, "processes", "step_blocks"])
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
        columns = ", ".join(f'i AS "{row[1]}"' for row in db.execute(f"PRAGMA table_info({table})"))
        ways = {
            f"{table} dropped": f"DROP TABLE {table}",
            f"{table} emptied": f"DELETE FROM {table}",
            f"half of {table} gone": f"DELETE FROM {table} WHERE random() % 2",
            f"an endless view for {table}": f"DROP TABLE {table}; CREATE VIEW {table} AS {endless} {columns} FROM n",
            "steps of no process": "DELETE FROM processes WHERE id = 1",
            "ranks twice": "UPDATE processes SET rank = 0",
            "100,000 processes": (
                "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
                " INSERT INTO processes"
                " (id, attempt, rank, pid, host, hello, stage, seq, steps, last_step, records, dropped, left, dead)"
                " SELECT i, attempt, rank, pid, host, hello, stage, seq, steps, last_step, records, dropped, left, dead"
                " FROM n, (SELECT * FROM processes LIMIT 1)"
            ),
            "a newer schema": "UPDATE meta SET value = 99 WHERE key = 'schema'",
            "counters of 2**53": "UPDATE processes SET last_step = 9007199254740992, steps = 9007199254740992",
            "a step of 2**47": "UPDATE OR IGNORE step_blocks SET last_step = 140737488355328 WHERE last_step > 500",
            "a column less": "ALTER TABLE step_blocks DROP COLUMN records",
            "a trigger": "CREATE TRIGGER t AFTER INSERT ON step_blocks BEGIN SELECT raise(ABORT, 'no'); END",
        }
        way = rng.choice(list(ways))
        db.executescript(ways[way])
    return way


def replace(rng: random.Random, path: Path, whole: bytes) -> str:
    """Put something else in the recording's place."""
    way = rng.choice(("empty", "folder", "pipe", "text", "noise", "another database", "nothing", "more behind it"))
    if way == "folder":
        path.mkdir()
    elif way == "pipe":
        os.mkfifo(path)
    elif way == "another database":
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE cats (name)")
    elif way != "nothing":
        content = {"empty": b"", "text": b"hello\n" * 1000, "noise": rng.randbytes(100_000)}
        path.write_bytes(content.get(way, whole + rng.randbytes(50_000)))
    return way


WAYS = (
    *(cut, cut, cut, cut, flip, flip, flip, wipe),
    *(update, update, update, update, restructure, restructure, replace),
)


@contextlib.contextmanager
def _open(path: Path, whole: bytes) -> Iterator[sqlite3.Connection]:
    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path)) as db:
        yield db
        db.commit()


def play(run: Run) -> None:
    """Read a replay at several moments, with every view that a screen can request."""
    inspected = SeriesRequest(ranks=((0, 0),))
    view_request = ViewRequest(
        SeriesRequest(), TimelineRequest(), "window", inspected, stacks=True, series=SeriesRequest(("loss",))
    )
    player = Player(run)
    try:
        for part in (1.0, 0.4, 0.1):
            at = player.begin + part * (player.end - player.begin)
            shot = player.snapshot_at(at, view_request)
            decode_snapshot(encode(shot))
            player.step_from(at, 1), player.step_from(at, -1), player.event_from(at, 1)
    finally:
        player.close()


def command(*words: str) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and its text on stderr."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["ddpmon", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.argv = before
    if words[0] == "report" and "json" in words and not code:
        check_report(json.loads(out.getvalue()))
    return code, err.getvalue()


def check_report(made: dict[str, object]) -> None:
    """Check that a report's numbers are possible."""
    steps = made["steps"]
    assert isinstance(steps, dict)
    lost = steps["records_lost"]
    assert 0 <= lost < 1_000_000, f"{lost:,} records lost"


def checked_command(*words: str) -> str:
    """Return the text with which a command refused a recording, or "" if none. Raise AssertionError on a crash."""
    code, said = command(*words)
    lines = said.splitlines()
    if code not in (0, 1, 2) or len(lines) > 1 or (lines and not lines[0].startswith("ddpmon: ")):
        raise AssertionError(f"exit {code}: {said[-2000:]}")
    return said


def replayed(run: Run) -> str:
    """Replay a recording; return the text with which it was refused, or ""."""
    try:
        play(run)
    except RecordingError as error:
        return str(error)
    return ""


def readers(run: Run, other: Run) -> dict[str, Callable[[], str]]:
    """Return everything that reads a recording, by name."""
    reading = {" ".join(words): partial(checked_command, words[0], run.id, *words[1:]) for words in COMMANDS}
    comparing = {"ls": partial(checked_command, "ls"), "diff": partial(checked_command, "diff", run.id, other.id)}
    return reading | comparing | {"replay": partial(replayed, run)}


def hang(*_: object) -> None:
    """Raise HangError in a reader that exceeds `HANGS_S`."""
    raise HangError


def attack(number: int, seed: int, demo: Run) -> tuple[str, dict[str, str], list[str]]:
    """Damage a recording and read it; return the kind of damage, each reader's refusal, and the crashes."""
    rng = random.Random(f"{seed} {number}")
    run_id = ID.format(number % 65_536)
    folder = runs.run_dir(run_id)
    shutil.copytree(runs.run_dir(demo.id), folder)
    facts = json.loads((folder / "run.json").read_text()) | {"id": run_id, "name": f"hostile-{number}"}
    (folder / "run.json").write_text(json.dumps(facts))
    path = folder / "telemetry.db"
    whole = path.read_bytes()
    path.unlink()
    way = WAYS[number % len(WAYS)]
    told = f"{way.__name__}: {way(rng, path, whole)}"
    refused, crashes = {}, []
    for name, reader in readers(runs.load(run_id), demo).items():
        signal.setitimer(signal.ITIMER_REAL, HANGS_S)
        try:
            if said := reader():
                refused[name] = said.strip()
        except Exception:
            crashes.append(f"{name}:\n{traceback.format_exc()}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    shutil.rmtree(folder)
    return told, refused, crashes


def hunt(seed: int, numbers: Sequence[int]) -> list[str]:
    """Damage one recording per number, have every command read it, and return each crash, hang and leak."""
    with own_home():
        signal.signal(signal.SIGALRM, hang)
        demo = unpack()
        outcomes, trouble, longest = Counter[str](), [], 0.0
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        for number in numbers:
            began = time.monotonic()
            told, refused, crashes = attack(number, seed, demo)
            longest = max(longest, time.monotonic() - began)
            outcomes["crashed" if crashes else "refused by some" if refused else "read by all"] += 1
            for crash in crashes:
                trouble.append(f"{number} {told}\n{crash}")
                print(trouble[-1], flush=True)
            if len(numbers) == 1:
                print(told, *refused.items(), sep="\n")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    print(f"the longest took {longest:.1f} s for all readers; memory grew by {grown / 1e6:.0f} MB")
    return [*trouble, *(["the memory that readers leak"] if grown > GROWS_BYTES else [])]
