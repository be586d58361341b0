"""Shows the place of every rank while none progresses: which have not arrived, and the line of Python of each."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.analysis.words import named_ranks
from ddpmon.messages import RankView, Snapshot, Stack
from ddpmon.tui.lines import Line, cut, plain, title, wrap
from ddpmon.tui.widgets.columns import HEALTH_WORDS

_WHO = 22
"""Columns for the ranks of a group."""


@dataclass(frozen=True)
class _Group:
    """Ranks that stand at the same place."""

    ranks: tuple[int, ...]
    place: str
    frames: tuple[str, ...]
    late: bool
    """They are who the others wait for."""


def _line_of(stack: Stack) -> str:
    """The innermost line of the script's own, if there is one."""
    frames = stack.frames
    place = stack.own if stack.own is not None and 0 <= stack.own < len(frames) else 0
    return plain(frames[place]) if frames else "no Python code"


def _place(rank: RankView) -> str:
    """Return where a rank is, as far as is known; empty: it is not."""
    stack = rank.stack
    if rank.health not in {"ok", "missing"}:
        health = HEALTH_WORDS.get(rank.health, plain(rank.health))
        return health if stack is None else f"{health}, last in {_line_of(stack)}"
    if stack is None:
        return ""
    if stack.blocked and stack.collective is not None:
        return f"waiting in {plain(stack.collective.name)}, {_line_of(stack)}"
    return _line_of(stack)


def _groups(snapshot: Snapshot) -> list[_Group]:
    """Ranks by place: who the others wait for first, then the fewest first."""
    late = {
        rank
        for finding in snapshot.findings
        if finding.explains == "stalled" and finding.lasts
        for rank in finding.ranks
    }
    ranks_at: dict[tuple[bool, str, tuple[str, ...]], list[int]] = {}
    for rank in snapshot.ranks:
        if place := _place(rank):
            frames = tuple(map(plain, rank.stack.frames)) if rank.stack is not None else ()
            ranks_at.setdefault((rank.rank in late, place, frames), []).append(rank.rank)
    groups = [_Group(tuple(ranks), place, frames, is_late) for (is_late, place, frames), ranks in ranks_at.items()]
    return sorted(groups, key=lambda group: (not group.late, len(group.ranks), group.ranks))


def standstill(snapshot: Snapshot, width: int, height: int) -> list[Line]:
    """Title, a line for each group of ranks, what to do next, and as many of the late ones' frames as fit.

    Empty where no rank could tell where it is.
    """
    groups = _groups(snapshot)
    if not groups:
        return []
    advice = next((plain(f.advice) for f in snapshot.findings if f.explains == "stalled" and f.lasts and f.advice), "")
    foot: list[Line] = [[(f" {row}", "text")] for row in wrap(f"next: {advice}", width - 2)[:2]] if advice else []
    room = max(0, height - 1 - len(foot))
    spare = max(0, room - len(groups))
    lines: list[Line] = []
    for group in groups[:room]:
        ranks_text = named_ranks(group.ranks, 0)
        ranks_text = f"{len(group.ranks):,} {ranks_text}" if len(group.ranks) > 6 else ranks_text
        mark, role = ("▲ ", "bad") if group.late else ("  ", "text")
        at = cut(group.place, max(1, width - _WHO - 2))
        lines.append(
            [(mark, role), (f"{cut(ranks_text, _WHO - 1):<{_WHO}}", role), (at, "strong" if group.late else "text")]
        )
        if group.late and group.frames:
            shown = group.frames[:spare]
            lines += [[(cut(f"{'':{_WHO + 2}}{frame}", width), "muted")] for frame in shown]
            spare -= len(shown)
    return [title("where every rank is", width), *lines, *foot][:height]
