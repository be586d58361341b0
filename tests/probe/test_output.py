"""Ranks of a launcher of the script's own print into logs of their own; what is no log of ours is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.export.last_words import last_words
from ddpmon.hub.recording import recorded_report
from ddpmon.logs import LAUNCHER, Log, Reader
from tests.conftest import Cli
from tests.probe.conftest import SCRIPTS
from tests.probe.test_transparent import free_port

PROGRAM = """
import os, sys
from ddpmon.probe import output
print("before")
kept = sys.stdout
sys.stdout = {stdout}
output.keep_apart(3, 1)
sys.stdout = kept
print("after")
os.write(2, b"from C\\n")
os.system("echo a child")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with a launcher's log."""
    (tmp_path / "logs").mkdir(mode=0o700)
    tmp_path.chmod(0o700)
    (tmp_path / "logs" / "launcher.log").touch(0o600)
    return tmp_path


def run(folder: Path, out: Path, *, stdout: str = "kept", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A program that becomes a rank, with stdout and stderr in a file."""
    with out.open("ab") as file:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM.format(stdout=stdout)],
            stdout=file, stderr=file, check=False,
            env=os.environ | {"DDPMON_RUN_DIR": str(folder)} | environment,
        )  # fmt: skip


def test_a_rank_leaves_the_launchers_log_for_its_own(folder: Path) -> None:
    launcher = folder / "logs" / "launcher.log"
    assert run(folder, launcher).returncode == 0
    where = folder / "logs" / "ranks" / "exec" / "attempt_1" / "3"
    assert launcher.read_text() == "before\n"
    assert sorted((where / "stdout.log").read_text().splitlines()) == ["a child", "after"]
    assert (where / "stderr.log").read_text() == "from C\n"
    assert {path.stat().st_mode & 0o777 for path in where.iterdir()} == {0o600}
    assert where.stat().st_mode & 0o777 == 0o700


def test_what_prints_elsewhere_stays_there(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.log"
    assert run(folder, theirs).returncode == 0
    assert sorted(theirs.read_text().splitlines()) == ["a child", "after", "before", "from C"]
    assert not (folder / "logs" / "ranks").exists()


def test_a_stdout_that_cannot_be_flushed_is_no_reason_to_raise(folder: Path) -> None:
    assert run(folder, folder / "logs" / "launcher.log", stdout="None").returncode == 0
    where = folder / "logs" / "ranks" / "exec" / "attempt_1" / "3"
    assert (where / "stderr.log").read_text() == "from C\n"


def test_logs_that_cannot_be_made_are_no_reason_to_raise(folder: Path) -> None:
    launcher = folder / "logs" / "launcher.log"
    (folder / "logs" / "ranks").touch()
    assert run(folder, launcher).returncode == 0
    assert sorted(launcher.read_text().splitlines()) == ["a child", "after", "before", "from C"]


@pytest.mark.e2e
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_of_torch_multiprocessing_have_logs_of_their_own(cli: Cli, method: str) -> None:
    command = [sys.executable, str(SCRIPTS / "spawned.py"), "--method", method]
    env = os.environ | {"SPEAKS": "1", "MASTER_PORT": free_port(), "OMP_NUM_THREADS": "1"}
    done = cli("exec", "--headless", "--", *command, env=env, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = runs.find(None)
    log = Log(Reader(found))
    log.poll()
    said = {rank: [entry.text for entry in log.entries if rank in entry.ranks] for rank in (LAUNCHER, 0, 1)}
    assert sorted(said[LAUNCHER]) == ["before it is a rank"] * 2 + ["the launcher"]
    for rank in (0, 1):
        assert sorted(said[rank]) == [f"a child of rank {rank}", f"rank {rank} from C", f"rank {rank} trained"]
    assert cli("logs", "--rank", "1").stdout.count("rank 1 trained") == 1


@pytest.mark.e2e
def test_the_last_words_of_a_rank_that_gave_up_are_told(cli: Cli, tmp_path: Path) -> None:
    """It ends by itself: no exception tells why."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "print('getting ready', file=sys.stderr)\n"
        "model = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.ones(1)).backward()\n"
        "optimizer.step()\n"
        "sys.exit('the budget is spent')\n"
    )
    done = cli("exec", "--headless", "--", sys.executable, str(script), timeout=120)
    assert done.returncode == 1
    run = runs.find(None)
    assert recorded_report(run)["verdict"].endswith("the budget is spent")
    words = last_words(run)
    assert (words.whose, words.lines) == ("rank 0", ["the budget is spent"])
