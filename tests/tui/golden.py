"""Screens against files: what a screen shows, as text that a review can read.

After a wanted change: DDPMON_GOLDEN=write pytest tests/tui, then look at the diff.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    """Compare with golden/NAME.txt, or write it."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("DDPMON_GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert path.exists(), f"{path} is missing: DDPMON_GOLDEN=write pytest tests/tui makes it"
    assert text.splitlines() == path.read_text().splitlines(), f"differs from {path}"
