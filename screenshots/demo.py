"""Makes the recording that `ddpmon demo` plays, from a real run: `python screenshots/make.py --demo`.

Four ranks fit a line; delays that are the same on all of them stand for the work of a larger model, so that a machine
of two cores does not become the story. From step SLOW_FROM to SLOW_TO rank 2's data is late, else all is well.
What the recording says of this machine (its name, folders, pids) is replaced by what could be anyone's.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from ddpmon import runs
from ddpmon.messages import Hello
from ddpmon.recording.player import Player
from ddpmon.recording.recording import recording_path

ROOT = Path(__file__).parent.parent
SCRIPT = "training/linear_regression.py"
HOME = ROOT / "ddpmon" / "demo"
SLOW_FROM, SLOW_TO = 450, 800
DELAY_MS = 30
WORK_MS = {"data": 3, "forward": 9, "backward": 18}
EPOCHS = 39
ATTEMPTS = 4
HOST = "node01"
MOST_BYTES = 1_000_000


def record() -> runs.Run:
    """A real run, to its end."""
    fault = ["--slow", f"data:2:{DELAY_MS}:{SLOW_FROM}-{SLOW_TO}"]
    work = [word for phase, ms in WORK_MS.items() for rank in range(4) for word in ("--slow", f"{phase}:{rank}:{ms}")]
    command = [sys.executable, "-m", "ddpmon", "run", "--headless", "--name", "line", "--nproc", "4"]
    checkpoint = f"{os.environ['DDPMON_HOME']}/line.pt"
    subprocess.run(
        [
            *command,
            str(ROOT / SCRIPT),
            "--epochs",
            str(EPOCHS),
            "--lr",
            "0.0005",
            *fault,
            *work,
            "--checkpoint",
            checkpoint,
        ],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    run = runs.find("line")
    public = dataclasses.replace(
        run, argv=["torchrun", "--nproc-per-node=4", SCRIPT], script=SCRIPT,
        script_args=fault, cwd="/", host=HOST, boot_id="", supervisor=None, hub=None, agent=None,
    )  # fmt: skip
    runs.save(public)
    return public


def anonymise(run: runs.Run) -> None:
    """Nothing of this machine stays in the recording."""
    with sqlite3.connect(recording_path(run.id)) as db:
        rows = db.execute("SELECT id, rank, hello FROM processes").fetchall()
        for number, rank, packed in rows:
            hello = msgspec.msgpack.decode(packed, type=Hello)
            hello = msgspec.structs.replace(hello, host=HOST, pid=48_000 + rank)
            db.execute(
                "UPDATE processes SET host = ?, pid = ?, hello = ?, start_ticks = NULL, stack = NULL WHERE id = ?",
                (HOST, 48_000 + rank, msgspec.msgpack.encode(hello), number),
            )
    db.execute("VACUUM")
    db.close()


def pack(run: runs.Run) -> None:
    """Into the package, compressed."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    folder = runs.run_dir(run.id)
    packed = gzip.compress(recording_path(run.id).read_bytes(), 9, mtime=0)
    (HOME / "telemetry.db.gz").write_bytes(packed)
    (HOME / "run.json").write_text(json.dumps(json.loads((folder / "run.json").read_text()), indent=1) + "\n")
    for path in sorted(folder.glob("logs/ranks/*/attempt_0/*/stdout.log")):
        if path.stat().st_size:
            (HOME / f"stdout.{path.parent.name}.log").write_bytes(path.read_bytes())
    size = sum(path.stat().st_size for path in HOME.iterdir())
    print(f"{size:,} bytes in {HOME}")
    if size > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES:,} bytes: fewer EPOCHS")


def worth_showing(run: runs.Run) -> bool:
    """Whether it is well, then slow for rank 2's data, then well again, whatever else this machine was doing."""
    player = Player(run)
    told = [player.snapshot_at(player.begin + (player.end - player.begin) * place / 100) for place in range(101)]
    player.close()
    for shot in told[::4]:
        print(f"step {shot.step:5} {shot.state:8} {shot.verdict}")
    before = {shot.state for shot in told if 20 < shot.step < SLOW_FROM}
    late = {f.text.partition(":")[0] for shot in told if SLOW_FROM + 60 < shot.step < SLOW_TO for f in shot.findings}
    after = {shot.state for shot in told if shot.step > SLOW_TO + 60}
    return before == {"running"} and late == {"rank 2 is slow"} and after == {"running", "done"}


def make() -> None:
    """Record until the story is told without a disturbance; SystemExit if it never is."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-d") as home:
        os.environ["DDPMON_HOME"] = home
        for _ in range(ATTEMPTS):
            run = record()
            if worth_showing(run):
                anonymise(run)
                pack(run)
                return
            shutil.rmtree(runs.run_dir(run.id))
    raise SystemExit("this machine is too busy: something else was late in every attempt")
