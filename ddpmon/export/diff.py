"""`ddpmon diff`: formats the comparison of two runs, as text for a terminal and as Markdown."""

from __future__ import annotations

from typing import Any

from ddpmon.comparison import INTERVAL_NOTE, numbers, phases, sentences, title
from ddpmon.export import markdown
from ddpmon.export.width import columns, cut, wrapped


def text(compared: dict[str, Any], width: int = 80) -> str:
    """Return the comparison as text, the verdict first. No line is longer than `width` columns."""
    lines = wrapped(f"{compared['verdict']}.", width)
    lines.append("")
    for name in ("a", "b"):
        lines += wrapped(title(compared[name]), width, f"{name.upper():<5}", " " * 5)
    lines += ["", _cells(("", "A", "B", "B - A"), width), *(_cells(row, width) for row in numbers(compared))]
    lines += ["", _cells(("ms a step", "A", "B", "B - A", "crit A", "crit B", "B - A"), width)]
    lines += [*(_cells(row, width) for row in phases(compared)), ""]
    lines += [line for word, text in sentences(compared) for line in wrapped(text, width, f"{word:<6}", " " * 6)]
    return "\n".join([*lines, "", *wrapped(INTERVAL_NOTE, width)])


def text_markdown(compared: dict[str, Any]) -> str:
    """Return the comparison as Markdown."""
    lines = [f"**{markdown.escaped(compared['verdict'])}.**", ""]
    lines += [f"- {name.upper()}: {markdown.escaped(title(compared[name]))}" for name in ("a", "b")]
    lines += ["", *markdown.table(("", "A", "B", "B - A"), numbers(compared), words={0})]
    head = ("ms a step", "A", "B", "B - A", "critical rank A", "critical rank B", "B - A")
    lines += ["", *markdown.table(head, phases(compared), words={0}), ""]
    lines += [f"- **{word}:** {markdown.escaped(sentence)}" for word, sentence in sentences(compared)]
    return "\n".join([*lines, "", markdown.escaped(INTERVAL_NOTE)])


def gate(compared: dict[str, Any], percent: float) -> tuple[bool, str]:
    """Return (passed, sentence about the result). The gate fails if run B is certainly more than `percent` percent
    slower than A.
    """
    slower = 100 * compared["slower_by"]
    if slower > percent:
        return False, f"FAIL: B is slower than A by at least {slower:.1f}%; the limit is {percent:g}%"
    if slower > 0:
        return True, f"PASS: B is slower than A by at least {slower:.1f}%, which is within the limit of {percent:g}%"
    return True, f"PASS: ddpmon cannot show that B is slower than A; the limit is {percent:g}%"


def _cells(row: tuple[str, ...], width: int) -> str:
    """Return a line with as many cells as fit. The first cell is aligned left, the others are aligned right."""
    line = cut(row[0], 20).ljust(20)
    for cell in row[1:]:
        if columns(line) + max(10, len(cell) + 1) > width:
            break
        line += cell.rjust(10) if len(cell) < 10 else f" {cell}"
    return line.rstrip()
