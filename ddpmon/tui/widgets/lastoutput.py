"""Shows the last output of one rank."""

from __future__ import annotations

from ddpmon.runs.logs import Log
from ddpmon.tui.lines import Line, cut, plain, title


def last_output(printed: Log | None, rank: int, width: int, rows: int) -> list[Line]:
    """The last lines of a rank, at most so many; nothing where it printed none."""
    lines: list[Line] = []
    for entry in reversed(printed.entries if printed is not None else []):
        if len(lines) >= rows:
            break
        if rank in entry.ranks:
            mark = "!" if entry.stream == "err" else " "
            lines.append([(f" {mark} ", "warn"), (cut(plain(entry.text), width - 4), "text")])
    return [title("its last output; 7 shows all", width, [(" ! stderr ", "muted")]), *reversed(lines)] if lines else []
