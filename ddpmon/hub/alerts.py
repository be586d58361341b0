"""Runs a program (an alert) when a run needs attention.

The program is the user's (`--on-alert CMD`), or ddpmon's own, which notifies services (`--notify URL`). The
program is started without a shell in the run's working directory, and gets the alert as JSON on its standard input.
Only one program runs at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ddpmon.analysis.report import finding_for_report
from ddpmon.analysis.words import format_count
from ddpmon.hub import send_alert
from ddpmon.messages import Finding
from ddpmon.plain import plain
from ddpmon.redaction import redact_text
from ddpmon.store.store import Store

ALERT_SCHEMA = 1
MAX_PROGRAM_S = 30.0
"""Longest time in seconds that the program may run. After this time, the program and all processes that it started are
killed."""
MAX_END_WAIT_S = 10.0
"""Longest time in seconds that the end of a run waits for the program."""
MOST_AN_HOUR = 20
MAX_WAITING_ALERTS = 20
HOUR_S = 3600.0
_ALARMING = {"stalled", "failed", "lost"}
"""States that cause an alert even without a finding."""
_PRINTED_BYTES = 4096
"""Number of bytes at the end of the program's output that are kept."""
_LINE_CHARS = 200
"""Largest number of characters of the program's last line that an event shows if the program failed."""


class Alerts:
    """Compares each judgement of a run with the last one, and starts the program for new findings. No method raises."""

    def __init__(
        self,
        command: Sequence[str],
        store: Store,
        add_event: Callable[[float, str, str], None],
        urls: Sequence[str] = (),
    ) -> None:
        """Make the alerts of a run.

        Args:
            command: The program and its arguments. If it is empty and there are no URLs, there are no alerts.
            store: The run.
            add_event: Function that adds an event to the run.
            urls: Services that ddpmon's own program notifies, also when the run is done. They replace the command.

        """
        self._command = [sys.executable, "-m", send_alert.__name__] if urls else list(command)
        self._name = "--notify" if urls else f"--on-alert {command[0]}" if command else ""
        self._urls = json.dumps(list(urls)).encode() + b"\n" if urls else b""
        self._alarming = _ALARMING | ({"done"} if urls else set())
        self._store = store
        self._add_event = add_event
        self._state = store.state
        self._may_repeat = store.step > 0
        """True until the first check if an earlier hub may already have sent its alerts."""
        self._waiting: deque[bytes] = deque()
        self._started: deque[float] = deque()
        self._dropped = 0
        self._program: _Program | None = None

    def queue_alerts(self, now: float, unix: float) -> None:
        """Queue alerts for new findings, start the program for the next alert, and kill it if it takes too long."""
        if not self._command:
            return
        new = self._new()
        if not self._may_repeat:
            for severity, text, finding in new:
                self._queue(now, self._message(unix, severity, text, finding))
        self._may_repeat = False
        self._advance(now, unix)

    def finish(self, unix: float) -> None:
        """Send the queued alerts after the run's end, for at most MAX_END_WAIT_S."""
        deadline = time.monotonic() + MAX_END_WAIT_S
        while (self._waiting or self._program) and (now := time.monotonic()) < deadline:
            self._advance(now, unix)
            time.sleep(0.02)
        if self._program is not None:
            self._program.kill()
            print(
                f"{self._name}: the last alert took longer than {MAX_END_WAIT_S:g} s and may be lost", file=sys.stderr
            )

    def _new(self) -> list[tuple[str, str, Finding | None]]:
        """Return (severity, sentence, finding) of new findings since the last check, and of a new alarming state."""
        store = self._store
        announced = [event for event in store.announced if event.finding and event.severity != "info"]
        new = [(event.severity, event.text, event.finding) for event in announced]
        findings = [event.finding for event in announced]
        verdict = store.verdict
        alarming = store.state != self._state and store.state in self._alarming
        if alarming and not any(f in findings for f in verdict.findings):
            new.append((verdict.severity, verdict.text, next(iter(verdict.findings), None)))
        self._state = store.state
        return new

    def _message(self, unix: float, severity: str, text: str, finding: Finding | None) -> bytes:
        run = self._store.run
        facts: dict[str, Any] = {
            "schema": ALERT_SCHEMA,
            "run": {"id": run.id, "name": run.name, "script": run.script, "host": run.host},
            "at": unix,
            "state": self._store.state,
            "step": self._store.step,
            "severity": severity,
            "sentence": plain(text),
            "finding": None if finding is None else finding_for_report(finding),
        }
        return json.dumps(facts).encode() + b"\n" + self._urls

    def _queue(self, now: float, message: bytes) -> None:
        while self._started and now - self._started[0] > HOUR_S:
            self._started.popleft()
        if len(self._started) + len(self._waiting) >= MOST_AN_HOUR or len(self._waiting) >= MAX_WAITING_ALERTS:
            self._dropped += 1
        else:
            self._waiting.append(message)

    def _advance(self, now: float, unix: float) -> None:
        if self._program is not None:
            if not self._program.ended() and now - self._started[-1] < MAX_PROGRAM_S:
                return
            if failure := self._program.kill():
                self._add_event(unix, "info", f"{self._name} {failure}")
            self._program = None
        if self._dropped and not self._waiting:
            self._add_event(
                unix,
                "info",
                f"{self._name.split()[0]}: ddpmon skipped {format_count(self._dropped, 'alert')}, because the limit is"
                f" {MOST_AN_HOUR} an hour",
            )
            self._dropped = 0
        if self._waiting:
            try:
                self._program = _Program(self._command, self._store.run.cwd, self._waiting.popleft())
                self._started.append(now)
            except OSError as error:
                self._add_event(unix, "info", f"ddpmon cannot start {self._name}: {error.strerror}")


class _Program:
    """A running alert program. The constructor raises OSError if the program cannot be started."""

    def __init__(self, command: Sequence[str], cwd: str, message: bytes) -> None:
        self._output, theirs = os.pipe()
        os.set_blocking(self._output, False)
        try:
            with tempfile.TemporaryFile() as file:
                file.write(message)
                file.seek(0)
                self._process = subprocess.Popen(
                    command, stdin=file, stdout=theirs, stderr=theirs, cwd=cwd, start_new_session=True
                )
        except OSError:
            os.close(self._output)
            raise
        finally:
            os.close(theirs)
        self._printed = b""

    def ended(self) -> bool:
        """Return whether the program has ended, and read its output, so that it does not block on a full pipe."""
        # WNOWAIT does not reap the process, so that no other process group can get its number.
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        with contextlib.suppress(OSError):  # The pipe is empty.
            self._printed = (self._printed + os.read(self._output, 1 << 16))[-_PRINTED_BYTES:]
        return ended

    def kill(self) -> str:
        """Kill the program and the processes it started, and return how it failed, or "" if it succeeded."""
        overdue = not self.ended()
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        os.close(self._output)
        if overdue:
            return f"ran for more than {MAX_PROGRAM_S:g} s, so ddpmon killed it"
        lines = self._printed.decode(errors="replace").strip().splitlines()
        last = f": {redact_text(plain(lines[-1]))[:_LINE_CHARS]}" if lines else ""
        return f"ended with {code}{last}" if code else ""
