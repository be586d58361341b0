"""Compares a run's speed with earlier runs of the same script, and adds an event if it is slower or faster."""

from __future__ import annotations

from ddpmon.analysis.pace import Difference, Pace, difference
from ddpmon.recording.earlier_runs import earlier_paces, pace_of
from ddpmon.store.store import Store

HOLD_STEPS = 50
"""Number of steps for which the speed must differ until an event reports it. The first steps vary, and short slowdowns
are findings."""
HOLD_S = 20.0
"""Seconds for which the speed must differ. The start of a run, or an attach, slows the machine for some seconds."""


class UsualSpeed:
    """Compares the analysed steps with earlier runs after each judgement of the run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._earlier: list[Pace] | None = None
        self._outcome = 0
        """Last reported outcome: 1 if the run is slower, -1 if it is faster, 0 if no event has reported either."""
        self._differs_since: tuple[int, float] | None = None
        """(step, Unix time in seconds) since which the outcome differs from the reported outcome, or None if it does
        not."""

    def add_event_if_changed(self, unix: float) -> None:
        """Add an event if the outcome has differed from the reported outcome for HOLD_STEPS and HOLD_S."""
        summary = self._store.summary
        now = None if summary is None or self._earlier == [] else pace_of(summary)
        if summary is None or now is None:
            return
        if self._earlier is None:
            self._earlier = earlier_paces(self._store.run)
        found, step = difference(now, self._earlier), summary.window[1]
        if found is None or _outcome(found) == self._outcome:
            self._differs_since = None
        elif self._differs_since is None:
            self._differs_since = step, unix
        elif step - self._differs_since[0] >= HOLD_STEPS and unix - self._differs_since[1] >= HOLD_S:
            self._differs_since = None
            # The confidence interval takes too long to be computed at each judgement.
            now = pace_of(summary, self._store.summarised)
            found = None if now is None else difference(now, self._earlier)
            if found is not None and _outcome(found) != self._outcome:
                self._outcome = _outcome(found)
                self._store.add_event(unix, "info", f"this run is {found.sentence(self._store.run.name)}")


def _outcome(found: Difference) -> int:
    return (found.slower_by > 0) - (found.slower_by < 0)
