"""Generate thresholds.md from the thresholds in ddpmon/analysis: python docs/thresholds.py"""

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

This page lists the values at which ddpmon makes a decision, with the reason for each value. You cannot change these
values.

- *starts at*: the condition becomes true at this value.
- *ends at*: the condition becomes false again at this value. Because of the gap between the two values, noise does not
  switch a finding on and off. A dash means that there is no gap.
- *reason*: the source or the measurement behind the value. If there is neither, the reason begins with "A judgement
  call".

Other numbers, such as window sizes and memory limits, are not thresholds. Their reasons are in the source files.

`python docs/thresholds.py` generates this page from the code.
"""
GROUPS = {
    "kinds": "Kinds of findings",
    "slowness": "Detection of slow ranks",
    "steps": "Steps: work, pauses, recurring events",
    "processes": "Processes and devices",
    "statistics": "Statistics",
    ".": "The state of a run, and the comparison of two runs",
}
"""Folders of ddpmon/analysis, in the order of the page."""


def page() -> str:
    """Return the page for the present thresholds."""
    parts = [HEAD]
    for folder, title in GROUPS.items():
        parts.append(f"## {title}\n")
        for path in sorted((FILES / folder).glob("*.py")):
            parts += _of(path)
    return "\n".join(parts).rstrip() + "\n"


def _of(path: Path) -> Iterator[str]:
    """Yield a file's heading, its first line, and a row for each of its thresholds; nothing if it has none."""
    parts = ("ddpmon", "analysis", *path.relative_to(FILES).with_suffix("").parts)
    code = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    if rows := list(rows_of(thresholds_in(code))):
        yield f"### {path.stem}\n\n{(code.__doc__ or '').splitlines()[0]}\n"
        yield from rows
        yield ""


def thresholds_in(code: ModuleType) -> dict[str, Threshold]:
    """Return the thresholds that a file defines itself, by name."""
    source = Path(code.__file__ or "").read_text()
    targets = [node.targets[0] for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    values = {target.id: getattr(code, target.id) for target in targets if isinstance(target, ast.Name)}
    return {name: value for name, value in values.items() if isinstance(value, Threshold)}


def rows_of(thresholds: Mapping[str, Threshold]) -> Iterator[str]:
    """Yield the lines of a table of thresholds; nothing if there are none."""
    if not thresholds:
        return
    yield "| name | measured quantity | starts at | ends at | reason |\n| --- | --- | --- | --- | --- |"
    for name, one in thresholds.items():
        start, end = ("≤", ">") if one.below else ("≥", "<")
        stays = "–" if one.stay == one.enter else f"{end} {_number(one.stay)}"
        yield f"| `{name}` | {one.of} | {start} {_number(one.enter)} | {stays} | {one.why} |"


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:.4g}"


if __name__ == "__main__":
    PAGE.write_text(page())
