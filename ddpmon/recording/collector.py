"""Receives the messages of ranks, passes them to store and recorder, and answers them.

The collector does not depend on sockets, so it processes messages from a file in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from ddpmon.analysis.processes import failures
from ddpmon.messages import (
    STAGE_ENDED,
    Ack,
    Batch,
    Bye,
    Failure,
    FromRank,
    Hello,
    Profile,
    ProfileSteps,
    SampleStacks,
    Stack,
    StackSamples,
    ToRank,
    Welcome,
    Where,
    WireError,
    decode_lenient,
)
from ddpmon.messages.nodes import End
from ddpmon.recording import plausible
from ddpmon.recording.block_intake import BlockIntake
from ddpmon.recording.node_blocks import NodeBlock
from ddpmon.recording.recorder import Recorder
from ddpmon.store.peers import NO_MESSAGE, STRANGER, Peer
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

ASK_AGAIN_S = 1.0
"""Shortest interval in seconds at which the hub asks a rank for missing batches."""
ALIKE_S = 1.0
"""Seconds from a failure until its event. Other ranks often fail in the same way a moment later, and one event then
reports all of them."""

Answer = Callable[[bytes, ToRank], None]
"""Function that sends a message to the rank of a connection."""
Accepted = Callable[[RankProcess, FromRank], None]


class Collector:
    """The hub's side of the protocol with ranks.

    The answer to Hello is Welcome. The answer to a batch of a process without a Hello to this hub is
    Welcome(has_hello=False), upon which the rank sends its Hello and all unacknowledged batches again. A batch is
    acknowledged once it is on disk. If a batch arrives without the batches before it, because a connection was cut, the
    hub also answers Welcome(has_hello=False). Batches that the rank no longer has are lost.
    """

    def __init__(
        self, store: Store, recorder: Recorder, epoch: str, answer: Answer, accepted: Accepted | None = None
    ) -> None:
        """Begin without messages.

        Args:
            store: The run.
            recorder: Records the messages.
            epoch: Identifies this process of the hub.
            answer: Sends a message to a rank.
            accepted: Called with each message that was accepted. Refused values have been removed from a batch by then.

        """
        self._answer = answer
        self._accepted = accepted
        self._store = store
        self._recorder = recorder
        self._blocks = BlockIntake(store, recorder)
        self._epoch = epoch
        self.stack_reported_at = float("-inf")
        """Moment at which a rank last sent its stack."""
        self.heard_of_an_end = False
        """True once a rank said Bye or reported an exception. The hub then checks for ranks that had already exited
        unexpectedly."""
        self._unreported: list[tuple[float, Failure]] = []
        """Failures that are not yet reported as events, each with the moment at which it arrived."""

    def process_message(
        self,
        frames: list[bytes],
        now: float,
        unix: float,
        peer: Peer | None = None,
        *,
        ended: bool = False,
        later_us: int = 0,
    ) -> None:
        """Process one message of a rank.

        Args:
            frames: The connection's name, and one frame.
            now: Seconds of the hub's clock.
            unix: The same moment in Unix seconds.
            peer: The sender, or None if the message was read from a file.
            ended: True if the sender has ended since it sent the message.
            later_us: Microseconds by which this machine's clock is ahead of the sender's.

        """
        identity = frames[0]
        try:
            if len(frames) != 2:
                raise WireError("more or less than one frame")
            message, invalid = decode_lenient(frames[1])
        except WireError as error:
            self._refuse(NO_MESSAGE, identity, peer, str(error))
            return
        self._blocks.pass_on_rows(now)
        left_out = [f"the records of a batch: {invalid}"] if invalid else []
        self._process_content(message, left_out, identity, now, unix, peer, ended=ended, later_us=later_us)

    def take_block(
        self, block: NodeBlock, node: int, name: Callable[[int], bytes], now: float, unix: float, later_us: int
    ) -> None:
        """Process a block of batches from ranks of another node. Its steps reach the store with `pass_on_steps`.

        Args:
            block: The block.
            node: Number of the node.
            name: Returns the name of the connection of the process with a pid.
            now: Seconds of the hub's clock.
            unix: The same moment in Unix seconds.
            later_us: Microseconds by which this machine's clock is ahead of the node's.

        """
        peer = Peer(0, node)

        def take_alone(batch: Batch) -> None:
            self._process_content(batch, [], name(batch.pid), now, unix, peer, later_us=later_us)

        process = self._blocks.process_block(block, node, now, later_us, take_alone)
        if process is not None and self._accepted is not None:
            self._accepted(process, block.batches[-1])

    def pass_on_steps(self, now: float) -> None:
        """Pass the steps from blocks to the store and the recorder."""
        self._blocks.pass_on_rows(now)

    def _process_content(
        self,
        message: FromRank,
        left_out: list[str],
        identity: bytes,
        now: float,
        unix: float,
        peer: Peer | None,
        *,
        ended: bool = False,
        later_us: int = 0,
    ) -> None:
        registry = self._store.registry
        taken = True
        if isinstance(message, Hello):
            process = registry.register(message, identity, now, peer, ended=ended)
            if process is not None:
                self._hello(process, unix)
        elif not registry.has_hello(message.pid, peer):
            self._answer(identity, Welcome(self._epoch, has_hello=False))
            return
        else:
            process = registry.sender_of(identity, message.rank, message.pid, now, peer)
            if process is None:
                return
            while registry.reseated:
                self._recorder.record_process(registry.reseated.pop())
            if isinstance(message, Batch):
                taken = self._batch(process, message, now, left_out, from_file=peer is None)
            elif isinstance(message, Failure):
                message.time_us = max(0, message.time_us + later_us)  # Failures of all machines are ordered in time.
                self._failure(process, message, now)
            elif isinstance(message, Stack):
                message.time_us = max(0, message.time_us + later_us)
                message.since_us = max(0, message.since_us + later_us)
                process.take_stack(message, now)
                self.stack_reported_at = now
                self._recorder.record_process(process)
            elif isinstance(message, StackSamples):
                process.stack_samples = message
            elif isinstance(message, Profile):
                process.profile = message
            elif isinstance(message, Bye):
                self._bye(process, message, now)
        if process is not None:
            if peer and peer.through:
                process.later_us = later_us
            for part in left_out:
                self._refuse(part, identity, peer)
            if taken and self._accepted is not None:
                self._accepted(process, message)

    def _refuse(self, kind: str, identity: bytes, peer: Peer | None, why: str = "") -> None:
        registry = self._store.registry
        process = registry.process_on(identity, peer)
        if process is not None and registry.is_seated(process):
            registry.refusals.add_refusal(kind, process.rank, why[:200])
        else:
            sender = f"process {peer.pid}: " if peer else ""
            registry.refusals.add_refusal(kind if kind == NO_MESSAGE else STRANGER, None, sender + (why or kind)[:200])

    @property
    def bad_frames(self) -> int:
        """Return the number of received frames that were no message of ddpmon."""
        return self._store.registry.refusals.count_of(NO_MESSAGE)

    def _hello(self, process: RankProcess, unix: float) -> None:
        self._recorder.record_process(process)
        self._store.connected(unix)
        self._answer(process.identity, Welcome(self._epoch))

    def _last_contiguous(self, process: RankProcess) -> int:
        """Return the last number up to which all numbered messages (batches and Failures) of a process have arrived."""
        return process.seq + any(process.failed_of(failure) for failure in self._store.failures)

    def _misses(self, process: RankProcess, batch: Batch, now: float) -> bool:
        """Return whether batches before this batch are missing. If so, ask the rank to send them."""
        if batch.first_seq <= self._last_contiguous(process) + 1:
            return False
        if process.introduced:
            process.hole = True  # The rank began with the oldest batch that it still has.
            return False
        if now - process.asked_again_at >= ASK_AGAIN_S:
            process.asked_again_at = now
            self._answer(process.identity, Welcome(self._epoch, has_hello=False))
        return True

    def _batch(self, process: RankProcess, batch: Batch, now: float, left_out: list[str], *, from_file: bool) -> bool:
        """Process a batch, and return whether it was new and accepted."""
        if batch.seq <= process.seq:
            # The batch was accepted before and is sent again, because only the acknowledgement was lost.
            left_out.clear()
            process.introduced = False
            self._answer(process.identity, Ack(self._recorder.last_recorded_batch(process)))
            return False
        if self._misses(process, batch, now):
            if not from_file:
                left_out.clear()
                return False
            process.hole = True
        process.introduced = False
        process.hole = process.hole or bool(left_out)
        # A file may be older than this machine's last boot, which reset the clock.
        same_clock = process.hello.host == self._store.registry.host and not from_file
        left_out += plausible.leave_out(process, batch, round(now * 1e6) if same_clock else None)
        process.take_batch(batch, now)
        fresh = process.count_new_steps(batch.steps)
        if fresh and not self._store.registry.is_seated(process):
            self._store.registry.assign_rank(process, now)
        self._store.add_steps(process, fresh, now)
        if batch.closing_pauses:
            self._store.add_closing_pauses(process, batch.closing_pauses)
        self._store.add_digests(process, batch.digests)
        self._store.add_samples(process, batch.samples)
        self._store.add_logged(process, batch.scalars)
        self._recorder.record_batch(process, batch, fresh)
        return True

    def _bye(self, process: RankProcess, bye: Bye, now: float) -> None:
        self.heard_of_an_end = True
        if not process.left:
            process.mark_ended(now, left=True)
            process.stage = STAGE_ENDED
            process.dropped = bye.dropped
            self._recorder.record_process(process)
        if process.hello.through:
            self._recorder.write_soon()  # The next tick reports to the node's hub, for all its ranks.
            if bye.seq > self._last_contiguous(process):
                self._answer(process.identity, Welcome(self._epoch, has_hello=False))
            return
        self.record_all()
        settled = self._recorder.last_recorded_batch(process)
        if settled < process.seq:  # The disk failed, so the rank saves its unacknowledged batches in the run's folder.
            self._answer(process.identity, Ack(settled))
        elif bye.seq <= self._last_contiguous(process):
            self._answer(process.identity, Ack(bye.seq))
        else:
            self._answer(process.identity, Welcome(self._epoch, has_hello=False))

    def _failure(self, process: RankProcess, failure: Failure, now: float) -> None:
        self.heard_of_an_end = True
        if any(f.pid == failure.pid and f.rank == failure.rank for f in self._store.failures):
            return
        registry = self._store.registry
        holder = registry.process_of_rank.get(failure.rank)
        impossible = failure.rank >= max(registry.world_size, 1)
        if impossible or (process.attempt < 0 and holder is not None and not holder.gone):
            registry.refusals.add_refusal(STRANGER, why=f"an exception of process {failure.pid}, which is not a rank")
            return
        self._store.failures.append(failure)
        self._recorder.record_failure(failure)
        self._unreported.append((now, failure))

    def add_failure_events(self, now: float, unix: float, *, final: bool = False) -> None:
        """Add events about ranks' failures, one for each group of similar failures. If `final`, do not wait for further
        failures.
        """
        if not self._unreported:
            return
        processes = self._store.registry.process_of_rank.values()
        failed = {(failure.rank, failure.pid) for failure in self._store.failures}
        complete = all(process.gone or (process.rank, process.hello.pid) in failed for process in processes)
        if final or complete or now - self._unreported[0][0] >= ALIKE_S:
            failed_now = [failure for _, failure in self._unreported if self._store.is_failure(failure)]
            for severity, text in failures.events(failed_now, self._store.registry.world_size):
                self._store.add_event(unix, severity, text)
            self._unreported.clear()

    def ask_where(self) -> None:
        """Ask every connected rank for its stack."""
        for process in self._store.registry.process_of_rank.values():
            if process.greeted and not process.gone:
                self._answer(process.identity, Where())

    def ask(self, process: RankProcess, request: Where | SampleStacks | ProfileSteps) -> None:
        """Ask a rank for its stack, for samples of it, or for a profile."""
        self._answer(process.identity, request)

    def note_process_end(
        self, process: RankProcess, now: float, *, left: bool, end: End | None = None, steps: int = 0
    ) -> None:
        """Record in memory that a process of another node has ended.

        Args:
            process: The process.
            now: Seconds of the hub's clock.
            left: True if the process said Bye.
            end: Exit of the process according to the logs of its machine.
            steps: Number of steps that the process finished.

        """
        process.steps = max(process.steps, steps)
        process.end = end or process.end
        process.mark_ended(now, left=left)
        self._recorder.record_process(process)

    def write_and_acknowledge(self) -> None:
        """Write the queued records that are due, and acknowledge them to the ranks."""
        for process, seq in self._recorder.write():
            self._answer(process.identity, Ack(seq))

    def record_all(self) -> None:
        """Write all queued records, unless the disk fails, and acknowledge them to the ranks."""
        self._recorder.write_soon()
        self.write_and_acknowledge()
