"""Time that scripts named with `ddpmon.phase`: each rank's mean, and whether it explains a straggler."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.alignment import Rows
from ddpmon.analysis.arrays import Floats, Ints
from ddpmon.analysis.late_ranks import ADVICE
from ddpmon.analysis.world import World
from ddpmon.messages import Finding, Step

MOST_NAMES = 32
"""Names that are told of, those with the most time; a script that names every step anew is not kept whole."""
HALF = 0.5
"""Share of an excess that a name must hold to explain it."""
INNER = 0.9
"""Share of the largest excess of a name that one inside it must hold to be told instead."""


class _Block(NamedTuple):
    """Neighbouring steps: S steps of R ranks with N names."""

    ranks: tuple[int, ...]
    names: tuple[str, ...]
    step: Ints
    """[S]"""
    ms: NDArray[np.float32]
    """[S, R, N]"""


class NamedTimes:
    """Keeps what was named in the last `steps` steps. Steps without any name cost nothing."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._blocks: deque[_Block] = deque()

    def append(self, rows: Rows) -> None:
        """Take further steps; the oldest go."""
        named = [row for row in rows.steps if any(record.named_us for record in row)]
        if named:
            self._blocks.append(_block(rows.ranks, named))
        last = rows.steps[-1][0].step
        while self._blocks and self._blocks[0].step[-1] <= last - self._steps:
            self._blocks.popleft()

    def mean_ms(self, ranks: Sequence[int], first: int, last: int, steps: int) -> dict[str, Floats]:
        """Per name the mean of each of the ranks, over `steps` steps that lie between two step numbers; [R] each."""
        sums: dict[str, Floats] = {}
        for block in self._blocks:
            inside = block.ms[(block.step >= first) & (block.step <= last)].sum(axis=0, dtype=np.float64)
            if block.ranks != tuple(ranks):
                places = {rank: place for place, rank in enumerate(block.ranks)}
                nothing = np.zeros((1, len(block.names)))
                inside = np.vstack([inside, nothing])[[places.get(rank, -1) for rank in ranks]]
            for name, column in zip(block.names, inside.T, strict=True):
                sums[name] = sums.get(name, 0.0) + column
        most = sorted(sums, key=lambda name: -sums[name].sum())[:MOST_NAMES]
        return {name: sums[name] / max(1, steps) for name in sums if name in most and sums[name].any()}


def _block(ranks: tuple[int, ...], rows: list[list[Step]]) -> _Block:
    names = tuple(dict.fromkeys(name for row in rows for record in row for name in record.named_us))
    columns = {name: column for column, name in enumerate(names)}
    ms = np.zeros((len(rows), len(ranks), len(names)), np.float32)
    for i, row in enumerate(rows):
        for j, record in enumerate(row):
            for name, us in record.named_us.items():
                ms[i, j, columns[name]] = us / 1e3
    return _Block(ranks, names, np.array([row[0].step for row in rows], np.int64), ms)


def explained(found: Sequence[Finding], named: NamedTimes, world: World) -> list[Finding]:
    """The same findings; a straggler that loses most of its time inside a name is told with it."""
    return [_explained(finding, named, world) if finding.kind == "straggler" else finding for finding in found]


def _explained(finding: Finding, named: NamedTimes, world: World) -> Finding:
    if "named" in finding.evidence:
        return finding  # of a stretch that is over, and was told before
    first = max(finding.since_step or 0, int(world.step[0]))
    last = int(world.step[-1]) if finding.until_step is None else finding.until_step
    steps = int(((world.step >= first) & (world.step <= last)).sum())
    means = named.mean_ms(world.ranks, first, last, steps)
    rank = finding.ranks[0]
    late = {rank, *finding.evidence.get("with_ranks", ())}
    peers = [column for column, other in enumerate(world.ranks) if other not in late]
    if not means or not peers:
        return finding
    column = world.ranks.index(rank)
    times = {name: (float(ms[column]), float(np.median(ms[peers]))) for name, ms in means.items()}
    excess = {name: mine - theirs for name, (mine, theirs) in times.items()}
    most = max(excess.values())
    if most < HALF * finding.evidence["over_median_ms"]:
        return finding
    # Of names that lie within each other all hold the excess: the innermost one has the least besides.
    name = min((name for name in excess if excess[name] >= INNER * most), key=lambda name: times[name][0])
    mine, theirs = times[name]
    look = ADVICE.get(finding.phase or "", "").format(rank=rank)
    rest = (finding.advice or "").replace(look, "").strip()
    return msgspec.structs.replace(
        finding,
        evidence=finding.evidence | {"named": name, "named_ms": mine, "peers_named_ms": theirs},
        advice=f"Look in {name}: rank {rank} spends {mine:.1f} ms a step in it, its peers {theirs:.1f}."
        + (f" {rest}" if rest else ""),
    )
