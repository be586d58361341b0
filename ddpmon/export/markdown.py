"""Writes Markdown for a pull request or a chat: the report, tables and escaped text."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from ddpmon.analysis.words import MOST_FINDINGS, NO_VALUE
from ddpmon.export import report as reports
from ddpmon.plain import plain

_MEANS_SOMETHING = re.compile(r"([\\`*_\[\]<>|~$&])")
_NOBODY = "\u2060"
"""A word joiner, put after "@", so that an exception's text cannot notify people ("@name") on the page."""


def escaped(text: str) -> str:
    """Return a text as one line, escaped so that Markdown shows it unchanged, also in a table."""
    return _MEANS_SOMETHING.sub(r"\\\1", plain(" ".join(text.split()))).replace("@", "@" + _NOBODY)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = ()) -> list[str]:
    """Return the lines of a table, with every cell escaped. words: indices of the columns with text, which are aligned
    left.
    """
    aligned = [":---" if column in words else "---:" for column in range(len(head))]
    return [_row(head), f"| {' | '.join(aligned)} |", *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"


def report(built: dict[str, Any]) -> str:
    """Return the report for `ddpmon report --format md`: verdict, why, next, then the ranks and the findings."""
    lines = [f"### {escaped(reports.title(built['run']))}"]
    for word, sentence in reports.sentences(built):
        lines += ["", f"**{word}:** {escaped(sentence)}"]
    if built["steps"]["window"]:
        lines += ["", *(f"- {escaped(fact)}" for fact in reports.facts(built))]
        rank_rows = reports.rows(built["ranks"])
        lines += ["", *table(reports.REPORT_COLUMNS, [row for row, _ in rank_rows])]
        if more := reports.folded(built["ranks"]):
            lines += ["", escaped(more)]
        for sentence in reports.earlier(built):
            lines += ["", escaped(sentence)]
    ended = [(row[0], reports.how_it_ended(how)) for row, how in reports.rows(built["ranks"]) if how]
    if ended:
        lines += ["", *table(("rank", "how it ended"), ended, words={1})]
    if built["findings"]:
        lines += [
            "",
            *table(
                ("finding", "severity", "since step", "ms a step", "lost", "what"), _findings(built), words={0, 1, 5}
            ),
        ]
    return "\n".join(lines)


def _findings(built: dict[str, Any]) -> list[tuple[str, ...]]:
    shown = built["findings"][:MOST_FINDINGS]
    rows: list[tuple[str, ...]] = [
        (
            finding["kind"],
            finding["severity"],
            NO_VALUE if finding["since_step"] is None else f"{finding['since_step']:,}",
            NO_VALUE if finding["cost_ms"] is None else f"{finding['cost_ms']:.1f}",
            NO_VALUE if finding.get("lost_hours") is None else reports.hours(built, finding["lost_hours"]),
            finding["text"],
        )
        for finding in shown
    ]
    hidden = len(built["findings"]) - len(shown)
    return [*rows, (f"and {hidden:,} more", "", "", "", "", "")] if hidden > 0 else rows
