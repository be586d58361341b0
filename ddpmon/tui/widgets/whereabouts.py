"""Where a rank's training thread is: its Python stack, how old it is, and why there is none."""

from __future__ import annotations

from ddpmon.messages import RankView, Snapshot, StackView
from ddpmon.tui import numbers
from ddpmon.tui.lines import Line, cut, plain, title, wrap

_NOW_S = 1.5


def where(snapshot: Snapshot, rank: RankView) -> StackView:
    """What is known of it: what was wished for, or what a standstill told."""
    view = snapshot.inspect
    if view is not None and view.rank == rank.rank:
        return view.where
    return StackView(rank.rank, rank.stack)


def age(snapshot: Snapshot, told: StackView) -> str:
    """How old a stack is, in words; empty if that cannot be told."""
    if told.at is None:
        return ""
    seconds = snapshot.at - told.at
    return "just now" if seconds < _NOW_S else f"{numbers.duration(seconds)} ago"


def whereabouts(snapshot: Snapshot, rank: RankView, width: int, *, asked: bool, answers: bool = True) -> list[Line]:
    """The stack with its age, or in a line why there is none.

    asked: say so while it is on its way. answers: somebody is there to answer, as nobody is in a recording.
    """
    told = where(snapshot, rank)
    stack = told.stack
    waits = answers and (told.asked or (asked and not told.why and stack is None))
    if stack is None and not waits and not asked:
        return []
    when = "asking…" if waits else age(snapshot, told) if stack is not None else ""
    lines: list[Line] = [title(f"its Python stack{f', {when}' if when else ''}", width)]
    if told.why and asked:
        lines += [[(f" ▲ {row}", "warn")] for row in wrap(plain(told.why), width - 4)]
    if stack is None:
        return lines if waits or told.why else [*lines, [(" none was recorded", "muted")]]
    if stack.collective is not None:
        said = "waits in" if stack.blocked else "last issued"
        lines.append([(cut(f" {said} {plain(stack.collective.name)}", width), "text")])
    if not stack.frames:
        lines.append([(" no Python code", "muted")])
    for place, row in enumerate(stack.frames):
        own = place == stack.own
        lines.append([(cut(f" {'›' if own else ' '} {plain(row)}", width), "strong" if own else "muted")])
    return lines
