"""The source of a replay: plays a recording through the same interface as a live run. A cursor marks the current
moment.
"""

from __future__ import annotations

import threading
import time

import msgspec

from ddpmon.errors import RecordingError
from ddpmon.messages import RunView, Snapshot, ViewRequest, WireError, validated_snapshot
from ddpmon.plain import plain
from ddpmon.runs import Run
from ddpmon.runs.logs import Log, Reader
from ddpmon.source.protocol import EndedSource, TapePosition

REPLAY_FRAME_S = 0.25
SLOWEST, FASTEST = 0.125, 1024.0
PIECES = 60
"""Number of equal parts into which `skip` divides a recording."""
BACK_S = 1.5
LEAD_S = 1.0
"""A replay begins this many seconds before the end of the first step. Before that, processes only start."""


class ReplaySource(EndedSource):
    """Plays a run's recording. Its own thread reads the recording and follows the cursor."""

    def __init__(self, run: Run, speed: float = 1.0) -> None:
        """Open a run's recording and start to play it.

        Raises:
            RecordingError: The recording cannot be read, or is empty.

        """
        from ddpmon.recording.player import Player  # imports numpy, which a live run's viewer never needs

        self._run = run
        self._player = Player(run)
        self._log = Log(Reader(run))
        self._begin, self._end = self._player.begin, self._player.end
        self._speed = min(FASTEST, max(SLOWEST, speed))
        self._paused = False
        self._at = max(self._begin, self._player.first_step - LEAD_S)
        self._moved_at = time.monotonic()
        self._snapshot: Snapshot | None = None
        self._shown: float | None = None
        self._view_request = ViewRequest()
        self._keys: list[tuple[str, int]] = []
        self._pressed = True
        """True when a key moved the cursor, so that the snapshot at the new position is shown at once."""
        self._closing = False
        self._turn = threading.Condition()
        self._thread = threading.Thread(target=self._play, name="ddpmon-replay", daemon=True)
        self._thread.start()

    @property
    def tape(self) -> ReplaySource:
        return self

    @property
    def cursor(self) -> TapePosition:
        with self._turn:
            self._move()
            arrived = self._paused and self._shown == self._at  # else an earlier snapshot is still shown
            return TapePosition(self._at - self._begin, self._end - self._begin, self._speed, arrived)

    def toggle(self) -> None:
        with self._turn:
            self._move()
            if self._at >= self._end:
                self._at, self._paused = max(self._begin, self._player.first_step - LEAD_S), False
            else:
                self._paused = not self._paused
            self._pressed = True
            self._turn.notify()

    def skip(self, by: int) -> None:
        self._press("skip", by)

    def step(self, by: int) -> None:
        self._press("step", by)

    def jump(self, by: int) -> None:
        self._press("jump", by)

    def faster(self, by: int) -> None:
        with self._turn:
            self._move()
            self._speed = min(FASTEST, max(SLOWEST, self._speed * 2.0**by))

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def request_view(self, view_request: ViewRequest) -> None:
        with self._turn:
            if view_request != self._view_request:
                self._view_request, self._pressed = view_request, True
                self._turn.notify()

    def logs(self) -> Log:
        """Return the whole output of the run, wherever the cursor is, because lines of output have no time."""
        return self._log

    def close(self) -> None:
        with self._turn:
            self._closing = True
            self._turn.notify()
        self._thread.join(5.0)

    def _press(self, key: str, by: int) -> None:
        with self._turn:
            self._keys.append((key, by))
            self._pressed = True
            self._turn.notify()

    def _move(self) -> None:
        """Advance the cursor by the time since the last move, times the speed."""
        now = time.monotonic()
        if not self._paused:
            self._at = min(self._end, self._at + (now - self._moved_at) * self._speed)
            self._paused = self._at >= self._end
        self._moved_at = now

    def _play(self) -> None:
        try:
            while (at := self._next()) is not None:
                shot = validated_snapshot(self._player.snapshot_at(at, self._view_request))
                self._shown, self._snapshot = at, shot
        except RecordingError as error:
            self._give_up(str(error))
        except WireError as error:
            self._give_up(f"the recording contains an invalid value: {error}")
        finally:
            self._player.close()

    def _next(self) -> float | None:
        """Wait until another moment of the recording is due, and return this moment. Return None once the source is
        closed.
        """
        with self._turn:
            self._move()
            while not self._closing and not self._pressed and self._shown == self._at:
                self._turn.wait()
                self._move()
            if not self._closing and not self._pressed:
                self._turn.wait(REPLAY_FRAME_S)
                self._move()
            if self._closing:
                return None
            self._pressed = False
            pressed, self._keys = self._keys, []
            at = self._at
        for key, by in pressed:
            at = self._after_key(key, by, at)
        with self._turn:
            if pressed:
                self._at, self._moved_at = min(self._end, max(self._begin, at)), time.monotonic()
                self._paused = self._paused or self._at >= self._end or pressed[-1][0] == "step"
            return self._at

    def _after_key(self, key: str, by: int, at: float) -> float:
        if key == "step":
            return self._player.step_from(at, by)
        if key == "jump":
            # While the recording plays, the cursor is soon past the event, so "back" must mean the event before it.
            grace = 0.0 if by > 0 or self._paused else BACK_S * self._speed
            return self._player.event_from(at - grace, by)
        return at + by * max(1.0, (self._end - self._begin) / PIECES)

    def _give_up(self, why: str) -> None:
        """Pause the replay because the recording cannot be read, and show the reason in place of the verdict."""
        with self._turn:
            self._paused = True
        shown = self._snapshot or self._as_it_ended()
        self._snapshot = msgspec.structs.replace(
            shown, verdict=why, severity="critical", verdict_facts=None, version=shown.version + 1
        )

    def _as_it_ended(self) -> Snapshot:
        """Return a snapshot for a recording that could not be read before any snapshot was shown. It shows the run's
        end or, if that cannot be read either, only the run's name.
        """
        try:
            return validated_snapshot(self._player.snapshot_at(self._end))
        except (RecordingError, WireError):
            run = RunView(plain(self._run.id), plain(self._run.name), 0)
            return Snapshot("replay", 0, self._end, run, "lost", "")
