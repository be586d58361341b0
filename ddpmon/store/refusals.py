"""Counts values that cannot be true and were left out, and makes a sentence for each kind once."""

from __future__ import annotations

from collections.abc import Iterable

from ddpmon.messages import Refusal

MOST = 256
"""Kinds that are counted apart, over all ranks."""
STRANGER = "message of a process that is not a rank of this run"
NO_KEY = "connection of a hub with an unknown key"
NO_MESSAGE = "frame that is not a message of ddpmon"
REST = "data of other kinds"


class Refusals:
    """Counts of refused values, by rank; None: from a process that is no rank."""

    def __init__(self, rows: Iterable[Refusal] = ()) -> None:
        self._counts = {(row.rank, row.what): row.count for row in rows}
        self._unreported: list[tuple[int | None, str, str]] = []

    def count(self, kind: str, rank: int | None = None, why: str = "") -> None:
        """One more. why: shown beside `kind` the first time."""
        key = (rank, kind)
        if key not in self._counts and len(self._counts) >= MOST:
            key = (None, REST)
        if key not in self._counts:
            printable = "".join(character if character.isprintable() else "?" for character in why)
            self._unreported.append((*key, printable))
        self._counts[key] = self._counts.get(key, 0) + 1

    def of(self, kind: str) -> int:
        """Return how often something was refused, from anyone."""
        return sum(count for (_, named), count in self._counts.items() if named == kind)

    def rows(self) -> list[Refusal]:
        """All of it, as viewers and the recording get it."""
        return [Refusal(rank, kind, count) for (rank, kind), count in self._counts.items()]

    def new_sentences(self) -> list[str]:
        """A sentence for each kind that came since."""
        unreported, self._unreported = self._unreported, []
        return [_sentence(*refusal) for refusal in unreported]


def _sentence(rank: int | None, kind: str, why: str) -> str:
    because = f" ({why})" if why else ""
    if rank is None:
        if kind == REST:
            return f"the hub refused {kind}"
        return f"the hub refused a {kind}{because}; it only counts further data of this kind"
    return f"rank {rank} sent an invalid value: {kind}{because}; ddpmon ignores this and similar values"
