"""Read from a script's source which loops and branches a line of it lies in.

Two ranks that wait for each other in different lines are told apart by these: one has left a loop that the other is
still in, or took a branch that the other did not.
"""

from __future__ import annotations

import ast
import functools
import os
import time
from collections.abc import Iterator

from ddpmon.messages import Scope

MAX_SOURCE_BYTES = 1 << 20
_STARTED = time.time()
"""Source that was changed after it is not what runs."""


def around(file: str, line: int, frame: int) -> list[Scope]:
    """Return the loops and branches around a line, the outermost first; none where the source cannot be read.

    Args:
        file: The file, as its code object names it.
        line: The line.
        frame: The index of its frame in the stack.

    """
    return [Scope(frame, *one) for one in _scopes(file) if one[1] <= line <= one[2]]


@functools.lru_cache(maxsize=32)
def _scopes(file: str) -> list[tuple[int, int, int, bool]]:
    """Statement's line, first and last line of each scope of a file, and whether it is a loop; the outermost first."""
    try:
        status = os.stat(file)
        if status.st_mtime > _STARTED or status.st_size > MAX_SOURCE_BYTES:
            return []
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    return sorted(_of(tree), key=lambda one: (one[1], -one[2]))


def _of(tree: ast.AST) -> Iterator[tuple[int, int, int, bool]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            # From the statement itself on: a rank that asks for the next batch is in the loop.
            yield node.lineno, node.lineno, node.body[-1].end_lineno or node.lineno, True
        elif isinstance(node, ast.If):
            for body in filter(None, (node.body, node.orelse)):
                yield node.lineno, body[0].lineno, body[-1].end_lineno or node.lineno, False
