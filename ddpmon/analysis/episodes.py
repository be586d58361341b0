"""Records of findings, which people read during the run or later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.slowness.slowdown import WORTH, gain_without
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import format_count, lost_time
from ddpmon.messages import Episode, Finding, Moment, Seconds, Severity, SmallCount, StepCount, StepNumber, require

GRAVEST_FIRST = ("critical", "warn", "info")
RETURN_S = Threshold(
    60.0,
    of="seconds for which ddpmon waits before it announces that a finding has ended or costs more",
    why="A judgement call: if a finding returns within a minute, noise had hidden it, and a second message "
    "would not help.",
)


class EpisodeRecord(msgspec.Struct):
    """One episode of a record, as a row of the recording."""

    record: StepNumber
    """Number of the record in the recording, counted from 1."""
    number: StepNumber
    """Number of the episode in its record, counted from 1."""
    attempt: SmallCount
    finding: Finding
    """The finding as last reported while it lasted. Its since_step is the earliest first step that was ever
    reported."""
    begin_step: StepCount
    """The first step whose cost is counted: since_step, or the first step of the window if since_step is None."""
    last_step: StepCount
    """The last step at which the finding was reported."""
    reported_at: Moment
    """Moment of the first report."""
    severity: Severity
    """The highest severity of the episode so far."""
    grave_at: Moment
    """Moment when the finding first had its most severe severity."""
    ended: Finding | None = None
    """The finding as reported once it had ended; None while it lasts."""
    ended_at: Moment | None = None
    """Moment when its end was noticed; None while it lasts."""
    replaced_at: Moment | None = None
    """Moment when another finding that covers its steps and ranks replaced it. From then on, the episode is not
    shown."""
    cost_s: Seconds | None = None
    """Cost of all steps of the episode in seconds; None: the cost was not measured."""
    phases: list[str] = []
    """Phases in the order in which they were reported."""
    times: StepNumber = 1
    """Number of episodes that were merged into this one."""
    place: int = 0
    """Position among the lasting findings of the last judgement that reported it; the worst finding has 0."""

    def __post_init__(self) -> None:
        require((self.ended is None) == (self.ended_at is None), "end of a finding", self.ended_at)
        require(self.finding.until_step is None, "last step of a finding that lasts", self.finding.until_step)
        require(self.ended is None or self.ended.until_step is not None, "last step of a finding", None)

    @property
    def is_lasting(self) -> bool:
        """Return whether the finding still lasts."""
        return self.ended is None

    @property
    def end_step(self) -> int:
        """Return the last step of the episode so far, or its final last step once it has ended."""
        return self.last_step if self.ended is None else self.ended.until_step or 0

    def as_of(self, unix: float, step: int) -> EpisodeRecord | None:
        """Return the episode as it was at an earlier moment; None if the episode was not reported yet, or already
        replaced.

        Only the words and evidence of the last report are recorded; `as_of_step` is the step that they describe.
        """
        if self.reported_at > unix or (self.replaced_at is not None and self.replaced_at <= unix):
            return None
        if self.ended_at is not None and self.ended_at <= unix:
            return replace(self, replaced_at=None)
        severity = self.finding.severity if unix >= self.grave_at else "info"
        share = (step - self.begin_step + 1) / max(1, self.end_step - self.begin_step + 1)
        cost_s = None if self.cost_s is None else self.cost_s * min(1.0, max(0.0, share))
        then = replace(self.finding, severity=severity)
        if then.evidence and step < self.last_step:
            evidence = {"as_of_step": self.last_step, **then.evidence}
            then = replace(then, evidence=evidence)
        return replace(
            self, finding=then, ended=None, ended_at=None, replaced_at=None, last_step=step, cost_s=cost_s
        )  # fmt: skip


def as_of(episodes: Iterable[EpisodeRecord], unix: float, attempt: int, step: int, seconds: float) -> list[Finding]:
    """Return the findings of an attempt as people read them at a moment of the past.

    Args:
        episodes: All episodes of the run.
        unix: The moment, Unix seconds.
        attempt: The attempt at that moment.
        step: The step that its ranks had reached.
        seconds: Time in seconds that the run had taken.

    """
    records: dict[int, list[EpisodeRecord]] = {}
    for episode in episodes:
        then = episode.as_of(unix, step) if episode.attempt == attempt else None
        if then is not None:
            records.setdefault(episode.record, []).append(then)
    lasting = [record for record in records.values() if record[-1].is_lasting]
    lasting.sort(key=lambda record: (GRAVEST_FIRST.index(record[-1].finding.severity), -(cost_s(record) or 0.0)))
    return visible_findings(lasting, (record for record in records.values() if not record[-1].is_lasting), seconds)


def visible_findings(
    lasting: Iterable[list[EpisodeRecord]], ended: Iterable[list[EpisodeRecord]], seconds: float, *, over: bool = False
) -> list[Finding]:
    """Return one finding to show for each record; see `Ledger.findings`."""
    ended = (record for record in ended if kind_of(record[-1].finding).stays_told)
    costliest = sorted(ended, key=lambda record: (-(cost_s(record) or 0.0), -(record[-1].ended_at or 0.0)))
    remaining = ([episode for episode in record if episode.replaced_at is None] for record in (*lasting, *costliest))
    return [_shown(record, seconds, over=over) for record in remaining if record]


def _shown(record: Sequence[EpisodeRecord], seconds: float, *, over: bool) -> Finding:
    last, cost = record[-1], cost_s(record)
    finding = last.finding if last.ended is None else last.ended
    severity = finding.severity
    if over or last.ended is not None:
        gravest = min((episode.severity for episode in record), key=GRAVEST_FIRST.index)
        worth = cost is not None and WORTH.is_reached(gain_without(cost, seconds))
        severity = gravest if worth else "info" if last.ended is not None else severity
    times = sum(episode.times for episode in record)
    text = finding.text
    if cost is not None and times > 1:
        text += f"; {format_count(times, 'time')}, {lost_time(cost)} in all"
    elif cost is not None and last.ended is not None:
        text += f"; it cost {lost_time(cost)}"
    episodes: list[Episode] = []
    for episode in record:
        words = episode.ended or episode.finding
        alone = Episode(words.since_step, words.until_step, episode.cost_s, episode.phases, episode.times)
        episodes += words.episodes or [alone]
    return replace(
        finding, text=text, severity=severity, cost_s=cost, episodes=episodes, reported_at=record[0].reported_at,
        ended_at=last.ended_at,
    )  # fmt: skip


def cost_s(record: Iterable[EpisodeRecord]) -> float | None:
    """Return the seconds that the episodes of a record cost together; None if no cost was measured."""
    costs = [episode.cost_s for episode in record if episode.cost_s is not None and episode.replaced_at is None]
    return sum(costs) if costs else None
