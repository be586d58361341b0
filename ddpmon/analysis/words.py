"""Sentences that fit a line and count as people do."""

from __future__ import annotations

WIDTH = 76
"""Columns of a verdict."""


def fitting(head: str, *more: str) -> str:
    """The head, and of what can be added to it, from the left, as much as fits."""
    for part in more:
        if len(head) + len(part) <= WIDTH:
            head += part
    return head if len(head) <= WIDTH else head[: WIDTH - 1].rstrip() + "…"


def counted(number: int, one: str, many: str | None = None) -> str:
    """As in: 1 step, 1,800 steps. many: where that is not just `one` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
