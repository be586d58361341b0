"""Writes the tables of recording.md from where ddpmon itself has them: python docs/recording_tables.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddpmon.recording.tables import INDEXES, KEYS, TABLES, VIEW_COLUMNS, VIEWS, Column

PAGE = Path(__file__).with_name("recording.md")
HEADING = "## Tables\n"
SAME = {"minutes": "seconds", "hours": "seconds", "scalar_hours": "scalar_minutes"}
"""Tables with the columns of another one."""


def page(written: str) -> str:
    """The page with its tables as they are now."""
    before, _, _ = written.partition(HEADING)
    return "\n".join([before + HEADING, *_tables()]).rstrip() + "\n"


def _tables() -> Iterator[str]:
    for table, columns in TABLES.items():
        key = f" Key: {', '.join(KEYS[table])}." if table in KEYS else ""
        index = "".join(f" Index: {on.partition(' ')[2]}." for on in INDEXES.values() if on.split()[0] == table)
        if table in SAME:
            yield f"### {table}\n\nAs `{SAME[table]}`.{key}\n"
        else:
            yield f"### {table}\n\n{key.strip()}{index}".strip() + "\n"
            yield from _rows(columns)
    for view in VIEWS:
        yield f"### {view}\n\nA view.\n"
        yield from _rows(VIEW_COLUMNS[view])


def _rows(columns: tuple[Column, ...]) -> Iterator[str]:
    yield "| column | type | what it is |\n| --- | --- | --- |"
    for column in columns:
        yield f"| {column.name} | {column.kind.removesuffix(' PRIMARY KEY') or 'any'} | {column.meaning} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
