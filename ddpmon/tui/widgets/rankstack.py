"""Shows the Python stack of a rank's training thread with its age, or the reason why there is none."""

from __future__ import annotations

from ddpmon import numbers
from ddpmon.analysis.words import format_count
from ddpmon.messages import RankView, Snapshot, StackView
from ddpmon.tui.lines import Line, cut_text, pane_title, plain_text, wrap_text

_NOW_S = 1.5


def latest_stack(snapshot: Snapshot, rank: RankView) -> StackView:
    """Return the latest stack of a rank: the hub's answer for the inspected rank, the one from a stall for others."""
    view = snapshot.inspect
    if view is not None and view.rank == rank.rank:
        return view.where
    return StackView(rank.rank, rank.stack)


def age(snapshot: Snapshot, view: StackView) -> str:
    """Return the age of a stack in words and in steps: "5 s ago, 1,280 steps before this one"."""
    words = []
    if view.at is not None:  # absent if the clock of the rank's host differs
        seconds = snapshot.at - view.at
        words.append("just now" if seconds < _NOW_S else f"{numbers.duration(seconds)} ago")
    if view.steps_since:
        words.append(f"{format_count(view.steps_since, 'step')} before this one")
    return ", ".join(words)


def stack_lines(snapshot: Snapshot, rank: RankView, width: int, *, asked: bool, answers: bool) -> list[Line]:
    """Return the stack with its age, or a line that says why there is none.

    If the user `asked` for the stack, "asking…" is shown until it arrives. `answers` is true if the rank can answer
    now, which is impossible in a recording.
    """
    view = latest_stack(snapshot, rank)
    is_past = view.steps_since > 0 and (bool(view.why) or not asked)  # then the rank has moved on since
    stack = None if is_past else view.stack
    waits = answers and (view.asked or (asked and not view.why and stack is None))
    if stack is None and not waits and not asked:
        return []
    age_text = "asking…" if waits else age(snapshot, view) if stack is not None else ""
    lines: list[Line] = [pane_title(f"its Python stack{f', {age_text}' if age_text else ''}", width)]
    if view.why and asked:
        lines += [[(f" ▲ {row}", "warn")] for row in wrap_text(plain_text(view.why), width - 4)]
    if stack is None:
        return lines if waits or view.why else [*lines, [(" none was recorded", "muted")]]
    if stack.collective is not None:
        state = "waits in" if stack.blocked else "last issued"
        lines.append([(cut_text(f" {state} {plain_text(stack.collective.name)}", width), "text")])
    if not stack.frames:
        lines.append([(" no Python code", "muted")])
    for place, row in enumerate(stack.frames):
        own = place == stack.own
        lines.append([(cut_text(f" {'›' if own else ' '} {plain_text(row)}", width), "strong" if own else "muted")])
    return lines
