"""Real hubs that share one import: forked from a process that has imported the hub and done nothing else.

A hub that is started as a program takes half a second of CPU time for its imports, several times as much as for what
most tests ask of it. Start it as a program if the test reads the hub's command line or its first environment, also from
/proc: a forked hub shows those of the process that forked it.

Run as a program, this file is that process. Its argument is the descriptor of a socket with one JSON request a line.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class ForkServer:
    """The connection of a test worker to its process that forks hubs, which ends together with the worker."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        # Without our variables: a test that looks for the processes of its own home must not find this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DDPMON")}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], env=environment, pass_fds=[theirs.fileno()]
            )
        with mine:
            self._file = mine.makefile("rw")
        atexit.register(self._close)

    def _close(self) -> None:
        self._file.close()
        self._process.wait()

    def ask(self, **request: Any) -> Any:
        """Send a request to the process that forks hubs, and return its answer."""
        print(json.dumps(request), file=self._file, flush=True)
        answer = self._file.readline()
        assert answer, "the process that forks hubs has ended"
        return json.loads(answer)


_server = functools.cache(ForkServer)


class ForkedHub:
    """A hub and the part of Popen's interface that tests use."""

    def __init__(self, run_id: str, log: Path) -> None:
        self._server = _server()
        self.args = ["ddpmon.hub", run_id]
        self.returncode: int | None = None
        self.pid: int = self._server.ask(run_id=run_id, log=str(log), folder=os.getcwd(), environment=dict(os.environ))

    def poll(self) -> int | None:
        """Return the exit code as `Popen.poll` does: None while the hub runs, -9 if signal 9 ended it."""
        if self.returncode is None:
            self.returncode = self._server.ask(pid=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the hub has ended, and return its exit code."""
        if self.poll() is None:
            ended = os.pidfd_open(self.pid)
            try:
                if not select.select([ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            finally:
                os.close(ended)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless the hub has ended. Until it is waited for, its pid belongs to no other process."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork a hub for each request that has a run, and return the exit code of a hub for each that has a pid.

    Returns in each forked hub, with its request, and in the process itself, with None, once no more requests come.
    """
    with requests, requests.makefile("rw") as file:
        for line in file:
            request = json.loads(line)
            if "run_id" in request:
                answer: int | None = os.fork()
                if answer == 0:
                    return request
            else:
                pid, status = os.waitpid(request["pid"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            print(json.dumps(answer), file=file, flush=True)
    return None


def _become(request: dict[str, Any]) -> None:
    """Do in this forked process what `python -m ddpmon.hub` does in a fresh one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    sys.path[0] = request["folder"]
    sys.argv[1:] = [request["run_id"]]
    gc.enable()
    runpy.run_module("ddpmon.hub", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The test ends first, and its hubs with it.
    del sys.path[0]  # the folder of this file
    sys.path.insert(0, os.getcwd())
    gc.disable()  # as ddpmon/hub/__main__.py does while it imports
    importlib.import_module("ddpmon.hub.hub")
    gc.freeze()  # so that hubs share the pages of what was imported
    mine = _serve(socket.socket(fileno=int(sys.argv[1])))
    if mine is not None:
        _become(mine)
