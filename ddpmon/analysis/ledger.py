"""Records of all findings of an attempt, each with its first and last step, its episodes and its cost.

A judgement sees only a window of the last steps. The ledger collects the findings of each judgement and keeps one
record of each finding for as long as the run lasts. Screens, reports and alerts all show these records, so they agree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ddpmon.analysis.episodes import GRAVEST_FIRST, RETURN_S, EpisodeRecord, cost_s, visible_findings
from ddpmon.analysis.kinds import identity_of, kind_of
from ddpmon.messages import Finding, SmallCount, StepCount

MAX_ENDED_RECORDS = 64
"""Maximum number of records of ended findings. Beyond it, the records with the least cost are dropped."""
MAX_EARLIER_EPISODES = 2_000
"""Maximum number of episodes of earlier attempts, which replays need. Beyond it, the oldest episodes are dropped."""
MAX_EPISODES = 32
"""Maximum number of episodes in a record. Beyond it, the oldest two episodes are merged."""
EDGE_STEPS = 10
"""Number of first steps of the window that are unreliable as a finding's first step, because smoothing hides changes
there."""
COST_INTERVAL_S = 10.0
"""Minimum time in seconds between two writes of a row if only its cost has grown."""


class Judged(msgspec.Struct, frozen=True):
    """The progress of a hub's judgements."""

    attempt: SmallCount = 0
    step: StepCount = 0
    """The last step of all ranks that was judged."""
    over: bool = False
    """True once the end of the run was judged."""


class Judgement(NamedTuple):
    """The moment of a judgement, and the window's steps."""

    unix: float
    first_step: int
    """The first step of the window."""
    last_step: int
    """The last step of the window."""


Row = tuple[int, list[EpisodeRecord]]
"""The number of a record and its episodes; without episodes, the record was dropped."""


