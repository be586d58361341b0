"""Runs the dashboard on a made-up snapshot in this terminal: what the pty tests start, and good for looking.

python -m tests.tui.show STATE [--silent SECONDS] [--owns-run] [--readonly] [--notify WAY]
                         [--interrupted SIGNAL]
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from queue import Queue

from textual.drivers._writer_thread import WriterThread

from ddpmon.tui.app import DdpmonApp, watch
from tests.fake_source import FakeSource
from tests.tui import kinds, measured, odd, snapshots


def interrupt_a_write(number: int) -> None:
    """Have this signal come once while the dashboard puts something into the queue of what is written."""
    make, left = WriterThread.__init__, [number] * 20

    class Interrupted(Queue):
        def _put(self, item: object) -> None:
            super()._put(item)
            if left:
                left.pop()
                if not left:
                    os.kill(os.getpid(), number)

    def init(self: WriterThread, file: object) -> None:
        make(self, file)
        self._queue = Interrupted(self._queue.maxsize)

    WriterThread.__init__ = init


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("state", choices=[*snapshots.STATES, *odd.MADE, *measured.MADE, *kinds.MADE, "nothing"])
    parser.add_argument("--silent", type=float, default=0.0)
    parser.add_argument("--owns-run", action="store_true")
    parser.add_argument("--readonly", action="store_true")
    parser.add_argument("--notify", default="off")
    parser.add_argument("--outcome", help="write here how it was left")
    parser.add_argument("--interrupted", help="the name of a signal that comes while something is written")
    given = parser.parse_args()
    if given.interrupted:
        interrupt_a_write(signal.Signals[given.interrupted])
    made = {**snapshots.STATES, **odd.MADE, **measured.MADE, **kinds.MADE}.get(given.state)
    source = FakeSource(made() if made else None, given.silent)
    source.said = snapshots.said(source.current.run.world_size if source.current else 0)
    outcome = watch(DdpmonApp(source, readonly=given.readonly, owns_run=given.owns_run, notify=given.notify))
    if given.outcome:
        Path(given.outcome).write_text(f"{outcome.value} {source.stops}")
    print(f"left: {outcome.value}", flush=True)
