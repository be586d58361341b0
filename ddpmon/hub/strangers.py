"""Keeps those who have proved no key from taking all of a hub's files: whoever reaches its port can open connections.

ZeroMQ gives a handshake up after ten seconds and knows no limit until then; where no file is left for a connection of
this machine, it aborts the process.
"""

from __future__ import annotations

from collections import Counter

from ddpmon.hub.connections import Connection
from ddpmon.runs import open_files

MOST = 4096
"""Connections without a proven key: of two thousand hubs that come at once, and as many again."""
SHARE = 4
"""They have at most one of so many of the files that this process may open."""
CALM_S = 60.0
"""They are not reported again before there were not too many for so long."""


class Strangers:
    """Connections of other machines that have proved no key so far."""

    def __init__(self) -> None:
        self.most = min(MOST, open_files.most() // SHARE)
        self._open: dict[Connection, None] = {}
        """The oldest first."""
        self._crowded_at = float("-inf")

    def add(self, connection: Connection) -> str:
        """Another one has come. Where they are too many, half of them are closed; a sentence that says so, once."""
        self._open[connection] = None
        if len(self._open) <= self.most:
            return ""
        self._open = {each: None for each in self._open if not each.has_spoken}
        if len(self._open) <= self.most:
            return ""
        here = Counter(each.address for each in self._open)
        # Those of one address first: a node that is just coming has few.
        crowd = sorted(self._open, key=lambda each: -here[each.address])[: len(self._open) // 2]
        for each in crowd:
            each.close()
            del self._open[each]
        is_news = connection.since - self._crowded_at > CALM_S
        self._crowded_at = connection.since
        address, count = here.most_common(1)[0]
        return (
            f"{sum(here.values()):,} connections to the port for other nodes proved no key, {count:,} of them from "
            f"{address}: half are closed (let a firewall admit the nodes alone)"
        ) * is_news

    def remove(self, connection: Connection) -> None:
        """It has ended."""
        self._open.pop(connection, None)
