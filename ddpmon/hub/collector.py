"""Takes what ranks send, hands it on, and answers."""

from __future__ import annotations

import contextlib

import zmq

from ddpmon.analysis import failures
from ddpmon.hub.processes import RankProcess
from ddpmon.hub.recorder import Recorder
from ddpmon.hub.sockets import Socket
from ddpmon.hub.store import Store
from ddpmon.messages import (
    CHECKPOINT,
    STAGE_ENDED,
    Ack,
    Batch,
    Bye,
    Failure,
    Hello,
    Stack,
    ToRank,
    Welcome,
    Where,
    WireError,
    decode_from_rank,
    encode,
)

FRAMES_PER_TURN = 500
ALIKE_S = 1.0
"""How long a failure waits to be told as an event: the same one of other ranks is a moment behind it."""


class Collector:
    """The hub's side of the protocol with ranks.

    Hello → Welcome. A batch of a process that never said hello to this hub → Welcome(known=False), and the rank says
    hello and sends all that was not acknowledged again. A batch is acknowledged once it is on disk.
    """

    def __init__(self, socket: Socket, store: Store, recorder: Recorder, epoch: str) -> None:
        self._socket = socket
        self._store = store
        self._recorder = recorder
        self._epoch = epoch
        self.told_where_at = float("-inf")
        """When a rank last told where it is."""
        self._untold: list[tuple[float, Failure]] = []
        """Failures that are no event yet, and when they came."""
        self.bad_frames = 0
        """Frames that were no message of ours."""

    def receive(self, now: float, unix: float) -> int:
        """Take what has come, a bounded lot of it; returns how many frames."""
        for count in range(FRAMES_PER_TURN):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return count
            self.take(frames, now, unix)
        return FRAMES_PER_TURN

    def take(self, frames: list[bytes], now: float, unix: float, *, left: bool = False) -> None:
        """One message of a rank: its connection and one frame. left: by a process that has ended since."""
        try:
            if len(frames) != 2:
                raise WireError("not one frame")
            message = decode_from_rank(frames[1])
        except WireError:
            self.bad_frames += 1
            return
        identity = frames[0]
        if isinstance(message, Hello):
            self._hello(message, identity, now, unix, left=left)
        elif isinstance(message, Failure):
            self._failure(message, now)
        elif not self._store.registry.is_known(message.pid):
            self._send(identity, Welcome(self._epoch, known=False))
        else:
            process = self._store.registry.speaker(identity, message.rank, message.pid, now)
            if process is None:
                return
            if isinstance(message, Batch):
                self._batch(process, message, now)
            elif isinstance(message, Stack):
                process.tell_stack(message, now)
                self.told_where_at = now
                self._recorder.process(process)
            else:
                self._bye(process, message)

    def _hello(self, hello: Hello, identity: bytes, now: float, unix: float, *, left: bool) -> None:
        process = self._store.registry.hello(hello, identity, now, left=left)
        if process is None:
            return
        self._recorder.process(process)
        self._store.connected(unix)
        self._send(identity, Welcome(self._epoch))

    def _batch(self, process: RankProcess, batch: Batch, now: float) -> None:
        if batch.seq <= process.seq:
            # Sent again, known already: only the word of it was lost.
            self._send(process.identity, Ack(self._recorder.recorded(process)))
            return
        process.seq = batch.seq
        process.stage = max(process.stage, batch.stage)
        process.phase = batch.phase
        process.steps = batch.step
        process.dropped = batch.dropped
        writes = batch.pausing == CHECKPOINT and any(sample.written_bytes_per_s for sample in batch.samples)
        process.tell_work(batch.beats, batch.pausing, now, writes=writes)
        # Also where they are not known any more: the total may have been that of one epoch.
        process.total_steps, process.epoch, process.epochs = batch.total_steps, batch.epoch, batch.epochs
        process.samples.extend(batch.samples)
        process.layouts.update({layout.number: layout for layout in batch.layouts})
        if batch.unsynchronised > process.unsynchronised:
            process.unsynchronised, process.unsynchronised_at = batch.unsynchronised, batch.step
        fresh = process.fresh(batch.steps)
        if fresh and not self._store.registry.is_seated(process):
            self._store.registry.seat(process)
        self._store.add_steps(process, fresh, now)
        if batch.rest:
            self._store.add_rest(process, batch.rest)
        self._store.add_digests(process, batch.digests)
        self._store.add_samples(process, batch.samples)
        self._store.add_logged(process, batch.scalars)
        self._recorder.batch(process, batch, fresh)

    def _bye(self, process: RankProcess, bye: Bye) -> None:
        process.left = True
        process.stage = STAGE_ENDED
        process.dropped = bye.dropped
        self._recorder.process(process)
        self.record_all()
        seq = self._recorder.recorded(process)
        # What a refusing disk did not take yet, the rank leaves in the run's folder as well.
        self._send(process.identity, Ack(bye.seq if seq == process.seq else seq))

    def _failure(self, failure: Failure, now: float) -> None:
        known = any(f.pid == failure.pid and f.rank == failure.rank for f in self._store.failures)
        process = self._store.registry.everyone.get(failure.pid)
        impossible = failure.rank >= max(self._store.registry.world_size, 1)
        if known:
            return
        if impossible or (process is not None and process.rank != failure.rank):
            self._store.registry.ignored += 1
            return
        self._store.failures.append(failure)
        self._recorder.failure(failure)
        self._untold.append((now, failure))

    def tell_failures(self, now: float, unix: float, *, final: bool = False) -> None:
        """Make events of what ranks failed of: one of what is alike. final: no further rank will tell."""
        if not self._untold:
            return
        seats = self._store.registry.seats.values()
        failed = {failure.pid for failure in self._store.failures}
        complete = all(process.gone or process.hello.pid in failed for process in seats)
        if final or complete or now - self._untold[0][0] >= ALIKE_S:
            told = [failure for _, failure in self._untold]
            for severity, text in failures.events(told, self._store.registry.world_size):
                self._store.tell(unix, severity, text)
            self._untold.clear()

    def ask_where(self) -> None:
        """Ask every rank that is connected for its stack."""
        for process in self._store.registry.seats.values():
            if process.greeted and not process.gone:
                self._send(process.identity, Where())

    def ask_for_viewer(self, process: RankProcess) -> None:
        """Ask one rank, which may well come on, for its stack."""
        self._send(process.identity, Where(brief=True))

    def record(self) -> None:
        """Write a part of what waits, and tell the ranks that it is safe."""
        for process, seq in self._recorder.write():
            self._send(process.identity, Ack(seq))

    def record_all(self) -> None:
        """Write all that waits, as far as the disk takes it."""
        self.record()
        while self._recorder.backlog and not self._recorder.trouble:
            self.record()

    def _send(self, identity: bytes, message: ToRank) -> None:
        with contextlib.suppress(zmq.ZMQError):  # a rank that went away, or does not read: it asks again
            self._socket.send_multipart([identity, encode(message)], zmq.NOBLOCK)
