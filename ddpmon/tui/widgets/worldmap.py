"""Every rank as one glyph, grouped by host: where in the world something is wrong."""

from __future__ import annotations

import math

from ddpmon.messages import RankView, Snapshot
from ddpmon.tui import standing
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, plain, size, title
from ddpmon.tui.widgets.pane import Pane

_GAP = 4
_NOWHERE = "no host yet"


def everyone(snapshot: Snapshot) -> list[RankView]:
    """All ranks of the world, those never heard of included, by rank."""
    known = {rank.rank: rank for rank in snapshot.ranks}
    numbers = sorted(known.keys() | set(range(snapshot.run.world_size)))
    return [known.get(number) or RankView(rank=number) for number in numbers]


def arriving(snapshot: Snapshot) -> bool:
    """Whether no rank has a measured step yet: what there is to see is how far each has come."""
    return not snapshot.loss_series.seconds and all(rank.own_ms is None for rank in snapshot.ranks)


def short_host(host: str) -> str:
    """A host's first label, which is how people call it."""
    return plain(host).partition(".")[0]


def _glyphs(ranks: list[RankView], fold: int) -> Line:
    line: Line = []
    for start in range(0, len(ranks), fold):
        _, glyph, role = max((standing.grade(rank) for rank in ranks[start : start + fold]), key=lambda grade: grade[0])
        if line and line[-1][1] == role:
            line[-1] = (line[-1][0] + glyph, role)
        else:
            line.append((glyph, role))
    return line


def _by_host(ranks: list[RankView], width: int) -> list[Line] | None:
    """A group per host, with its name; None when a group is wider than the screen."""
    groups: dict[str, list[RankView]] = {}
    for rank in ranks:
        groups.setdefault(short_host(rank.host) or _NOWHERE, []).append(rank)
    if _NOWHERE in groups and len(groups) > 1:
        groups[_NOWHERE] = groups.pop(_NOWHERE)
    name = max(len(host) for host in groups)
    cell = name + 1 + max(map(len, groups.values()))
    if cell + 2 > width:
        return None
    across = max(1, (width - 1 + _GAP) // (cell + _GAP))
    lines: list[Line] = []
    for place, (host, group) in enumerate(groups.items()):
        if place % across == 0:
            lines.append([(" ", "text")])
        marks = _glyphs(group, 1)
        wrong = any(standing.grade(rank)[0] >= 6 and rank.health != "missing" for rank in group)
        label: Line = [(f"{host:<{name}} ", "strong" if wrong else "muted")]
        pad = cell - size(label) - size(marks) + _GAP
        lines[-1] += [*label, *marks, (" " * pad, "text")]
    return lines


def world(snapshot: Snapshot, width: int, most: int) -> tuple[list[Line], int]:
    """(lines without the title, ranks per glyph). Folds ranks into glyphs, the worst shown, to stay in `most` lines."""
    ranks = everyone(snapshot)
    if not ranks or width < 4 or most < 1:
        return [], 1
    lines = _by_host(ranks, width)
    if lines is not None and len(lines) <= most:
        return lines, 1
    room = width - 2
    fold = max(1, math.ceil(len(ranks) / (room * most)))
    if fold > 1:
        fold = 1 << (fold - 1).bit_length()  # whole hosts, which have powers of two of ranks, share a glyph
    per_line = room * fold
    return [
        [(" ", "text"), *_glyphs(ranks[start : start + per_line], fold)] for start in range(0, len(ranks), per_line)
    ], fold


class WorldMap(Pane):
    """The world map."""

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        if frame.snapshot is None:
            return [title("world", width)]
        lines, fold = world(frame.snapshot, width, height - 1)
        if arriving(frame.snapshot):
            return [title("world: · here  ? not heard yet", width), *lines]
        heading = "world: own time over the median"
        if fold > 1:
            heading += f", the worst of {fold} ranks each"
        return [title(heading, width, standing.LEGEND), *lines]
