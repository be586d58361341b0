"""The last lines that a rank printed, for who looks at it: read here, or fetched from the hub of its machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ddpmon.messages import PrintedLine, PrintedView
from ddpmon.messages.vocabulary import PRINTED_LINES
from ddpmon.runs import Run
from ddpmon.runs.logs import LAUNCHER, Reader
from ddpmon.store.registry import Registry

EVERY_S = 0.5
"""Logs are read, and another hub is asked, at most this often, however many look."""
FAR_MOST = 64
"""Ranks of other machines whose lines are kept."""
ASKED = "waiting for the rank's machine"


class RankOutput:
    """Reads and fetches only what somebody looks at. fetch(node, rank): asks the hub of a node."""

    def __init__(self, run: Run, registry: Registry, fetch: Callable[[int, int], None]) -> None:
        self._registry, self._fetch = registry, fetch
        self._read = Reader(run)
        self._lines: dict[int, deque[PrintedLine]] = {}
        self._totals: dict[int, int] = {}
        self._read_at = float("-inf")
        self._far: dict[int, PrintedView] = {}
        self._asked_at: dict[int, float] = {}

    def view(self, rank: int, now: float) -> PrintedView:
        """Return what is there of it by now; of another machine's rank what that one's hub has sent so far."""
        process = self._registry.seats.get(rank)
        if process is None:
            return PrintedView(rank, why="the run has no such rank")
        if not process.hello.through:
            return self.here(rank, now)
        if now - self._asked_at.get(rank, float("-inf")) >= EVERY_S:
            self._asked_at[rank] = now
            self._fetch(process.hello.through, rank)
        return self._far.get(rank) or PrintedView(rank, why=ASKED)

    def here(self, rank: int, now: float) -> PrintedView:
        """Return the output of a rank of this machine."""
        if now - self._read_at >= EVERY_S:
            self._read_at = now
            for said in self._read():
                kept = self._lines.setdefault(said.rank, deque(maxlen=PRINTED_LINES))
                kept.extend(PrintedLine(said.stream, text) for text in said.lines)
                self._totals[said.rank] = self._totals.get(said.rank, 0) + len(said.lines)
        source = rank if rank in self._lines else LAUNCHER  # torchrun under `exec` prints what its ranks do
        lines = list(self._lines.get(source, ()))
        return PrintedView(
            rank, self._totals.get(source, 0), lines, "" if lines else "the rank has printed nothing so far"
        )

    def came(self, view: PrintedView, node: int) -> bool:
        """Take what the hub of a node sent; says whether it may speak for that rank, and was asked."""
        process = self._registry.seats.get(view.rank)
        if process is None or process.hello.through != node or view.rank not in self._asked_at:
            return False
        self._far.pop(view.rank, None)
        self._far[view.rank] = view
        if len(self._far) > FAR_MOST:
            gone = next(iter(self._far))
            del self._far[gone], self._asked_at[gone]
        return True
