"""Writes a run as lines of text, for places without a dashboard: a batch job, a pipe, the log of a CI job."""

from __future__ import annotations

import time

from msgspec.structs import replace

from ddpmon.analysis.words import duration, format_count
from ddpmon.messages import END_STATES, Event, Snapshot, models_with_loss
from ddpmon.plain import plain

STALE_S = 3.0
FAILURE_S = 10.0
"""Seconds for which a failure is not printed while the run ends, because its logs often show another cause."""
_MARKS = {"info": "·", "warn": "!", "critical": "!!"}


def state_line(snapshot: Snapshot) -> str:
    """Return a line with state, progress and speed, without values that were not measured."""
    parts = [f"{_clock(snapshot.at)}  {plain(snapshot.state):<7}"]
    if snapshot.step:
        total = f"/{snapshot.total_steps:,}" if snapshot.total_steps else ""
        parts.append(f"step {snapshot.step:,}{total}")
    if snapshot.training_epoch is not None:
        epochs = f"/{snapshot.training_epochs:,}" if snapshot.training_epochs else ""
        parts.append(f"epoch {snapshot.training_epoch:,}{epochs}")
    if snapshot.eta_s is not None:
        parts.append(f"ETA {duration(snapshot.eta_s)}")
    if snapshot.loss is not None:
        several = len(models_with_loss(snapshot))
        parts.append(f"loss {snapshot.loss:.4g}{f' (sum of {several} models)' if several > 1 else ''}")
    if snapshot.step_ms_p50 is not None:
        parts.append(f"{snapshot.step_ms_p50:.4g} ms/step")
    if snapshot.samples_per_s is not None:
        parts.append(f"{snapshot.samples_per_s:,.0f} samples/s")
    if snapshot.wait_share is not None:
        parts.append(f"wait {snapshot.wait_share:.0%}")
    if snapshot.records_lost:
        parts.append(f"{format_count(snapshot.records_lost, 'record')} lost")
    return "  ".join(parts).rstrip()


def event_line(event: Event) -> str:
    """Return a line for an event."""
    return f"{_clock(event.at)}  {_MARKS.get(event.severity, '·')} {plain(event.text)}"


class Lines:
    """Selects the lines to print for each snapshot: the state every few seconds, and verdicts and events once."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self._next_at = 0.0
        self._state = ""
        self._verdict = ""
        self._topic: list[str] = []
        self._events: set[tuple[float, str]] = set()
        self._told_at = 0.0
        """Time of the snapshot for which lines were last returned, as Unix time."""
        self._state_line = ""
        self._failing_since: float | None = None
        """Time of the first snapshot with a failed rank in a run that has not ended, on the clock of the argument `at`
        of `of`."""
        self._withheld: set[str] = set()
        """Sentences about the failure of a run that has not ended. These sentences are not printed yet."""
        self._measured = ""

    def of(self, snapshot: Snapshot | None, at: float, silent_s: float = 0.0, refused: str = "") -> list[str]:
        """Return the lines to print at this moment.

        Args:
            snapshot: The newest snapshot, if there is one.
            at: Now, in seconds of a clock that does not go back.
            silent_s: Seconds since the hub's last answer. After STALE_S, a message replaces the state.
            refused: Reason why the hub's answers cannot be used, or "".

        """
        if refused or (snapshot is not None and silent_s > STALE_S):
            if at < self._next_at:
                return []
            self._next_at = at + self.every_s
            why = plain(refused) or f"no answer from the hub for {silent_s:.0f} s"
            return [f"{_clock(time.time())}  stale    {why}"]
        if snapshot is None:
            return []
        self._withhold(snapshot, at)
        shown = [event for event in snapshot.events if not self._is_withheld(event.text)]
        new_events = [event for event in shown if (event.at, event.text) not in self._events]
        lines = [event_line(replace(event, at=self._line_at(event.at, snapshot.at))) for event in new_events]
        self._told_at = snapshot.at
        self._events = {(event.at, event.text) for event in shown}
        if snapshot.measured and snapshot.measured != self._measured:
            self._measured = snapshot.measured
            lines.append(f"{_clock(snapshot.at)}  {_MARKS['info']} {plain(snapshot.measured)}")
        repeats = at >= self._next_at and snapshot.state not in END_STATES
        due = repeats or snapshot.state != self._state
        if due:
            self._next_at = at + self.every_s
            self._state = snapshot.state
            if (line := state_line(snapshot)) != self._state_line:  # A busy hub may have sent nothing new.
                self._state_line = line
                lines.append(line)
        # Compare topics, because the numbers in a verdict vary. A verdict that becomes clearly worse is an event.
        topic = snapshot.verdict_facts.topic if snapshot.verdict_facts else []
        changed = topic != self._topic if topic else due and snapshot.verdict != self._verdict
        if snapshot.verdict and (changed or not self._verdict) and not self._is_withheld(snapshot.verdict):
            self._verdict, self._topic = snapshot.verdict, topic
            # If an event has the same text, it was printed already.
            if not any(event.text == snapshot.verdict for event in snapshot.events):
                lines.append(f"{_clock(snapshot.at)}  {_MARKS.get(snapshot.severity, '·')} {plain(snapshot.verdict)}")
        return lines

    def _withhold(self, snapshot: Snapshot, at: float) -> None:
        """Record sentences about a failure that are not printed yet, because the run's end may correct them."""
        if snapshot.state in END_STATES:
            self._withheld.discard(snapshot.verdict)
            return
        failures = {finding.text for finding in snapshot.findings if finding.explains == "failed"}
        if self._failing_since is None or not failures:
            self._failing_since = at if failures else None
        is_ending = failures and at - (self._failing_since or at) < FAILURE_S
        self._withheld = self._withheld | failures if is_ending else set()

    def _is_withheld(self, sentence: str) -> bool:
        return sentence in self._withheld

    def _line_at(self, happened_at: float, shown_at: float) -> float:
        """Return the time to print with an event. It is later than the event if printed times would go back
        otherwise.
        """
        return happened_at if happened_at >= self._told_at else min(self._told_at, shown_at)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
