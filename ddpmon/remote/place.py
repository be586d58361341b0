"""The runs of another machine, over the line of a source that is open there."""

from __future__ import annotations

from ddpmon.remote.source import RemoteSource
from ddpmon.runs import Run
from ddpmon.source import Source
from ddpmon.source.run_list import Listed, ListedVerdict


class RemotePlace:
    """The other machine of a source, over the same line."""

    def __init__(self, source: RemoteSource) -> None:
        self._source = source

    @property
    def name(self) -> str:
        return self._source.address.where

    def read(self) -> list[Listed]:
        return [listed for listed, _ in self._source.runs()]

    def verdict(self, listed: Listed) -> ListedVerdict:
        return next(
            (reported for each, reported in self._source.runs() if each.run.id == listed.run.id), ListedVerdict()
        )

    def attach(self, run: Run) -> Source:
        return RemoteSource.beside(self._source.address.of(run.id))

    def stop(self, run: Run, now: bool) -> None:
        self._source.stop_there(run.id, now)