class Ledger:
    """The records of an attempt's findings; findings of equal `Kind.identity` share a record."""

    def __init__(self, attempt: int = 0, episodes: Iterable[EpisodeRecord] = (), judged: Judged | None = None) -> None:
        """Start an empty ledger, or continue with those episodes of a recording that belong to the attempt."""
        self.attempt = attempt
        self.judged = judged if judged is not None and judged.attempt == attempt else Judged(attempt)
        self._earlier: list[EpisodeRecord] = []
        self._records: dict[Hashable, list[EpisodeRecord]] = {}
        self._numbers = 0
        self._changed: dict[int, list[EpisodeRecord]] = {}
        self._costs_written_at = 0.0
        self._reported: set[Hashable] = set()
        """Identities of the lasting findings in the last judgement."""
        for episode in sorted(episodes, key=attrgetter("record", "number")):
            self._numbers = max(self._numbers, episode.record)
            if episode.attempt == attempt:
                key = identity_of(episode.finding)
                if key in self._records and self._records[key][0].record != episode.record:
                    self._start_new_record(key)
                self._records.setdefault(key, []).append(episode)
            else:
                self._earlier.append(episode)

    def begin_attempt(self, attempt: int) -> None:
        """Start new records, because the ranks were restarted and count their steps from 1 again."""
        if attempt == self.attempt:  # The attempt is the same; only its world size became known.
            return
        self._write_all()
        self._earlier = self.episodes()[-MAX_EARLIER_EPISODES:]
        self.attempt, self.judged = attempt, Judged(attempt)
        self._records, self._reported = {}, set()

    def enter_findings(self, findings: Sequence[Finding], moment: Judgement, *, over: bool) -> None:
        """Enter the findings of a judgement.

        Args:
            findings: The findings, worst first.
            moment: The moment of the judgement.
            over: True if the run has ended.

        """
        self.judged = Judged(self.attempt, moment.last_step, over)
        lasting = [finding for finding in findings if finding.is_lasting]
        for finding in findings:
            if not finding.is_lasting:
                self._enter_ended(finding, moment)
        for place, finding in enumerate(lasting):
            self._enter_lasting(finding, place, moment)
        self._reported = {identity_of(finding) for finding in lasting}
        for key, episodes in self._records.items():
            if episodes[-1].is_lasting and key not in self._reported:
                self._end(episodes[-1], None, moment)
        for finding in lasting:
            self._replace_parts(finding, moment)
        self._drop_cheapest()
        if over or moment.unix - self._costs_written_at >= COST_INTERVAL_S:
            self._costs_written_at = moment.unix
            self._write_all(lasting=not over)

    def episodes(self) -> list[EpisodeRecord]:
        """Return every episode of every attempt."""
        return [*self._earlier, *(episode for episodes in self._records.values() for episode in episodes)]

    def lasting_findings(self, last_step: int) -> list[Finding]:
        """Return the lasting findings, worst first, for the first judgement of a hub that was restarted.

        Args:
            last_step: Last step of the window. Later findings are left out: a recording may lack its last steps.

        """
        lasting = [episodes[-1].finding for _, episodes in self._lasting()]
        return [finding for finding in lasting if (finding.since_step or 0) <= last_step]

    def findings(self, seconds: float) -> list[Finding]:
        """Return the findings of the records as people read them: lasting ones, worst first, then ended ones by cost.

        Args:
            seconds: Seconds that the run has taken. An ended finding keeps its severity if it cost a relevant share of
                them.

        """
        return visible_findings(
            [episodes for _, episodes in self._lasting()], self._ended_findings(), seconds, over=self.judged.over
        )

    def take_changed(self) -> list[Row]:
        """Return the records that changed since the previous call, for the recording."""
        changed, self._changed = self._changed, {}
        return list(changed.items())

    def _lasting(self) -> list[tuple[Hashable, list[EpisodeRecord]]]:
        lasting = [(key, episodes) for key, episodes in self._records.items() if episodes[-1].is_lasting]
        return sorted(lasting, key=lambda pair: pair[1][-1].place)

    def _ended_findings(self) -> Iterator[list[EpisodeRecord]]:
        return (episodes for episodes in self._records.values() if not episodes[-1].is_lasting)

    def _enter_lasting(self, finding: Finding, place: int, moment: Judgement) -> None:
        key = identity_of(finding)
        episodes = self._records.setdefault(key, [])
        last = episodes[-1] if episodes else None
        if last is None or not _goes_on(last, finding, moment):
            if last is not None and last.is_lasting:
                self._end(last, None, moment)
            if last is not None and _names_others(last.finding, finding):
                self._start_new_record(key)
                episodes = self._records.setdefault(key, [])
            last = self._begin(episodes, finding, moment)
        elif not last.is_lasting:
            last.ended = last.ended_at = last.replaced_at = None
            self._changed[last.record] = episodes
        while len(episodes) > 1 and episodes[-2].end_step >= (finding.since_step or moment.last_step):
            _merge(episodes, -2)  # The finding had not ended: merge its last two episodes.
            last.times = 1
        _add_cost(last, finding, moment)
        if _is_cut_off(finding, last, moment):
            known = last.finding
            if (finding.kind, finding.phase) == (known.kind, known.phase):  # The words name the first step.
                finding = replace(finding, text=known.text, brief=known.brief, lead=known.lead)
            finding = replace(finding, since_step=known.since_step)
        if _differs(finding, last.finding):
            self._changed[last.record] = episodes
        if GRAVEST_FIRST.index(finding.severity) < GRAVEST_FIRST.index(last.severity):
            last.severity, last.grave_at = finding.severity, moment.unix
        if finding.phase is not None and finding.phase not in last.phases:
            last.phases.append(finding.phase)
        last.finding, last.place, last.last_step = finding, place, moment.last_step

    def _start_new_record(self, key: Hashable) -> None:
        """Close the record of an identity: its next episode is about other ranks and begins a new record."""
        episodes = self._records.pop(key)
        self._records[key, episodes[0].record] = episodes

    def _enter_ended(self, finding: Finding, moment: Judgement) -> None:
        key, until = identity_of(finding), finding.until_step or 0
        since = until if finding.since_step is None else finding.since_step
        episodes = self._records.setdefault(key, [])
        same = next((one for one in reversed(episodes) if one.begin_step <= until and one.end_step >= since), None)
        if same is None:
            if episodes and since <= episodes[-1].end_step:
                return  # The finding is older than the known episodes, so its own episode was merged or dropped.
            same = self._begin(episodes, replace(finding, until_step=None), moment)
        elif same.ended is not None and (same.ended == finding or _is_cut_off(finding, same, moment)):
            return  # The end is already known, or the words describe only a part of the episode.
        self._end(same, finding, moment)

    def _begin(self, episodes: list[EpisodeRecord], finding: Finding, moment: Judgement) -> EpisodeRecord:
        if not episodes:
            self._numbers += 1
        record = episodes[0].record if episodes else self._numbers
        begin = moment.first_step if finding.since_step is None else finding.since_step
        new = EpisodeRecord(
            record, episodes[-1].number + 1 if episodes else 1, self.attempt, finding, begin, moment.last_step,
            moment.unix, finding.severity, moment.unix, phases=[] if finding.phase is None else [finding.phase],
        )  # fmt: skip
        episodes.append(new)
        if len(episodes) > MAX_EPISODES:
            _merge(episodes, 0)
        self._changed[record] = episodes
        return new

    def _end(self, episode: EpisodeRecord, finding: Finding | None, moment: Judgement) -> None:
        """End an episode.

        Args:
            episode: The episode.
            finding: The finding with the words and steps of its end; None: the finding is no longer reported.
            moment: The moment of the judgement.

        """
        if finding is not None:
            _add_cost(episode, finding, moment)
        if finding is None or _is_cut_off(finding, episode, moment):
            until = episode.last_step if finding is None else finding.until_step or 0
            lead = f"until step {until:,}: " if until else "before the first step: "
            first = episode.finding
            finding = replace(
                first, text=lead + first.text, until_step=until, lead=len(lead) + first.lead if first.lead else 0,
                brief=lead + first.brief if first.brief else "",
            )  # fmt: skip
        episode.ended = finding
        episode.ended_at = moment.unix if episode.ended_at is None else episode.ended_at
        self._changed[episode.record] = self._records[identity_of(episode.finding)]

    def _replace_parts(self, whole: Finding, moment: Judgement) -> None:
        """Hide episodes that a lasting finding covers, so that one problem is shown once."""
        key = identity_of(whole)
        begin = self._records[key][-1].begin_step
        for other, episodes in self._records.items():
            last = episodes[-1]
            if other == key or other in self._reported or last.replaced_at is not None:
                continue
            most_of_it = begin <= (last.begin_step + last.end_step) / 2
            if most_of_it and _is_part(last.finding, whole):
                last.replaced_at = moment.unix
                self._changed[last.record] = episodes

    def _drop_cheapest(self) -> None:
        ended = [(key, episodes) for key, episodes in self._records.items() if not episodes[-1].is_lasting]
        ended.sort(key=lambda pair: (cost_s(pair[1]) or 0.0, pair[1][-1].ended_at or 0.0))
        for key, episodes in ended[: max(0, len(ended) - MAX_ENDED_RECORDS)]:
            del self._records[key]
            self._changed[episodes[0].record] = []

    def _write_all(self, *, lasting: bool = False) -> None:
        for episodes in self._records.values():
            if episodes[-1].is_lasting or not lasting:
                self._changed[episodes[0].record] = episodes


