"""Finds in a script's source the loops and branches around a line.

Loops and branches show why two ranks wait for each other in different lines: one rank has left a loop that the other is
still in, or took a branch that the other did not take.
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
"""Unix time at which this module was loaded. A source file that was changed later is not the running code."""


def enclosing_line(file: str, line: int, frame: int) -> list[Scope]:
    """Return the loops and branches around a line, the outermost first; [] if the source cannot be read.

    Args:
        file: Path of the file, as in its code object.
        line: The line.
        frame: Index of the line's frame in the stack.

    """
    return [Scope(frame, *one) for one in _scopes(file) if one[1] <= line <= one[2]]


@functools.lru_cache(maxsize=32)
def _scopes(file: str) -> list[tuple[int, int, int, bool]]:
    """Return (statement's line, first line, last line, is a loop) of each scope in a file, the outermost first."""
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
            # Include the statement itself: a rank that requests the next batch is in the loop.
            yield node.lineno, node.lineno, node.body[-1].end_lineno or node.lineno, True
        elif isinstance(node, ast.If):
            for body in filter(None, (node.body, node.orelse)):
                yield node.lineno, body[0].lineno, body[-1].end_lineno or node.lineno, False
