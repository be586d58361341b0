"""Makes the last snapshot, store and report of a run from its recording, whether or not the run has ended."""

from __future__ import annotations

import time
from typing import Any

from ddpmon.analysis.report import run_report
from ddpmon.analysis.steps.summary import summarise
from ddpmon.errors import NothingRecordedError
from ddpmon.messages import Snapshot
from ddpmon.recording.earlier_runs import compare_for_report
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.recording.restoring import REPORT_RECORDS, judged_store, restored_store, whole_heat
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.endings import read_ending
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from ddpmon.store.view import snapshot, with_means_of

RECORDED_EPOCH = "recording"


def recorded_snapshot(run: Run) -> Snapshot:
    """Return the last snapshot of a run, or raise RecordingError if the recording cannot be read."""
    return recorded_state(run)[0]


def recorded_state(run: Run) -> tuple[Snapshot, Store]:
    """Return the last snapshot of a run and the store from which it was made, or raise RecordingError."""
    store = _judged(run, None)
    return _shot(store), store


def read_whole_heat(run: Run, store: Store) -> None:
    """Replace the heat map of an ended run's store by a heat map of the whole run, or raise RecordingError."""
    with Recording(run) as recording:
        store.heat = whole_heat(recording)


def recorded_report(run: Run) -> dict[str, Any]:
    """Return the report of a run as far as it is recorded, or raise RecordingError if the recording cannot be read."""
    return report_with_store(run, None)[0]


def report_with_store(run: Run, live: Snapshot | None) -> tuple[dict[str, Any], Snapshot, Store]:
    """Return the report of a run with its snapshot and its store, so that charts need no second reading.

    Args:
        run: The run.
        live: Current snapshot of the hub if the run goes on, or None. With a snapshot, state, verdict and findings come
            from the hub, which knows more than it has recorded; means are computed from the recorded steps. Without a
            snapshot, the report of a run that goes on says how old the data is.

    """
    store = _judged(run, REPORT_RECORDS, complete=live is None)
    shot = _shot(store)
    summary = store.summary if store.first_step is None else summarise(store.first_step)
    stale_s = None
    if live is not None:
        shot = with_means_of(live, shot)
    elif run.state() in {"running", "unknown"}:
        stale_s = time.time() - shot.at
    built = run_report(shot, store.summarised, summary, store.since_start.sums, stale_s)
    return built | {"earlier_runs": compare_for_report(run, built)}, shot, store


def recorded_store(run: Run) -> Store:
    """Return the store for a report: the recorded findings of the whole run, and means over many of the run's last
    steps.
    """
    return _judged(run, REPORT_RECORDS)


def _shot(store: Store) -> Snapshot:
    end = _end(store)
    return snapshot(store, RECORDED_EPOCH, 1, end, end)


def _end(store: Store) -> float:
    """Return when the run ended or, if that is not known, the last recorded moment, in Unix seconds."""
    if store.run.ended_at:
        return store.run.ended_at
    sampled = [p.sample for p in store.registry.processes.values() if p.hello.host == store.registry.host]
    moments = [store.clock.unix_at(sample.time_us) for sample in sampled if sample is not None]
    return min(time.time(), max([store.run.created_at, *moments, *(event.at for event in store.events)]))


def _judged(run: Run, records: int | None, *, complete: bool = True) -> Store:
    """Return the store at a run's end, which is empty if the run ended before anything was recorded.

    Args:
        run: The run.
        records: Number of step records that the means cover, or None for a window of steps.
        complete: True to judge the steps that no hub has judged.

    """
    try:
        with Recording(run) as recording:
            return judged_store(recording, _end, records) if complete else restored_store(recording, records)
    except NothingRecordedError as error:
        if not run.ended:
            raise
        registry = Registry(run.id, run.world_size, run.host)
        store = Store(run, registry, Clock(0, run.created_at))
        store.ending = read_ending(run)
        store.notes = [str(error)] if recording_path(run.id).exists() else []
    end = _end(store)
    store.judge(end, end)
    return store
