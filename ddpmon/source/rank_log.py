"""Reads the output of ranks for a viewer: from this machine's logs, and for other machines' ranks as hubs send it."""

from __future__ import annotations

from collections import deque
from itertools import groupby

from ddpmon.messages import Snapshot
from ddpmon.plain import plain
from ddpmon.runs import Run
from ddpmon.runs.logs import Log, Reader, Said


class RankLog:
    """`log` has it. A hub's snapshots are given to `take`, by another thread than the one that polls the log."""

    def __init__(self, run: Run) -> None:
        self.log = Log(self._read)
        self._host = run.host
        self._reader = Reader(run)
        self._here: set[int] = set()
        """Ranks of which there are logs here."""
        self._came: deque[Said] = deque()
        self._totals: dict[int, int] = {}
        """Lines of each rank that its hub had read when some came last."""

    def _read(self) -> list[Said]:
        said = self._reader()
        self._here.update(each.rank for each in said)
        while self._came:
            said.append(self._came.popleft())
        return said

    def take(self, shot: Snapshot) -> None:
        """Take what is new of the lines that are in it of another machine's rank."""
        view = shot.printed
        if view is None or not view.lines or view.rank in self._here or view.rank >= len(shot.ranks):
            return
        if shot.ranks[view.rank].host == self._host:
            return
        before = self._totals.get(view.rank, 0)
        new = view.total - before if view.total >= before else view.total  # its hub began anew
        if new <= 0:
            return
        self.log.elsewhere.add(view.rank)
        self._totals[view.rank] = view.total
        if new > len(view.lines):
            self._came.append(Said(view.rank, view.lines[0].stream, [f"… {new - len(view.lines):,} earlier lines"]))
        for stream, lines in groupby(view.lines[-new:], key=lambda line: line.stream):
            said = [plain(line.text) for line in lines]
            self._came.append(Said(view.rank, stream if stream in {"out", "err"} else "launcher", said))
