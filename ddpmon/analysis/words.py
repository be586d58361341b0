"""Sentences that fit a line."""

from __future__ import annotations

WIDTH = 76
"""Columns of a verdict."""


def fitting(head: str, *more: str) -> str:
    """The head, and of what can be added to it, from the left, as much as fits."""
    for part in more:
        if len(head) + len(part) <= WIDTH:
            head += part
    return head if len(head) <= WIDTH else head[: WIDTH - 1].rstrip() + "…"
