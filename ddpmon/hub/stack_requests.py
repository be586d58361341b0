"""Asks ranks where they are when a viewer wants to know, and not more often than a rank may be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry

EVERY_S = 0.5
"""A rank is asked at most this often, however many viewers ask. Who asks in between gets the same answer."""
UNHEARD_S = 1.5
"""A rank that was asked and says nothing at all for so long is asked by a signal, where it offers that."""
GIVE_UP_S = 6.0


class StackRequests:
    """Remembers which rank was asked when. ask(process): sends a rank the question; its sending thread answers."""

    def __init__(self, registry: Registry, ask: Callable[[RankProcess], None]) -> None:
        self._registry = registry
        self._ask = ask
        self._last: dict[int, float] = {}

    def ask(self, ranks: Sequence[int], now: float) -> None:
        """Ask these ranks, or all if none is named. Ranks that are gone or do not exist are passed over."""
        seats = self._registry.seats
        for rank in dict.fromkeys(ranks) if ranks else list(seats):
            process = seats.get(rank)
            if process is None or process.gone or not process.greeted:
                continue
            if now - self._last.get(process.id, float("-inf")) < EVERY_S:
                continue
            self._last[process.id] = now
            if process.asked_at is None:
                process.asked_at = now
            self._ask(process)

    @staticmethod
    def unheard(process: RankProcess, now: float) -> bool:
        """Return whether it was asked and nothing at all was heard of it since."""
        asked_at = process.asked_at
        return asked_at is not None and now - asked_at >= UNHEARD_S and process.heard_at < asked_at

    def drop_overdue(self, now: float) -> bool:
        """Give up on ranks that do not answer; says whether there was one."""
        gave_up = False
        for process in self._registry.seats.values():
            if process.asked_at is not None and (process.gone or now - process.asked_at >= GIVE_UP_S):
                process.asked_at, process.unanswered = None, not process.gone
                gave_up = True
        return gave_up
