"""The map is true: what it names is there, and every package is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ddpmon"


def named(page: str) -> set[str]:
    """Python files that a page names."""
    return set(re.findall(r"`([\w/]+\.py)[`:]", (ROOT / page).read_text()))


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_is_there(page):
    files = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if ".venv" not in path.parts]
    gone = {name for name in named(page) if not any(f"/{path}".endswith(f"/{name}") for path in files)}
    assert named(page)
    assert gone == set()


def test_every_package_is_on_the_map():
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("| package |")[2].partition("\n\n")[0]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - set(re.findall(r"`(\w+)/`", table)) == set()
