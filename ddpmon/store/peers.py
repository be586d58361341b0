"""Checks that a process sends messages only in its own name.

The kernel records which process, the peer, connects to a unix socket. The pid in a rank's message is accepted if it is
the peer's pid, in this hub's pid namespace or in the peer's own. In three cases this check is impossible:

- A peer is trusted if this hub cannot see it (pid 0, because its pid namespace is not below this hub's).
- A rank that reports another host than this hub's is in a container with its own host name. Its pid is then used only
  as a name, which belongs to the process that used it first.
- Messages from another node were checked by the hub of that node, whose key was admitted.

Refused messages and impossible values are counted, and each kind is reported once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddpmon import proc
from ddpmon.messages import Refusal

PID_BITS = 23
"""Number of bits of a pid, which is at most 1 << 22."""


@dataclass(frozen=True)
class Peer:
    """The process at the other end of a connection."""

    pid: int
    """Pid in this hub's pid namespace, or 0 if this hub cannot see the process."""
    through: int = 0
    """Node whose hub passes on the messages of the process, or 0 if it is connected directly."""

    def process_key(self, pid: int) -> int:
        """Return a key, unique over all nodes, for a process that sends through this connection."""
        return process_key(pid, self.through)

    def has_pid(self, pid: int) -> bool:
        """Return whether `pid` is the pid of the peer, in this hub's pid namespace or in the peer's own."""
        return self.through > 0 or self.pid == pid or (self.pid > 0 and proc.innermost_pid(self.pid) == pid)

    def launched_as(self, run_id: str, rank: int) -> bool:
        """Return whether the process was started as this rank of this run, according to its initial environment."""
        if self.through:
            return True
        variables = proc.environment(self.pid)
        return variables.get("DDPMON_RUN_ID") == run_id and variables.get("RANK") == str(rank)


def process_key(pid: int, through: int) -> int:
    """Return a unique key of a process: its pid on this machine, or a number above all pids on another node."""
    return through << PID_BITS | pid


MAX_REFUSAL_COUNTS = 256
"""Largest number of counts, one per rank and kind of refusal. Further kinds are counted together as REST."""
STRANGER = "message of a process that is not a rank of this run"
NO_KEY = "connection of a hub with an unknown key"
NO_MESSAGE = "frame that is not a message of ddpmon"
REST = "data of other kinds"


class Refusals:
    """Counts of refused data by (rank, kind). The rank is None for a process that is not a rank."""

    def __init__(self, rows: Iterable[Refusal] = ()) -> None:
        self._counts = {(row.rank, row.what): row.count for row in rows}
        self._unreported: list[tuple[int | None, str, str]] = []

    def add_refusal(self, kind: str, rank: int | None = None, why: str = "") -> None:
        """Count one more refusal.

        Args:
            kind: Kind of the refused data.
            rank: The sender, or None if it is not a rank.
            why: Reason. The first refusal of a kind is reported with its reason.

        """
        key = (rank, kind)
        if key not in self._counts and len(self._counts) >= MAX_REFUSAL_COUNTS:
            key = (None, REST)
        if key not in self._counts:
            printable = "".join(character if character.isprintable() else "?" for character in why)
            self._unreported.append((*key, printable))
        self._counts[key] = self._counts.get(key, 0) + 1

    def count_of(self, kind: str) -> int:
        """Return how often a kind of data was refused, over all senders."""
        return sum(count for (_, named), count in self._counts.items() if named == kind)

    def rows(self) -> list[Refusal]:
        """Return all counts as rows for viewers and the recording."""
        return [Refusal(rank, kind, count) for (rank, kind), count in self._counts.items()]

    def new_sentences(self) -> list[str]:
        """Return a sentence for each kind that was refused for the first time since the last call."""
        unreported, self._unreported = self._unreported, []
        return [_sentence(*refusal) for refusal in unreported]


def _sentence(rank: int | None, kind: str, why: str) -> str:
    because = f" ({why})" if why else ""
    if rank is None:
        if kind == REST:
            return f"the hub refused {kind}"
        return f"the hub refused a {kind}{because}; it only counts further data of this kind"
    return f"rank {rank} sent an invalid value: {kind}{because}; ddpmon ignores this and similar values"
