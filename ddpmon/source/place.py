"""The machine whose runs the dashboard lists: this machine or another."""

from __future__ import annotations

from typing import Protocol

from ddpmon.attach.start import unwatched
from ddpmon.launch import stop
from ddpmon.runs import Run
from ddpmon.source.attaching import attach
from ddpmon.source.protocol import Source
from ddpmon.source.run_list import AllRuns, Listed, ListedVerdict


class Place(Protocol):
    """A machine's runs, and what a dashboard can do with them. The methods raise DdpmonError."""

    @property
    def name(self) -> str:
        """Return the machine's name for messages; "" stands for this machine, where runs can also be started and
        changed.
        """

    def read(self) -> list[Listed]:
        """Return all runs on this machine, the latest first."""

    def verdict(self, listed: Listed) -> ListedVerdict:
        """Return the verdict of a run that has ended."""

    def attach(self, run: Run) -> Source:
        """Return the source of a run's snapshots."""

    def stop(self, run: Run, now: bool) -> None:
        """Ask a run to stop, without waiting for its end."""


class Here(AllRuns):
    """The runs on this machine, preceded by the training jobs that run here without ddpmon."""

    name = ""

    def read(self) -> list[Listed]:
        listed = super().read()
        jobs = unwatched(each.run for each in listed)
        return [*(Listed(run, "unwatched", pid) for pid, run in jobs), *listed]

    def verdict(self, listed: Listed) -> ListedVerdict:
        if listed.pid is not None:
            ways = f"Enter, or ddpmon attach --pid {listed.pid} in a shell, attaches ddpmon to it"
            return ListedVerdict(f"this job trains without ddpmon; {ways}", "Enter attaches ddpmon to it")
        return super().verdict(listed)

    def attach(self, run: Run) -> Source:
        return attach(run)

    def stop(self, run: Run, now: bool) -> None:
        stop.request_stop(run, now=now)
