"""Every run of this user, read again only where something can have changed."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon import runs
from ddpmon.errors import RunNotFoundError
from ddpmon.runs import Run


@dataclass(frozen=True)
class Listed:
    """A run and how it stands."""

    run: Run
    state: str
    """As `Run.state` says, and "stopping"."""

    @property
    def runs(self) -> bool:
        """Whether it can be stopped."""
        return self.state in {"running", "stopping"}


class AllRuns:
    """Reads the runs' folder. What run.json says of a run that has ended never changes."""

    def __init__(self) -> None:
        self._ended: dict[str, Listed] = {}

    def read(self) -> list[Listed]:
        """All readable runs, the latest first."""
        try:
            names = sorted(entry.name for entry in runs.runs_dir().iterdir() if (entry / "run.json").exists())
        except OSError:
            return []
        found = []
        for name in names:
            listed = self._ended.get(name)
            if listed is None:
                try:
                    run = runs.load(name)
                except RunNotFoundError:
                    continue  # a damaged folder must not hide the others
                state = run.state()
                listed = Listed(run, "stopping" if state == "running" and run.stopping else state)
                if run.ended:
                    self._ended[name] = listed
            found.append(listed)
        return sorted(found, key=lambda listed: listed.run.created_at, reverse=True)
