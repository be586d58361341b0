"""Ranks of a launcher of the script's own print into logs of their own; what is no log of ours is left alone."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from ddpmon import runs
from ddpmon.inject import ddpmon_spool
from ddpmon.launch import spool
from ddpmon.recording.recording import Recording
from ddpmon.runs.logs import LAUNCHER, Log, Reader
from tests.conftest import Cli, wait_for
from tests.launch.test_drain import drain_of
from tests.probe.conftest import SCRIPTS, environment
from tests.ranks import EAGER

RUN = "20260101-000001-0001"
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
OWN = "ranks/exec/attempt_1/3/"


def printed_into(spooled: int) -> str:
    """Return what a spool holds; it is taken."""
    end = spool.open_spool(f"/proc/self/fd/{spooled}")
    text = end.peek_bytes(1 << 20).decode()
    end.close()
    return text


class Spools:
    """Receives spools as a drain would, and has one for launcher.log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launcher = ddpmon_spool.make_pipe(str(folder), RUN, "launcher.log")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "drain.sock"))
        self.listener.listen()
        self.listener.setblocking(False)

    def run(self, *command: str, out: int, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """A program of this run with stdout and stderr in a descriptor."""
        return subprocess.run(
            command, stdout=out, stderr=out, check=False,
            env=environment(f"ipc://{self.folder}/ingest.sock") | {"DDPMON_RUN_ID": RUN} | variables,
        )  # fmt: skip

    def in_launcher(self) -> str:
        return printed_into(self.launcher)

    def received(self) -> dict[str, str]:
        """Return what was printed into each spool that was handed over."""
        found = {}
        while True:
            try:
                connection, _ = self.listener.accept()
            except BlockingIOError:
                return found
            with connection:
                _, (file,), _, _ = socket.recv_fds(connection, 1, 1)
            log = spool.log_of(os.readlink(f"/proc/self/fd/{file}"), RUN, "/nowhere")
            assert log is not None
            assert log not in found
            found[log] = printed_into(file)
            os.close(file)

    def close(self) -> None:
        self.listener.close()
        os.close(self.launcher)


@pytest.fixture
def spools(tmp_path: Path) -> Iterator[Spools]:
    made = Spools(tmp_path)
    yield made
    made.close()


def becomes_a_rank(stdout: str = "kept") -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(stdout=stdout)]


def test_a_rank_leaves_the_launchers_log_for_its_own(spools: Spools) -> None:
    assert spools.run(*becomes_a_rank(), out=spools.launcher).returncode == 0
    assert spools.in_launcher() == "before\n"
    found = spools.received()
    assert sorted(found[f"{OWN}stdout.log"].splitlines()) == ["a child", "after"]
    assert found[f"{OWN}stderr.log"] == "from C\n"


