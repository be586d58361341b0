"""A real run to break things of: two gloo ranks, recorded on a small disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddpmon import runs
from ddpmon.launch import processes, stop
from tests.conftest import ddpmon_program, short_folder, wait_for
from tests.in_process import called
from tests.ranks import launcher

SCRIPT = Path(__file__).parent / "script.py"
GRACE_S = 15


class Training:
    """Starts one, and tells how it stands: by its own files, and by what `ddpmon status` says of it."""

    def __init__(self, disk: Path, *, torchrun: bool = True) -> None:
        """torchrun: what starts the ranks; otherwise a launcher that forks them."""
        self.torchrun = torchrun
        self.folder = short_folder()
        self._patch = pytest.MonkeyPatch()
        self._patch.setenv("DDPMON_HOME", str(disk / "home"))
        self._patch.setenv("DDPMON_RUNTIME_DIR", str(self.folder / "s"))
        self.stop_file = self.folder / "stop"
        options = ["--headless", "--grace", str(GRACE_S), "--name", "broken"]
        if torchrun:
            command = ["run", *options, "--nproc", "2", str(SCRIPT), str(self.stop_file)]
        else:
            command = ["exec", *options, "--", *launcher(2, SCRIPT, str(self.stop_file), timeout_s=300.0)]
        self.starter = subprocess.Popen(
            [ddpmon_program(), *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            wait_for(lambda: self.step() > 10, 120)
            self.until(lambda: self.facts().get("step", 0) > 10)
        except BaseException:
            self.close()
            raise
        self.id = runs.find(None).id

    def step(self) -> int:
        """The last step that both ranks made, as they wrote themselves."""
        try:
            texts = [(self.folder / f"stop.step.{rank}").read_text() for rank in range(2)]
            return min(int(text) for text in texts if text.endswith(" "))
        except (OSError, ValueError):
            return 0

    def goes_on(self) -> bool:
        """Return whether both ranks make further steps."""
        before = self.step()
        wait_for(lambda: self.step() >= before + 10, 60)
        return True

    @staticmethod
    def until(holds: Callable[[], Any], timeout_s: float = 90.0) -> Any:
        """Return what `holds` returns once that is true, where asking costs more than waiting."""

        def asked() -> Any:
            time.sleep(0.1)
            return holds()

        return wait_for(asked, timeout_s)

    def status(self) -> tuple[str, int]:
        """Return what `ddpmon status` says, and with what it exits."""
        told = called("status")
        return told.stdout + told.stderr, told.returncode

    def facts(self) -> dict[str, Any]:
        """The same for programs; empty where it says nothing."""
        told = called("status", "--json")
        return json.loads(told.stdout) if told.stdout.startswith("{") else {}

    @property
    def run(self) -> runs.Run:
        return runs.load(self.id)

    def processes(self, what: str) -> list[int]:
        """The pids of a part of it."""
        run = self.run
        if what == "the hub":
            return [run.hub.pid] if run.hub else []
        if what == "the supervisor":
            return [run.supervisor.pid] if run.supervisor else []
        if what == "the supervisor and the hub":
            return [*self.processes("the supervisor"), *self.processes("the hub")]
        assert run.agent is not None
        if what == "torchrun":
            return [run.agent.pid]
        started = [one.pid for _, one in processes.descendants(run.agent.pid)]
        ranks = sorted(pid for pid in started if processes.is_rank(pid) or not self.torchrun)
        if what == "all ranks":
            return ranks
        if what == "one rank":
            return ranks[1:2]
        assert what == "everything but the ranks"
        started = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and _is_of(path, self)}
        return sorted(started - set(ranks))

    def end(self) -> None:
        """End it well, so that what it leaves can be looked at."""
        self.stop_file.touch()

    def close(self) -> None:
        """Nothing of it is left."""
        try:
            for run in runs.all_runs():
                stop.request_stop(run, now=True)
                stop.wait_until_gone(run, 30)
        finally:
            self.starter.kill()
            self.starter.wait()
            for path in Path("/proc").iterdir():
                if path.name.isdecimal() and _is_of(path, self):
                    os.kill(int(path.name), signal.SIGKILL)
            self._patch.undo()
            shutil.rmtree(self.folder, ignore_errors=True)


def _is_of(process: Path, training: Training) -> bool:
    mark = f"DDPMON_RUNTIME_DIR={training.folder / 's'}".encode()
    try:
        return int(process.name) != os.getpid() and mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
