"""Restores the hub's store as it was at the end of a recording, with the same analysis as in the hub."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ddpmon.analysis.ledger import Ledger
from ddpmon.analysis.over_time.cells import BINS_PER_RESOLUTION
from ddpmon.analysis.over_time.heat import Heat
from ddpmon.analysis.processes.waiting import Waiting
from ddpmon.analysis.steps.pauses import PauseFilter
from ddpmon.analysis.steps.step_sums import SinceStart
from ddpmon.analysis.steps.table import Table, concatenate_rows, steps_of
from ddpmon.errors import RecordingError
from ddpmon.messages import END_STATES, MAX_STEP, MAX_US
from ddpmon.recording.checked import UNREADABLE
from ddpmon.recording.playback import TICK_S, Playback
from ddpmon.recording.recorder import Checkpoint
from ddpmon.recording.recording import Recording
from ddpmon.store.endings import whole_ending
from ddpmon.store.histories import Histories
from ddpmon.store.intake import WINDOW_S, WINDOW_STEPS
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

SAMPLES_S, SAMPLES_MOST = 4096, 200_000
"""Samples that are read for the charts of the Devices screen: how far back in seconds, and their largest number over
all ranks."""
REPORT_RECORDS = 400_000
"""Largest number of step records over which the means of a report are computed. Reading them takes about two
seconds."""
HEAT_RECORDS = 100_000
"""Number of step records from which a heat map of the whole run is made. Reading them takes half a second."""
CHUNK_STEPS = 2000
JUDGED_RECORDS = 400_000
"""Number of the last step records that are judged if the hub was killed. Reading them takes some seconds."""
JUDGEMENTS = 200
"""Largest number of judgements of a restored run. A hub judges a long run more often, but this number still gives
several judgements per window of steps."""


def restored_store(recording: Recording, records: int | None = None) -> Store:
    """Return the hub's store at the end of a recording.

    Args:
        recording: The recording.
        records: Largest number of step records over which means are computed, or None for a window of steps.

    Raises:
        RecordingError: the recording has impossible values.

    """
    database = recording.database
    before = database.salvaged
    recording.steps.unread.clear()
    try:
        store = _store(recording, records)
        return store if database.salvaged == before else _store(recording, records)
    except UNREADABLE as error:
        raise database.unreadable(error) from None


def judged_store(recording: Recording, end_of: Callable[[Store], float], records: int | None = None) -> Store:
    """Return the hub's store at the end of a recording, with the recorded findings, the state and the verdict.

    If the hub was killed, the recording has no findings about the last steps. Then these steps are judged here, as the
    hub would have judged them.

    Args:
        recording: The recording.
        end_of: Returns when the run of a store ended or, if that is not known, the moment of its last record, in Unix
            seconds.
        records: See `restored_store`.

    """
    store = restored_store(recording, records)
    end = end_of(store)
    if not _is_judged(store):
        recent = store if records is None else restored_store(recording)
        recorded = list(recent.events)
        judge_unjudged(recording, recent)
        recent.judge(end, end)
        if not (recorded and recording.run.ended_at and recorded[-1].at >= recording.run.ended_at):
            store.events = recent.events  # The hub was killed before it could add the events of the run's end.
        else:
            store.events = deque(recorded, store.events.maxlen)
        store.ledger, store.fault = recent.ledger, recent.fault
    store.restore_findings(store.ledger.findings(end - recording.run.created_at), end, end)
    return store


def _is_judged(store: Store) -> bool:
    """Return whether the recording is intact and needs no more judging: a hub judged its last step and, if the run has
    ended, the run's end.
    """
    judged, last = store.ledger.judged, 0 if store.world is None else int(store.world.step[-1])
    return not store.damaged and judged.step >= last and (judged.over or store.run.state() not in END_STATES)


def _store(recording: Recording, records: int | None) -> Store:
    run, registry = recording.run, recording.registry()
    ids = {process.id: process for process in registry.process_of_rank.values()}
    last = max((recording.steps.last_step(number) for number in ids), default=0)
    steps = WINDOW_STEPS if records is None else max(WINDOW_STEPS, records // max(1, len(ids)))
    window_s = WINDOW_S if records is None else None
    room = steps if records is None else max(1, min(steps, last))
    store = Store(run, registry, recording.clock, room, window_s)
    store.silences = recording.silences()
    saved = recording.checkpoint()
    since = _restore_histories(recording, store, saved)
    if saved and saved.attempt == registry.attempt:
        store.history_step = since
        store.since_start = SinceStart(saved.since_start)
        store.pause_filter = PauseFilter(saved.times)
        store.bad_losses = {loss.rank: loss for loss in saved.bad_losses if loss.rank in registry.process_of_rank}
        first = min(since, last - steps) + 1
    else:
        first = 1
    for begin, end in recording.steps.stretches(ids, first, CHUNK_STEPS):
        _feed(recording, store, ids, begin, end)
    store.add_arrived(final=run.ended)
    for process in ids.values():
        store.add_digests(process, recording.digests(process.id))
        process.records = max(0, process.records - recording.steps.unread[process.id])
    store.waiting = Waiting(
        registry.world_size,
        launcher=run.agent is not None,
        attached=len(run.attached),
        stages={rank: process.stage for rank, process in registry.process_of_rank.items()},
        unarmed=tuple(recording.unarmed()),
    )
    store.failures = recording.failures()
    store.events.extend(recording.events(store.events.maxlen or 0))
    if run.ended:
        store.ending = whole_ending(run, registry)
        for process in registry.process_of_rank.values():
            process.dead = not process.left
    judged = recording.judged_step()
    store.ledger = Ledger(registry.attempt, () if judged is None else recording.findings(), judged)
    store.findings = store.ledger.findings(0.0)  # so that events do not announce the recorded findings again
    store.damaged = recording.is_damaged
    store.notes = recording.notes
    return store


def _feed(recording: Recording, store: Store, ids: dict[int, RankProcess], begin: int, end: int) -> None:
    """Feed a store the step records of its ranks, from step `begin` to the step before `end`."""
    together: list[tuple[RankProcess, Table]] = []
    for process in ids.values():
        rows, alone = recording.steps.read_steps(process.id, begin, end)
        store.add_steps(process, alone)
        if len(rows):
            together.append((process, rows))
        ends = alone[:1] + alone[-1:] + steps_of(rows[:1]) + steps_of(rows[-1:])
        if ends and any(sample.gpu_percent is not None for sample in process.samples):
            span = min(step.end_us - step.length_us for step in ends), max(step.end_us for step in ends)
            store.add_samples(process, recording.samples(process.id, *span))
    if together:
        processes, tables = zip(*together, strict=True)
        store.add_rows(processes, [len(table) for table in tables], concatenate_rows(tables), None)
    store.add_arrived()


def whole_heat(recording: Recording) -> Heat:
    """Return the heat map of the whole run. It is made from all steps or, if the run is long, from some steps of each
    part.

    Raises:
        RecordingError: the recording has impossible values.

    """
    registry = recording.registry()
    ids = {process.id: process for process in registry.process_of_rank.values()}
    last = max((recording.steps.last_step(number) for number in ids), default=0)
    store = Store(recording.run, registry, recording.clock)
    store.silences, store.history_step = recording.silences(), MAX_STEP
    dense = HEAT_RECORDS // max(1, len(ids)) // 2
    spans = [(1, last)]
    if last > 2 * dense:
        older = last - dense
        spans = [
            (1 + older * part // BINS_PER_RESOLUTION, max(1, dense // BINS_PER_RESOLUTION))
            for part in range(BINS_PER_RESOLUTION)
        ] + [(older + 1, dense)]
    try:
        for first, steps in spans:
            for begin, end in recording.steps.stretches(ids, first, min(steps, CHUNK_STEPS)):
                if begin >= first + steps:
                    break
                _feed(recording, store, ids, begin, end)
        store.add_arrived(final=True)
    except UNREADABLE as error:
        raise recording.database.unreadable(error) from None
    return store.heat


def _restore_histories(recording: Recording, store: Store, saved: Checkpoint | None) -> int:
    """Restore the histories of the last checkpoint, and add later samples and logged values.

    Returns:
        The step of the checkpoint, or 0 if this attempt has no checkpoint.

    """
    by_rank = store.registry.process_of_rank
    reach_us = min(SAMPLES_S, SAMPLES_MOST // max(1, len(by_rank))) * 1_000_000
    for rank, process in by_rank.items():
        if process.sample is not None:
            after_us = process.sample.time_us - reach_us
            store.sample_bins.add(rank, process.hello.host, recording.samples(process.id, after_us, MAX_US))
    if saved:
        store.histories = Histories.restored(saved.histories)
    since = saved.step if saved and saved.attempt == store.registry.attempt else 0
    began_us = recording.clock.us_at(recording.run.created_at)
    for rank, process in by_rank.items():
        store.add_logged(process, recording.scalars(process.id, since))
        if (behind_us := process.clock_behind_us) is None:
            continue
        after_us = int(began_us + store.histories.sampled_s * 1e6) - behind_us
        samples = recording.samples(process.id, after_us, MAX_US)
        store.histories.add_samples(rank, samples, began_us - behind_us)
    return since


def judge_unjudged(recording: Recording, store: Store) -> None:
    """Judge the steps that no hub judged, except those in the restored store's last window, which the caller judges.

    A recording whose hub was killed has no findings about its last steps. These steps are judged as a hub would have
    judged them.
    """
    judged = store.ledger.judged.step
    if store.world is None or int(store.world.step[0]) <= judged + 1:
        return
    try:
        playback = Playback(recording)
    except RecordingError:
        return
    last = max(track.at_end.last_step for track in playback.tracks)
    begin = playback.begin
    first = max(judged, last - JUDGED_RECORDS // len(store.world.ranks))
    for track in playback.tracks:
        if first > 0 and track.at_end.attempt == store.registry.attempt and (end_us := track.end_us(first)):
            begin = recording.clock.unix_at(end_us)
            break
    end, step_s = playback.end, float(store.world.step_ms.mean()) / 1e3
    spacing = max(TICK_S, min((end - begin) / JUDGEMENTS, WINDOW_S / 3, WINDOW_STEPS / 2 * step_s))
    playing, now = playback.store_between(begin, playback.feed_from(begin)), begin
    playing.ledger = store.ledger
    while now < end:
        now = playback.advance(playing, now, min(now + spacing, end))
        playing.judge(now, now)
