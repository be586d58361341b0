"""Tells who is at the other end of a connection, as the kernel knows it: a process can only speak for itself.

The kernel notes who connects to a unix socket. The pid that a rank gives is believed if it is that of the peer, in
this hub's pid namespace or in the peer's own. In three cases the kernel cannot be asked:

- A peer that cannot be seen from here (pid 0: its pid namespace is none of ours) is believed.
- A rank that says it is on another host than this hub is in a container with a host name of its own: its pid is a mere
  name there, which belongs to the process that used it first.
- What the hub of another node passes on, that hub has checked in this way: the key it speaks with was admitted.

What is refused of a peer, as values that cannot be true, is counted, with a sentence for each kind once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddpmon.messages import Refusal
from ddpmon.runs import proc

PID_BITS = 23
"""A pid is at most 1 << 22."""


@dataclass(frozen=True)
class Peer:
    """A process that is connected. pid: as this hub sees it; 0: it cannot."""

    pid: int
    through: int = 0
    """The node whose hub passes on what it says; 0: nobody does."""

    def key(self, pid: int) -> int:
        """A number of a process that speaks by this connection, of which two nodes never have the same."""
        return process_key(pid, self.through)

    def has_pid(self, pid: int) -> bool:
        """Return whether `pid` is its own, here or in its own pid namespace."""
        return self.through > 0 or self.pid == pid or (self.pid > 0 and proc.innermost_pid(self.pid) == pid)

    def launched_as(self, run_id: str, rank: int) -> bool:
        """Return whether it was started as that rank: the environment with which it began says so."""
        if self.through:
            return True
        try:
            variables = proc.environment(self.pid)
        except OSError:
            return False
        return f"DDPMON_RUN_ID={run_id}".encode() in variables and f"RANK={rank}".encode() in variables


def process_key(pid: int, through: int) -> int:
    """Return the pid of a process on this machine; for one of another node, a number that is no pid."""
    return through << PID_BITS | pid


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
