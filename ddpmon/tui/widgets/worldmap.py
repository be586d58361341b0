"""Shows every rank as one glyph, grouped by host, to show at a glance where the problems are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from rich.cells import cell_len

from ddpmon.messages import STAGES, RankView, Snapshot
from ddpmon.tui import rank_marks
from ddpmon.tui.frame import Frame, arriving, short_host
from ddpmon.tui.lines import Line, join_pieces, line_width, pad_text, pane_title
from ddpmon.tui.widgets.pane import Pane

Grading: TypeAlias = Callable[[RankView], tuple[int, str, str]]
"""Returns (order, glyph, role) of a rank. If ranks share a glyph, the rank with the highest order is shown."""
_GAP = 4
_NOWHERE = "no host yet"


def rank_in(snapshot: Snapshot | None, number: int | None) -> RankView | None:
    """Return the rank with this number; None if there is none."""
    ranks = snapshot.ranks if snapshot else []
    return ranks[number] if number is not None and 0 <= number < len(ranks) else None


_FAR = ("○", "◔", "◑", "◕", "●", "●")
"""Glyph of each stage of a rank, in the order of `STAGES`."""
_FAR_LEGEND: Line = [("? not connected ○ importing ◔ imported ◑ group ◕ model ● training", "muted")]


def how_far(rank: RankView) -> tuple[int, str, str]:
    """Return (order, glyph, role) of a rank before its first step; the least advanced rank has the highest order."""
    order, glyph, role = rank_marks.state_grade(rank)
    if order >= 8 or rank.stage not in STAGES:
        return order + len(STAGES), glyph, role
    place = STAGES.index(rank.stage)
    return len(STAGES) - place, _FAR[place], "ok" if _FAR[place] == _FAR[-1] else "muted" if place == 0 else "info"


def _glyphs(ranks: list[RankView], fold: int, grade_of: Grading) -> Line:
    groups = (ranks[start : start + fold] for start in range(0, len(ranks), fold))
    worst = (max(map(grade_of, group), key=lambda grade: grade[0]) for group in groups)
    return join_pieces((glyph, role) for _, glyph, role in worst)


def _by_host(ranks: list[RankView], width: int, most: int, grade_of: Grading) -> list[Line] | None:
    """Return lines with the ranks grouped by host; None if a group is wider than the screen or there are too many
    lines.
    """
    groups: dict[str, list[RankView]] = {}
    for rank in ranks:
        groups.setdefault(short_host(rank.host) or _NOWHERE, []).append(rank)
    if _NOWHERE in groups and len(groups) > 1:
        groups[_NOWHERE] = groups.pop(_NOWHERE)
    name = max(cell_len(host) for host in groups)
    cell = name + 1 + max(map(len, groups.values()))
    across = max(1, (width - 1 + _GAP) // (cell + _GAP))
    if cell + 2 > width or math.ceil(len(groups) / across) > most:
        return None
    lines: list[Line] = []
    for place, (host, group) in enumerate(groups.items()):
        if place % across == 0:
            lines.append([(" ", "text")])
        marks = _glyphs(group, 1, grade_of)
        wrong = any(rank_marks.state_grade(rank)[0] >= 6 and rank.health != "missing" for rank in group)
        label: Line = [(pad_text(host, name, left=True) + " ", "strong" if wrong else "muted")]
        pad = cell - line_width(label) - line_width(marks) + _GAP
        lines[-1] += [*label, *marks, (" " * pad, "text")]
    return lines


def world(snapshot: Snapshot, width: int, most: int) -> tuple[list[Line], int]:
    """Return (lines without the title, ranks per glyph).

    To stay within `most` lines, several ranks may share a glyph, which then shows the worst of them.
    """
    ranks = snapshot.ranks
    if not ranks or width < 4 or most < 1:
        return [], 1
    grade_of = how_far if arriving(snapshot) else rank_marks.state_grade
    lines = _by_host(ranks, width, most, grade_of)
    if lines is not None:
        return lines, 1
    room = width - 2
    fold = max(1, math.ceil(len(ranks) / (room * most)))
    if fold > 1:
        fold = 1 << (fold - 1).bit_length()  # a power of two, so that whole hosts share a glyph
    per_line = room * fold
    return [
        [(" ", "text"), *_glyphs(ranks[start : start + per_line], fold, grade_of)]
        for start in range(0, len(ranks), per_line)
    ], fold


class WorldMap(Pane):
    """The world map."""

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        if frame.snapshot is None:
            return [pane_title("world", width), [(" no rank yet", "muted")]]
        lines, fold = world(frame.snapshot, width, height - 1)
        if arriving(frame.snapshot):
            heading = "world" if fold == 1 else f"world, {fold} each"
            return [pane_title(heading, width, _FAR_LEGEND), *lines]
        heading = "world: slower than peers"
        if fold > 1:
            heading += f", the worst of {fold} ranks each"
        return [pane_title(heading, width, rank_marks.LEGEND), *lines]
