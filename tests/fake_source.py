"""A source whose run is made up by a test."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon.messages import Snapshot, ViewRequest
from ddpmon.runs.logs import Log, Said
from ddpmon.source.protocol import LocalSource, Tape


class FakeSource(LocalSource):
    """A source that returns whatever a test or a demonstration assigns to it."""

    def __init__(self, snapshot: Snapshot | None = None, silent: float = 0.0, stoppable: bool = True) -> None:
        self.current = snapshot
        self.silent = silent
        self.refused = ""
        self.stoppable = stoppable
        self.askable = stoppable
        self.asks: list[list[int]] = []
        self.profiles: list[list[int]] = []
        self.stops: list[bool] = []
        self.said: list[Said] = []
        """Lines that the ranks print next; `logs` returns each of them once."""
        self.tape: Tape | None = None
        self.requested = ViewRequest()
        self.closed = False
        self._log = Log(self._take_said)

    def snapshot(self) -> Snapshot | None:
        return self.current

    def request_view(self, view_request: ViewRequest) -> None:
        self.requested = view_request

    def silent_for(self) -> float:
        return self.silent

    def logs(self) -> Log:
        return self._log

    def _take_said(self) -> list[Said]:
        lines, self.said = self.said, []
        return lines

    def ask(self, ranks: Sequence[int] = (), profile_steps: int = 0, peak_flops: float = 0.0) -> None:
        (self.profiles if profile_steps else self.asks).append(list(ranks))

    def stop(self, now: bool = False) -> None:
        self.stops.append(now)

    def close(self) -> None:
        self.closed = True
