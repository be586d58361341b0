"""The machine whose runs are listed: this one, or another."""

from __future__ import annotations

from typing import Protocol

from ddpmon.attach.start import unwatched
from ddpmon.launch import stop
from ddpmon.runs import Run
from ddpmon.source.attaching import attach
from ddpmon.source.protocol import Source
from ddpmon.source.run_list import AllRuns, Listed, ListedVerdict


class Place(Protocol):
    """Actions of a dashboard on the runs of a machine beside the one that it shows. Errors are DdpmonError."""

    @property
    def name(self) -> str:
        """Return how the machine is called in questions; "": this one, where runs can be started and changed too."""

    def read(self) -> list[Listed]:
        """All runs there, the latest first."""

    def verdict(self, listed: Listed) -> ListedVerdict:
        """The verdict of a run that has ended."""

    def attach(self, run: Run) -> Source:
        """Return where to get a run's snapshots."""

    def stop(self, run: Run, now: bool) -> None:
        """Ask a run to stop; returns at once."""


class Here(AllRuns):
    """This machine: its runs, before them the jobs that train here without ddpmon."""

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
        stop.request(run, now=now)
