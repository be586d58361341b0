"""Formats the stacks of a run's ranks, as text and for JSON. In the text, identical stacks appear once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpmon.analysis.processes.disagreements import line_of
from ddpmon.analysis.processes.hangs import groups_by_stack
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import OWN_PHASES, Stack, StackView
from ddpmon.plain import plain


def text(views: Sequence[StackView], fresh: set[int], world_size: int, now: float) -> list[str]:
    """Return the stacks as lines.

    Args:
        views: The stack of each rank.
        fresh: Ranks that answered just now.
        world_size: Number of ranks.
        now: Current Unix time, from which the age of stacks that are not fresh is computed.

    """
    stacks = {view.rank: view.stack for view in views if view.rank in fresh and view.stack}
    lines: list[str] = []
    for ranks in groups_by_stack(stacks):
        lines += [_heading(ranks, world_size, stacks[ranks[0]]), *_frames(stacks[ranks[0]]), ""]
    for view in views:
        if view.rank in fresh:
            continue
        lines.append(plain(view.why) or f"rank {view.rank} did not answer the request for its stack")
        if view.stack and not view.steps_since:
            age = "" if view.at is None else f", {max(0.0, now - view.at):.0f} s ago"
            lines += [f"  the last known stack of this rank{age}:", *_frames(view.stack)]
        lines.append("")
    return lines[:-1]


def facts(views: Sequence[StackView], fresh: set[int], now: float) -> list[dict[str, Any]]:
    """Return each rank's stack as `ddpmon stack --json` prints it."""
    return [_facts(view, view.rank in fresh, now) for view in views]


def _heading(ranks: Sequence[int], world_size: int, stack: Stack) -> str:
    who, line = named_ranks(ranks, world_size), plain(line_of(stack))
    if stack.collective is None or not stack.blocked:
        return f"{who} in {line}"
    return f"{who} {'waits' if len(ranks) == 1 else 'wait'} in {plain(stack.collective.name)}, from {line}"


def _frames(stack: Stack) -> list[str]:
    return [f"  {'›' if place == stack.own else ' '} {plain(frame)}" for place, frame in enumerate(stack.frames)]


def _facts(view: StackView, answered: bool, now: float) -> dict[str, Any]:
    stack = view.stack
    row: dict[str, Any] = {"rank": view.rank, "why": view.why or None, "answered": answered}
    if stack is None or (view.steps_since and not answered):
        return row | {"frames": None}
    return row | {
        "pid": stack.pid,
        "step": stack.step,
        "phase": OWN_PHASES[stack.phase],
        "age_s": None if view.at is None else round(max(0.0, now - view.at), 3),
        "frames": stack.frames,
        "own_frame": stack.own,
        "collective": stack.collective.name if stack.collective else None,
        "waits": stack.blocked,
    }
