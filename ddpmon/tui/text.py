"""The head and the rank table as text, for scripts, chats and mails."""

from __future__ import annotations

from ddpmon.messages import Snapshot
from ddpmon.tui.frame import Frame
from ddpmon.tui.head import head
from ddpmon.tui.lines import Line, plain_text


def _text(line: Line) -> str:
    return plain_text("".join(text for text, _ in line)).rstrip()


def head_text(snapshot: Snapshot, width: int) -> list[str]:
    """Return the head's three lines in at most `width` columns."""
    return [_text(line)[1:] for line in head(Frame(snapshot), width + 1, 3)]


def table_text(snapshot: Snapshot, width: int) -> list[str]:
    """Return the header of the rank table and a line for each rank, problems first."""
    from ddpmon.tui.widgets.ranktable import SORTS, ordered, table_lines, world_layout  # It imports textual.

    ranks = ordered(snapshot, snapshot.ranks, SORTS[0])
    return [_text(line) for line in table_lines(snapshot, ranks, world_layout(snapshot, width), width, None)]
