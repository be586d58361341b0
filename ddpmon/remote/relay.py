"""Forwards a source of this machine over standard input and output, which ssh connects to a dashboard elsewhere.

The relay ends when its standard input ends, so that no process remains after the ssh connection is cut.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import select
import time

import ddpmon
from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.messages import Ask, Snapshot, WireError
from ddpmon.plain import utf8
from ddpmon.remote import channel
from ddpmon.runs.logs import MAX_KEPT_LINES, Reader, Said
from ddpmon.source import Source, attach
from ddpmon.source.run_list import AllRuns, Listed

RELAY_POLL_S = 0.05
PRINTED_S = 0.5
RUNS_S = 2.0
MOST_RUNS = 500
LEAST_LINES = 50
"""Smallest number of lines of each rank in one message, unless the lines of all ranks exceed `PRINTED_LETTERS`."""
PRINTED_LETTERS = 2 << 20
"""Largest number of characters, over the lines of all ranks, in one message."""
_CHUNK = 1 << 16


def serve(name: str | None, incoming: int, outgoing: int) -> None:
    """Find a run of this machine and forward it until `incoming` ends.

    Args:
        name: Name or beginning of the id of the run, or None for the latest run.
        incoming: File descriptor of the dashboard's messages.
        outgoing: File descriptor for messages to the dashboard.

    """
    try:
        _write(outgoing, channel.greeting())
        framer = channel.Framer()
        try:
            run = runs.find(name, quiet=True)  # Text on standard error would appear as the reason of a lost connection.
            source = attach(run)
        except DdpmonError as error:
            _write(outgoing, framer.frame(channel.Remark(str(error))))
            return
        try:
            Relay(run, source, framer, incoming, outgoing).pump()
        finally:
            source.close()
    except (BrokenPipeError, WireError):
        return  # The connection is cut, or its other end is not ddpmon.


class Relay:
    """Forwards a source: its snapshots, and the logs and the list of runs if the dashboard shows them."""

    def __init__(self, run: runs.Run, source: Source, framer: channel.Framer, incoming: int, outgoing: int) -> None:
        self._run, self._source = run, source
        self._framer, self._unframer = framer, channel.Unframer()
        self._incoming, self._outgoing = incoming, outgoing
        self._credits = channel.CREDITS
        self._sent: Snapshot | None = None
        """The snapshot that was sent last."""
        from ddpmon.hub.changes import Sent  # Needs numpy, which commands that only import this module do not.

        self._viewer = Sent()
        """Everything that the dashboard has received."""
        self._want = channel.Want()
        self._reader = Reader(run)
        self._all = AllRuns()
        self._listed: list[channel.RunThere] | None = None
        self._due = {"beat": 0.0, "printed": 0.0, "runs": 0.0}

    def pump(self) -> None:
        """Forward the source until the dashboard closes the connection."""
        self._send(channel.About(self._run.id, self._run.name, ddpmon.__version__))
        while True:
            if select.select([self._incoming], [], [], RELAY_POLL_S)[0]:
                data = os.read(self._incoming, _CHUNK)
                if not data:
                    return
                for message in self._unframer.feed(data):
                    try:
                        self._take(channel.from_here(message))
                    except WireError:
                        continue  # The message may be from a newer ddpmon.
            self._pass_on(time.monotonic())

    def _take(self, message: channel.FromHere) -> None:
        if isinstance(message, channel.Taken):
            self._credits = min(channel.CREDITS, self._credits + 1)
        elif isinstance(message, channel.Want):
            self._want = message
            self._source.request_view(message.view_request)
        elif isinstance(message, Ask):
            self._source.ask(message.ranks, message.profile_steps, message.peak_flops)
        else:
            self._stop(message)

    def _stop(self, request: channel.StopThere) -> None:
        try:
            if request.run_id == self._run.id:
                self._source.stop(request.now)
            else:
                from ddpmon.launch import stop

                stop.request_stop(runs.find(request.run_id), now=request.now)
        except (DdpmonError, OSError) as error:
            self._send(channel.Remark(str(error)))

    def _pass_on(self, now: float) -> None:
        shot = self._source.snapshot()
        if shot is not None and shot is not self._sent and self._credits > 0:
            self._credits -= 1
            base = self._sent.version if self._sent is not None and self._sent.epoch == shot.epoch else 0
            # Do not compress the changes, because the frames are compressed.
            self._viewer, changes = self._viewer.answer(shot, self._want.view_request, base, level=0)
            self._sent = shot
            self._send(channel.Shot(changes))
        while news := self._source.news():
            self._send(channel.Remark(news))
        if self._is_due("beat", now, channel.LINE_HEARTBEAT_S):
            self._send(channel.Beat(self._source.silent_for(), self._source.stoppable, self._source.askable))
        if self._want.printed and self._is_due("printed", now, PRINTED_S):
            printed = self._reader()
            if printed:
                self._send(channel.Printed(_newest(printed)))
        if self._want.runs and self._is_due("runs", now, RUNS_S):
            listed = [self._as_message(each) for each in self._all.read()[:MOST_RUNS]]
            if listed != self._listed:
                self._listed = listed
                self._send(channel.RunsThere(listed))

    def _is_due(self, name: str, now: float, every_s: float) -> bool:
        if now < self._due[name]:
            return False
        self._due[name] = now + every_s
        return True

    def _as_message(self, listed: Listed) -> channel.RunThere:
        # The run's arguments and variables are not sent: they may hold secrets, and the dashboard does not need them.
        run, verdict = listed.run, self._all.verdict(listed)
        run = dataclasses.replace(
            run,
            argv=[],
            environment={},
            on_alert=[],
            script=utf8(run.script),
            script_args=[utf8(word) for word in run.script_args],
            cwd=utf8(run.cwd),
            error=run.error and utf8(run.error),
        )
        return channel.RunThere(run, listed.state, utf8(verdict.sentence), utf8(verdict.brief))

    def _send(self, message: channel.FromThere) -> None:
        try:
            frame = self._framer.frame(message)
        except WireError as error:
            frame = self._framer.frame(channel.Remark(f"too much data to send: {error}"))
        _write(self._outgoing, frame)


def _newest(printed: list[Said]) -> list[Said]:
    """Return the last lines of each rank: LEAST_LINES or more, unless all lines together exceed PRINTED_LETTERS."""
    most, room = max(LEAST_LINES, MAX_KEPT_LINES // len(printed)), PRINTED_LETTERS // len(printed)
    newest = []
    for each in printed:
        lines = each.lines[-most:]
        sizes = itertools.accumulate(len(line) + 1 for line in reversed(lines))
        fitting = sum(1 for _ in itertools.takewhile(lambda size: size <= room, sizes))
        lines = lines[len(lines) - fitting :]
        if left_out := len(each.lines) - fitting:
            lines = [f"… {left_out:,} earlier lines are missing", *lines]
        newest.append(Said(each.rank, each.stream, lines))
    return newest


def _write(outgoing: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(outgoing, view) :]
