"""The source of a run that has ended: the final state in the run's recording."""

from __future__ import annotations

import contextlib

from ddpmon.errors import RecordingError
from ddpmon.messages import Snapshot, ViewRequest, WireError, validated_snapshot
from ddpmon.runs import Run
from ddpmon.runs.logs import Log, Reader
from ddpmon.source.protocol import EndedSource


class RecordedSource(EndedSource):
    """The source of a run that has ended. It shows the run as the dashboard did at the run's end."""

    tape = None

    def __init__(self, run: Run) -> None:
        """Read a run's recording.

        Raises:
            RecordingError: The recording cannot be read, or contains an invalid value.

        """
        from ddpmon.recording.recorded import recorded_state  # imports numpy, which a live run's viewer never needs

        recorded, self._store = recorded_state(run)
        try:
            self._snapshot = validated_snapshot(recorded)
        except WireError as error:
            raise RecordingError(f"the recording of {run.name} ({run.id}) contains an invalid value: {error}") from None
        self._run, self._has_whole_heat = run, False
        self._view_request = ViewRequest()
        self._log = Log(Reader(run))

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def request_view(self, view_request: ViewRequest) -> None:
        from ddpmon.store.parts import with_parts

        if view_request != self._view_request:
            self._view_request = view_request
            if view_request.heat is not None and not self._has_whole_heat:
                self._read_heat()
            with contextlib.suppress(WireError):  # the previous snapshot stays on the screen
                self._snapshot = validated_snapshot(with_parts(self._snapshot, self._store, view_request))

    def _read_heat(self) -> None:
        """Replace the heat map of the latest steps by one of the whole run, which only the Heat screen needs. If
        reading fails, the first map stays.
        """
        from ddpmon.recording.recorded import read_whole_heat

        self._has_whole_heat = True
        with contextlib.suppress(RecordingError):
            read_whole_heat(self._run, self._store)

    def logs(self) -> Log:
        return self._log

    def close(self) -> None:
        """Do nothing, because the source has no open file or thread."""
