"""The table of docs/faults.md: what is to be true when something breaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


@dataclass(frozen=True)
class Row:
    """One thing that breaks, in one way."""

    what: str
    happens: str
    training: str
    lost: str
    says: str
    exits_with: int

    @property
    def ends(self) -> bool:
        """Return whether the run is over then."""
        return self.training.startswith("ends")

    def __str__(self) -> str:
        return f"{self.what}: {self.happens}"


def rows() -> list[Row]:
    """All rows of the page's first table, in its order."""
    return [Row(*row[:5], exits_with=int(row[5])) for row in _cells("What happens when something breaks")]


def ways_to_leave() -> dict[str, str]:
    """Return the rows of the second table: how a rank leaves, and which of its records are lost."""
    return {way.strip("`"): lost for way, lost in _cells("A rank that ends suddenly")}


def _cells(heading: str) -> list[list[str]]:
    section = PAGE.read_text().split(f"# {heading}\n")[1].split("\n## ")[0]
    _, *lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
