"""Keeps the hub alive: a hub that ends before its run is started again, after a growing pause."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ddpmon import runs
from ddpmon.launch.kept_process import KeptProcess
from ddpmon.launch.life import HUB_END_S
from ddpmon.runs import Process


class HubKeeper(KeptProcess):
    """The hub of one run."""

    NAME = "the hub"
    MEANWHILE = "; see hub.log"
    FIRST_PAUSE_S = 0.5
    END_S = HUB_END_S
    _is_child = True

    def take_over(self, process: Process) -> None:
        """Keep a hub that another supervisor started."""
        self.process = process
        self._is_child = False

    def notice_end(self, at: float) -> None:
        """Take notice of the end of a hub that is no child."""
        if self.process is not None and not self._is_child and not self.process.alive():
            self.ended(at, None)

    def _start(self) -> int:
        self._is_child = True
        try:
            return self._spawn("ddpmon.hub", (), runs.run_dir(self._run_id) / "logs" / "hub.log")
        except OSError:  # a full disk: a hub without a log is better than none
            return self._spawn("ddpmon.hub", (), Path(os.devnull))

    def ended(self, at: float, code: int | None) -> None:
        # so that a socket is there only while a hub listens on it
        with contextlib.suppress(OSError):
            (runs.socket_dir(self._run_id) / "view.sock").unlink(missing_ok=True)
        super().ended(at, code)
