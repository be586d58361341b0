"""Lists all runs of this user. Runs that have ended are read once and then cached."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ddpmon import runs
from ddpmon.analysis.verdict import beside_state
from ddpmon.errors import RunNotFoundError
from ddpmon.messages import Finding
from ddpmon.runs import Run, plain_file

_LARGEST = 1 << 26
"""Largest report.json that is read, in bytes."""


@dataclass(frozen=True)
class Listed:
    """A run and its state."""

    run: Run
    state: str
    """The state that `Run.state` returns, or "stopping", or "unwatched" for a job without ddpmon."""
    pid: int | None = None
    """Process id for `ddpmon attach --pid`, if this is a job that trains without ddpmon. `run` then only describes the
    job."""

    @property
    def runs(self) -> bool:
        """Return whether the run can be stopped."""
        return self.state in {"running", "stopping"}


@dataclass(frozen=True)
class ListedVerdict:
    """The verdict of a run that has ended; "" if the run has no report."""

    sentence: str = ""
    brief: str = ""
    """A shorter verdict, for places that also show the run's state."""


_NOT_YET = ListedVerdict(*["ddpmon is still writing its report"] * 2)


class _ReportedRun(msgspec.Struct):
    state: str = ""
    started_at: float = 0.0
    ended_at: float | None = None


class _ReportedSteps(msgspec.Struct):
    count: int = 0


class _Report(msgspec.Struct):
    """The fields of a report.json that the list needs."""

    verdict: str = ""
    run: _ReportedRun = msgspec.field(default_factory=_ReportedRun)
    steps: _ReportedSteps = msgspec.field(default_factory=_ReportedSteps)
    findings: list[Finding] = []


class AllRuns:
    """Reads all runs of this user. It caches runs that have ended until their run.json changes."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[tuple[int, int, int], Listed]] = {}
        self._verdicts: dict[str, ListedVerdict] = {}

    def read(self) -> list[Listed]:
        """Return all readable runs, the latest first."""
        rows = []
        for run_id in runs.all_ids():
            try:
                listed = self._read(run_id)
            except (OSError, RunNotFoundError):
                continue  # a damaged folder must not hide the other runs
            rows.append(listed)
        return sorted(rows, key=lambda listed: listed.run.created_at, reverse=True)

    def _read(self, run_id: str) -> Listed:
        written = (runs.run_dir(run_id) / "run.json").stat()
        stamp = (written.st_mtime_ns, written.st_ino, written.st_size)
        cached = self._ended.get(run_id)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        run = runs.load(run_id)
        state = run.state()
        listed = Listed(run, "stopping" if state == "running" and run.winding_down else state)
        if run.ended:
            self._ended[run_id] = stamp, listed
        return listed

    def verdict(self, listed: Listed) -> ListedVerdict:
        """Return the verdict from the report of a run that has ended, or an empty verdict if there is no report."""
        run = listed.run
        if listed.runs:
            return ListedVerdict()
        cached = self._verdicts.get(run.id)
        if cached is None:
            # Ask for the supervisor before reading the report. Otherwise a report that the supervisor writes in between
            # would be cached as missing.
            comes = run.supervised()
            cached = _verdict(run)
            if not cached.sentence and comes:
                return _NOT_YET
            self._verdicts[run.id] = cached
        return cached


def _verdict(run: Run) -> ListedVerdict:
    path = runs.run_dir(run.id) / "report.json"
    try:
        report = msgspec.json.decode(plain_file.content(path, _LARGEST), type=_Report)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ListedVerdict(run.error or "", run.error or "")
    brief = beside_state(report.verdict, report.run.state, report.findings, report.steps.count)
    return ListedVerdict(report.verdict, brief)
