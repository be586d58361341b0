"""Provides the last lines of a rank's output to viewers. They are read from a log, or fetched from the rank's
machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ddpmon.messages import PrintedLine, PrintedView
from ddpmon.messages.vocabulary import PRINTED_LINES
from ddpmon.runs import Run
from ddpmon.runs.logs import LAUNCHER, Reader
from ddpmon.store.registry import Registry

OUTPUT_INTERVAL_S = 0.5
"""Shortest interval in seconds between two reads of a log or two requests to another hub, for any number of viewers."""
FAR_MOST = 64
"""Largest number of ranks on other machines whose lines are kept."""
ASKED = "waiting for the rank's machine"


class RankOutput:
    """Output of ranks, which is read or fetched only while a viewer shows it."""

    def __init__(self, run: Run, registry: Registry, fetch: Callable[[int, int], None]) -> None:
        """Start without output. fetch: takes a node and a rank, and requests the rank's output from the node's hub."""
        self._registry, self._fetch = registry, fetch
        self._read = Reader(run)
        self._lines: dict[int, deque[PrintedLine]] = {}
        self._totals: dict[int, int] = {}
        self._read_at = float("-inf")
        self._far: dict[int, PrintedView] = {}
        self._asked_at: dict[int, float] = {}

    def view(self, rank: int, now: float) -> PrintedView:
        """Return the output of a rank. For a rank on another machine, it is the output that has arrived so far."""
        process = self._registry.process_of_rank.get(rank)
        if process is None:
            return PrintedView(rank, why="the run has no such rank")
        if not process.hello.through:
            return self.local_output(rank, now)
        if now - self._asked_at.get(rank, float("-inf")) >= OUTPUT_INTERVAL_S:
            self._asked_at[rank] = now
            self._fetch(process.hello.through, rank)
        return self._far.get(rank) or PrintedView(rank, why=ASKED)

    def local_output(self, rank: int, now: float) -> PrintedView:
        """Return the output of a rank of this machine."""
        if now - self._read_at >= OUTPUT_INTERVAL_S:
            self._read_at = now
            for said in self._read():
                kept = self._lines.setdefault(said.rank, deque(maxlen=PRINTED_LINES))
                kept.extend(PrintedLine(said.stream, text) for text in said.lines)
                self._totals[said.rank] = self._totals.get(said.rank, 0) + len(said.lines)
        source = rank if rank in self._lines else LAUNCHER  # Under `exec`, torchrun prints its ranks' output.
        lines = list(self._lines.get(source, ()))
        return PrintedView(
            rank, self._totals.get(source, 0), lines, "" if lines else "the rank has printed nothing so far"
        )

    def store_output(self, view: PrintedView, node: int) -> bool:
        """Store the output that a node's hub sent, and return whether it was requested of a rank on that node."""
        process = self._registry.process_of_rank.get(view.rank)
        if process is None or process.hello.through != node or view.rank not in self._asked_at:
            return False
        self._far.pop(view.rank, None)
        self._far[view.rank] = view
        if len(self._far) > FAR_MOST:
            gone = next(iter(self._far))
            del self._far[gone], self._asked_at[gone]
        return True