def _is_cut_off(finding: Finding, episode: EpisodeRecord, moment: Judgement) -> bool:
    """Return whether a finding seems to begin with the window although it began before, as after a hub's restart."""
    since, known = finding.since_step, episode.finding.since_step
    return since is not None and known is not None and known < since <= moment.first_step + EDGE_STEPS


def _goes_on(last: EpisodeRecord, finding: Finding, moment: Judgement) -> bool:
    """Return whether a lasting finding continues the last episode, even if the episode seemed to have ended."""
    if _names_others(last.finding, finding):
        return False
    if finding.since_step is None:
        return last.ended_at is None or moment.unix - last.ended_at < RETURN_S.enter
    return finding.since_step <= last.end_step + 1


def _names_others(before: Finding, now: Finding) -> bool:
    """Return whether a finding about the world names entirely other ranks than before, as a second hang does."""
    return bool(before.ranks) and bool(now.ranks) and set(before.ranks).isdisjoint(now.ranks)


def _differs(now: Finding, before: Finding) -> bool:
    """Return whether two findings differ in more than their numbers."""
    named = attrgetter("kind", "severity", "ranks", "phase", "subject", "since_step")
    return bool(named(now) != named(before))


def _is_part(part: Finding, whole: Finding) -> bool:
    """Return whether `part` is the same problem as `whole`, which names all of its ranks."""
    kind, family = kind_of(whole), kind_of(part).family
    same = bool(family) and family == kind.family and set(part.ranks) <= set(whole.ranks)
    return same or kind.leaves_out(whole, replace(part, until_step=None))


def _add_cost(episode: EpisodeRecord, finding: Finding, moment: Judgement) -> None:
    """Update the first step whose cost is counted, and the cost.

    A finding contains either its cost since its first step, or the mean cost of a step in the window.
    """
    last = moment.last_step if finding.until_step is None else finding.until_step
    if finding.cost_s is not None:
        since = episode.begin_step if finding.since_step is None else finding.since_step
        if _is_cut_off(finding, episode, moment):
            share = (since - episode.begin_step) / max(1, episode.last_step - episode.begin_step + 1)
            episode.cost_s = (episode.cost_s or 0.0) * min(1.0, share) + finding.cost_s
        else:
            episode.begin_step, episode.cost_s = since, finding.cost_s
    elif finding.cost_ms is not None:
        counted = episode.begin_step - 1 if episode.cost_s is None else episode.last_step
        episode.cost_s = (episode.cost_s or 0.0) + finding.cost_ms * max(0, last - counted) / 1e3


def _merge(episodes: list[EpisodeRecord], place: int) -> None:
    """Merge an episode into the next one, which keeps its words."""
    first, second = episodes[place], episodes[place + 1]
    costs = [episode.cost_s for episode in (first, second) if episode.cost_s is not None]
    since = first.finding.since_step
    second.finding = replace(second.finding, since_step=since)
    second.ended = None if second.ended is None else replace(second.ended, since_step=since)
    second.begin_step, second.reported_at = first.begin_step, first.reported_at
    second.cost_s = sum(costs) if costs else None
    second.times += first.times
    second.phases = list(dict.fromkeys((*first.phases, *second.phases)))
    if GRAVEST_FIRST.index(first.severity) < GRAVEST_FIRST.index(second.severity):
        second.severity, second.grave_at = first.severity, first.grave_at
    del episodes[place]
