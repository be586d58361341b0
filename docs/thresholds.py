"""Writes thresholds.md from the thresholds as they stand in ddpmon/analysis: python docs/thresholds.py"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import ddpmon.analysis
from ddpmon.analysis.threshold import Threshold

PAGE = Path(__file__).with_name("thresholds.md")
FILES = Path(ddpmon.analysis.__file__).parent
HEAD = """# Thresholds

From which value on ddpmon holds a thing for true, and what keeps it true: with the first alone a finding would come and
go with noise around it. A dash where both are the same. The last column names the source or the measurement that chose
the number; "A judgement" says that neither did, and gives the reason. None of them is an option. Other numbers, such as
sizes of windows and bounds of memory, are no thresholds and stand in the files with their reason under them.

This page is made from the code: `python docs/thresholds.py`.
"""
GROUPS = {
    "kinds": "Kinds of findings",
    "slowness": "Which rank is slow: detection",
    "steps": "Steps: lateness, rhythms, pauses, clocks",
    "processes": "Processes and devices",
    "statistics": "Statistics",
    ".": "The state of a run, and two runs side by side",
}
"""Folders of ddpmon/analysis, in the order of the page."""


def page() -> str:
    """The page as the thresholds are now."""
    parts = [HEAD]
    for folder, title in GROUPS.items():
        parts.append(f"## {title}\n")
        for path in sorted((FILES / folder).glob("*.py")):
            parts += _of(path)
    return "\n".join(parts).rstrip() + "\n"


def _of(path: Path) -> Iterator[str]:
    """A file's heading, its first line, and a row for each of its thresholds; nothing where it has none."""
    parts = ("ddpmon", "analysis", *path.relative_to(FILES).with_suffix("").parts)
    code = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    if rows := list(rows_of(thresholds_in(code))):
        yield f"### {path.stem}\n\n{(code.__doc__ or '').splitlines()[0]}\n"
        yield from rows
        yield ""


def thresholds_in(code: ModuleType) -> dict[str, Threshold[float]]:
    """The thresholds that a file holds itself, by name."""
    source = Path(code.__file__ or "").read_text()
    targets = [node.targets[0] for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    values = {target.id: getattr(code, target.id) for target in targets if isinstance(target, ast.Name)}
    return {name: value for name, value in values.items() if isinstance(value, Threshold)}


def rows_of(thresholds: Mapping[str, Threshold[float]]) -> Iterator[str]:
    """A table of thresholds; nothing where there are none."""
    if not thresholds:
        return
    yield "| name | what it is of | true from | stays true to | why |\n| --- | --- | --- | --- | --- |"
    for name, one in thresholds.items():
        edge = "at most " if one.below else ""
        stays = "–" if one.stay == one.enter else edge + _number(one.stay)
        yield f"| `{name}` | {one.of} | {edge}{_number(one.enter)} | {stays} | {one.why} |"


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:.4g}"


if __name__ == "__main__":
    PAGE.write_text(page())
