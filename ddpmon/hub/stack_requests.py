"""Forwards viewers' requests for stacks to ranks, and limits how often each rank is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ddpmon.messages import Where
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry

STACK_INTERVAL_S = 0.5
"""Shortest interval in seconds between two requests to a rank. Viewers that ask within this interval get the same
answer."""
ASK_BY_SIGNAL_S = 1.5
"""Seconds without any message from a rank that was asked, after which the hub sends it a signal instead, if it answers
those."""
NO_ANSWER_S = 6.0
"""Seconds after which a request to a rank counts as unanswered."""


class StackRequests:
    """Asks ranks for their stacks, and remembers when each was asked."""

    def __init__(self, registry: Registry, ask: Callable[[RankProcess, Where], None]) -> None:
        """Start without requests. ask: sends a rank the request, which the rank's background thread answers."""
        self._registry = registry
        self._ask = ask
        self._last: dict[int, float] = {}

    def request_stacks(self, ranks: Sequence[int], now: float) -> None:
        """Ask these ranks for their stacks, or all ranks if the list is empty. Skip ranks that have ended."""
        by_rank = self._registry.process_of_rank
        for rank in dict.fromkeys(ranks) if ranks else list(by_rank):
            process = by_rank.get(rank)
            if process is None or process.gone or not process.greeted:
                continue
            if now - self._last.get(process.id, float("-inf")) < STACK_INTERVAL_S:
                continue
            self._last[process.id] = now
            if process.asked_at is None:
                process.asked_at = now
            self._ask(process, Where(brief=True))

    @staticmethod
    def is_unheard(process: RankProcess, now: float) -> bool:
        """Return whether a rank was asked at least ASK_BY_SIGNAL_S ago and has sent nothing at all since."""
        asked_at = process.asked_at
        return asked_at is not None and now - asked_at >= ASK_BY_SIGNAL_S and process.heard_at < asked_at

    def drop_overdue(self, now: float) -> bool:
        """Mark requests without an answer after NO_ANSWER_S as unanswered, and return whether there was one."""
        gave_up = False
        for process in self._registry.process_of_rank.values():
            if process.asked_at is not None and (process.gone or now - process.asked_at >= NO_ANSWER_S):
                process.asked_at, process.unanswered = None, not process.gone
                gave_up = True
        return gave_up