def test_what_prints_elsewhere_stays_there(spools: Spools, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.log"
    with theirs.open("ab") as file:
        assert spools.run(*becomes_a_rank(), out=file.fileno()).returncode == 0
    assert sorted(theirs.read_text().splitlines()) == ["a child", "after", "before", "from C"]
    assert not spools.received()


def test_the_spool_of_another_run_is_left_alone(spools: Spools) -> None:
    assert spools.run(*becomes_a_rank(), out=spools.launcher, DDPMON_RUN_ID="another").returncode == 0
    assert len(spools.in_launcher().splitlines()) == 4


def test_a_stdout_that_cannot_be_flushed_is_no_reason_to_raise(spools: Spools) -> None:
    assert spools.run(*becomes_a_rank(stdout="None"), out=spools.launcher).returncode == 0
    assert spools.received()[f"{OWN}stderr.log"] == "from C\n"


def test_without_a_drain_a_rank_prints_where_it_printed(spools: Spools) -> None:
    (spools.folder / "drain.sock").unlink()
    assert spools.run(*becomes_a_rank(), out=spools.launcher).returncode == 0
    assert sorted(spools.in_launcher().splitlines()) == ["a child", "after", "before", "from C"]


def test_a_drain_that_is_full_of_spools_makes_no_rank_wait(spools: Spools) -> None:
    spools.listener.listen(0)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(str(spools.folder / "drain.sock"))
    assert spools.run(*becomes_a_rank(), out=spools.launcher).returncode == 0
    assert len(spools.in_launcher().splitlines()) == 4
    for each in waiting:
        each.close()


def test_ranks_of_torchrun_print_into_spools_from_their_first_line_on(spools: Spools) -> None:
    where = spools.folder / "ranks" / "x_y" / "attempt_0" / "0"
    where.mkdir(parents=True)
    with (where / "stdout.log").open("wb") as file:
        source = (
            "import os, sys; print('here', 'ddpmon' in sys.modules, 'ddpmon_spool' in sys.modules, flush=True)\n"
            "os.write(2, b'one file for both\\n'); os.write(1, b'in their order\\n')"
        )
        assert spools.run(sys.executable, "-c", source, out=file.fileno(), RANK="0").returncode == 0
    assert spools.received() == {
        "ranks/x_y/attempt_0/0/stdout.log": "here False False\none file for both\nin their order\n"
    }
    assert (where / "stdout.log").read_bytes() == b""


def test_a_spool_that_nobody_empties_lets_the_rank_go_on_and_says_what_it_lost(spools: Spools) -> None:
    """While a drain listens, it is given time."""
    source = (
        "import fcntl, os, sys\n"
        "from ddpmon.probe import output\n"
        "output._GRACE_S = 0.0\n"
        "size = fcntl.fcntl(1, fcntl.F_GETPIPE_SZ)\n"
        "os.write(1, b'x' * size)\n"
        "output.relieve()\n"
        "assert output._held_bytes(1) == size\n"
        "os.unlink(sys.argv[1])\n"
        "output.relieve()\n"
        "print('after')\n"
    )
    listens = str(spools.folder / "drain.sock")
    assert spools.run(sys.executable, "-c", source, listens, out=spools.launcher).returncode == 0
    size = fcntl.fcntl(spools.launcher, fcntl.F_GETPIPE_SZ)
    assert spools.in_launcher() == (
        f"\n[ddpmon] {size:,} bytes of output are missing, because no process wrote the log\nafter\n"
    )


@pytest.mark.e2e
def test_ranks_of_torch_multiprocessing_are_watched_and_have_logs_of_their_own(cli: Cli) -> None:
    command = [sys.executable, str(SCRIPTS / "spawned.py")]
    env = os.environ | {"MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    done = cli("exec", "--headless", "--", *command, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    found = runs.find(None)
    with Recording(found) as recording:
        steps = [
            recording.steps.whole_steps(process.id, 1, 1 << 40)
            for _, process in sorted(recording.registry().process_of_rank.items())
        ]
    assert [[step.samples for step in each] for each in steps] == [[3] * 10, [3] * 10]
    log = Log(Reader(found))
    log.poll()
    said = {rank: [entry.text for entry in log.entries if rank in entry.ranks] for rank in (LAUNCHER, 0, 1)}
    assert sorted(said[LAUNCHER]) == ["before it is a rank"] * 2 + ["the launcher"]
    for rank in (0, 1):
        assert sorted(said[rank]) == [f"a child of rank {rank}", f"rank {rank} from C", f"rank {rank} trained"]
    assert cli("logs", "--rank", "1").stdout.count("rank 1 trained") == 1


@pytest.mark.e2e
def test_a_rank_whose_drain_and_supervisor_are_gone_trains_on(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"{EAGER}import os, sys, time, torch\n"
        "from pathlib import Path\n"
        "here = Path(sys.argv[1])\n"
        "model = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def step():\n"
        "    model(torch.ones(1)).backward()\n"
        "    optimizer.step()\n"
        "step()\n"
        "(here / 'ready').write_text(str(os.getpid()))\n"
        "while not (here / 'gone').exists():\n"
        "    time.sleep(0.01)\n"
        "for _ in range(3):\n"
        "    print('x' * 1_000_000)\n"
        "    step()\n"
        "(here / 'trained').touch()\n"
        "while not (here / 'end').exists():\n"
        "    time.sleep(0.01)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "ddpmon", "exec", "--headless", "--", sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ):  # fmt: skip
        try:
            pid = int(wait_for(lambda: (path := tmp_path / "ready").exists() and path.read_text()))
            run = runs.find(None)
            assert run.supervisor is not None
            for ours in (run.supervisor.pid, drain_of(run.id)):
                os.kill(ours, signal.SIGKILL)
            (tmp_path / "gone").touch()
            wait_for((tmp_path / "trained").exists)
            assert "ranks|exec|attempt_0|0|stdout.log" in os.readlink(f"/proc/{pid}/fd/1")
        finally:
            (tmp_path / "gone").touch()
            (tmp_path / "end").touch()
