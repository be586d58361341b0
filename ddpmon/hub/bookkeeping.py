"""Records everything but telemetry: events, checkpoints, messages in files that ranks left, and the final report."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from ddpmon import runs
from ddpmon.analysis.over_time.history import ROWS_PER_LEVEL
from ddpmon.analysis.words import format_count
from ddpmon.errors import RecordingError
from ddpmon.recording.collector import Collector
from ddpmon.recording.recorded import recorded_report
from ddpmon.recording.recorder import Checkpoint, Recorder
from ddpmon.recording.unsent_files import Tails
from ddpmon.runs.private_files import write
from ddpmon.store.store import Store

CHECKPOINT_S = 10.0
CHECKPOINT_ROWS = ROWS_PER_LEVEL // 4
"""Number of chart rows per resolution in a checkpoint. At its end a hub writes more rows, which takes longer."""


class Bookkeeping:
    """Passes records to the recorder, and adds events when the disk fails or works again."""

    def __init__(self, store: Store, recorder: Recorder, collector: Collector) -> None:
        self._store, self._recorder, self._collector = store, recorder, collector
        self._tails = Tails(runs.run_dir(store.run.id), self._take_tail, self._report_tail)
        self._tail_files: list[Path] = []
        """Files that ranks left in the run's folder, which are deleted once they are recorded."""
        self._checkpointed_at = time.monotonic()

    @property
    def is_all_recorded(self) -> bool:
        """Return whether everything that was received is on the disk."""
        return not self._recorder.has_backlog and not self._recorder.trouble

    def write_due(self, now: float, unix: float) -> None:
        """Write events, silences, findings and received records, and a checkpoint if it is due."""
        store, recorder = self._store, self._recorder
        recorder.record_event(store.new_events)
        store.new_events.clear()
        recorder.record_silences(store.silences.take_changed())
        recorder.record_findings(store.ledger)
        if now - self._checkpointed_at >= CHECKPOINT_S:
            self._checkpointed_at = now
            self._checkpoint(CHECKPOINT_ROWS)
        self._collector.write_and_acknowledge()
        if recorder.was_deleted:
            recorder.was_deleted = False
            store.add_event(
                unix, "warn", "somebody deleted telemetry.db; the hub has written the whole recording again"
            )
        trouble = recorder.trouble
        if trouble and not store.unwritable:
            store.add_event(unix, "warn", f"ddpmon cannot write the recording: {trouble}")
        elif store.unwritable and not trouble:
            missing = f"the recording lacks {format_count(recorder.unrecorded, 'step record')}"
            store.add_event(
                unix,
                "info",
                f"ddpmon can write the recording again; {missing if recorder.unrecorded else 'nothing was lost'}",
            )
        store.unwritable = trouble or ""

    def keep_last(self, now: float, unix: float) -> None:
        """Write everything, with a complete checkpoint, because this hub ends."""
        self._checkpoint(ROWS_PER_LEVEL)
        self._recorder.write_soon()
        self.write_due(now, unix)

    def _checkpoint(self, rows: int) -> None:
        store = self._store
        histories = store.histories.saved(rows)
        self._recorder.checkpoint(
            Checkpoint(
                store.registry.attempt,
                store.history_step,
                store.since_start.sums,
                histories,
                store.pause_filter.times,
                list(store.bad_losses.values()),
            )
        )

    def notes(self) -> list[str]:
        """Return notes for viewers about missing records and invalid messages."""
        notes = []
        if unrecorded := self._recorder.unrecorded:
            notes.append(f"the recording lacks {format_count(unrecorded, 'step record')}")
        if bad := self._collector.bad_frames:
            were = "that was no message" if bad == 1 else "that were no messages"
            notes.append(f"the hub dropped {format_count(bad, 'frame')} {were} of ddpmon")
        return notes

    def take_tails(self) -> None:
        """Record the messages in files that ranks left in the run's folder, then delete the files."""
        self._tail_files += self._tails.take_new()
        if not self._tail_files:
            return
        self._collector.record_all()
        if self._recorder.trouble is None:
            for path in self._tail_files:
                with contextlib.suppress(OSError):
                    path.unlink()
            self._tail_files.clear()

    def _take_tail(self, frames: list[bytes]) -> None:
        self._collector.process_message(frames, time.monotonic(), time.time(), ended=True)

    def _report_tail(self, text: str) -> None:
        self._store.add_event(time.time(), "warn", text)

    def write_report(self) -> None:
        """Write report.json after the run has ended and is completely recorded."""
        self._tails.delete_folder()
        run = self._store.run
        try:
            write(runs.run_dir(run.id) / "report.json", recorded_report(run))
        except (OSError, RecordingError) as error:
            with contextlib.suppress(OSError):  # The disk may be full; viewers must still learn that the run ended.
                print(f"no report.json: {error}", flush=True)
