"""The background thread of a rank: it reads the training thread's notes, samples devices, and sends records.

A timer wakes this thread. The training thread never does: that would cost several percent of a short step. The
background thread never blocks the training, and its failures do not reach the training.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from msgspec.structs import replace

from ddpmon.messages import (
    LOSS_OF,
    MAX_TEXT,
    STAGE_ENDED,
    Batch,
    Bye,
    Digest,
    Failure,
    Layout,
    ProfileSteps,
    Sample,
    Scalar,
    Step,
    Where,
    encode,
)
from ddpmon.plain import utf8
from ddpmon.probe import output, stack_signal, update_counter
from ddpmon.probe.cpu_rivals import RivalSearch
from ddpmon.probe.cuda import is_pending, leave_captures_alone, resolve_reading
from ddpmon.probe.device_timeline import DeviceTimeline, has_passed
from ddpmon.probe.devices import Sampler
from ddpmon.probe.hub_socket import GOODBYE_S, HubSocket, PendingFrame
from ddpmon.probe.listener import Listener
from ddpmon.probe.loop_progress import Progress
from ddpmon.probe.own_descriptor import OwnDescriptor
from ddpmon.probe.profiler import Profiler
from ddpmon.probe.records import OTHER, RawStep
from ddpmon.probe.run_settings import leave_tail
from ddpmon.probe.setup_reader import SetupReader, configuration
from ddpmon.probe.stack_report import StackReporter
from ddpmon.probe.stack_sampler import StackSampler
from ddpmon.probe.step_records import StepRecords, closing_pauses, parts, unread

SEND_INTERVAL_S = 0.34
"""Seconds between two readings of notes, each of which takes 0.3 ms; less than the interval between snapshots."""
HEARTBEAT_S = 1.0
SAMPLE_S = 1.0
MAX_GIL_S = 0.0001
"""Seconds after which this thread offers the GIL to the training thread at its next call of `_make_way`. Between two
such calls it works for at most 0.2 ms.
"""
STEPS_PER_BATCH = 20
NOTES_AT_ONCE = 160
"""Number of notes to read between two offers of the GIL: as many as about twenty steps have."""
MAKE_WAY_S = 0.001
"""Seconds to sleep so that the training thread can wake up and take the GIL. After a shorter sleep, this thread would
often get the GIL first."""
READING_S = 5.0
"""Longest time in seconds that a step waits for its loss to arrive from the device."""


class Sender(threading.Thread):
    """Sends a listener's records to the hub at `address` until `finish` is called."""

    def __init__(self, listener: Listener, address: str) -> None:
        super().__init__(name="ddpmon", daemon=True)
        self._listener = listener
        self._hub = HubSocket(address, listener.identity, self._make_way)
        self._stopping = threading.Event()
        self._seq = 0
        self._last_batch = self._last_sample = 0.0
        self._woke = 0.0
        """Time at which this thread last returned from a sleep, during which other threads have the GIL."""
        self._exception_told = self._leaves_captures_alone = False
        self._is_last = False
        """True if the next batch is the last."""
        self._then: Callable[[], object] | None = None
        """Called when this thread ends, if ddpmon leaves the process; else None."""
        self._counters: OwnDescriptor | None = None
        self._moves = 0
        """Number of checks during pauses that found the training thread at work. Each counts as a heartbeat."""
        self._samples: list[Sample] = []
        self._step_records = StepRecords()
        self._of_steps: list[Scalar] = []
        """Losses of each model, from steps that update several models."""
        self._progress = Progress()
        self._timeline = DeviceTimeline()
        self._stacks = StackReporter(listener)
        self._stack_sampler = StackSampler(listener)
        self._profiler = Profiler(listener, self._make_way)
        self._setup = SetupReader(listener)
        self._rival_search = RivalSearch(listener.identity.facts.run_id)

    def start(self) -> None:
        """Start the thread. From now on the training thread's notes are queued for it."""
        hot = self._listener.hot
        hot.updates, descriptor = update_counter.shared(hot.updates)
        if descriptor >= 0:
            self._counters = OwnDescriptor(descriptor)
            descriptor = self._counters.number
        self._listener.identity.set_facts(counter_fd=descriptor)
        self._listener.defer()
        super().start()

    def finish(self) -> None:
        """Send the remaining records and the goodbye, and wait up to GOODBYE_S + 1 s for the end of the thread."""
        if self.is_alive():
            self._stopping.set()
            self.join(GOODBYE_S + 1.0)

    def close_in_child(self) -> None:
        """Close a forked child's copy of the connection, which belongs to its parent. The child has no such thread."""
        self._hub.close()

    def finish_later(self, then: Callable[[], object]) -> None:
        """End the thread as `finish` does, but without waiting. then: called by the thread at its end."""
        self._then = then
        self._stopping.set()
        if not self.is_alive():
            self._left()

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:
            self._listener.disable(error)
        finally:
            self._left()

    def _left(self) -> None:
        """Close the step counters and call `_then`, if `finish_later` was called."""
        then, self._then = self._then, None
        if then is not None:
            self._listener.hot.updates = update_counter.private()
            if self._counters is not None:
                self._counters.close()
            then()

    def _run(self) -> None:
        listener = self._listener
        identity = listener.identity
        self._sampler = Sampler(
            lambda: listener.native_thread,
            identity,
            lambda: listener.loader,
            listener.passes.worker_pids,
        )
        identity.set_facts(configuration=configuration())
        try:
            while not self._stopping.is_set():
                self._turn()
                self._stack_sampler.rest(self._stopping, SEND_INTERVAL_S)
            self._goodbye()
        finally:
            stack_signal.withdraw()
            self._hub.close()

    def _turn(self) -> None:
        """Do one turn: read the hub's messages, gather records, and send them."""
        now = self._woke = time.monotonic()
        if not self._leaves_captures_alone and self._listener.identity.cuda_device is not None:
            self._leaves_captures_alone = leave_captures_alone()
        for asked in self._hub.receive():
            if isinstance(asked, Where):
                self._stacks.request(brief=asked.brief)
            elif isinstance(asked, ProfileSteps):
                self._profiler.begin_profile(asked, now)
            else:
                self._stack_sampler.request(asked.seconds, now)
        self._make_way()
        if now - self._last_sample >= SAMPLE_S:
            self._last_sample = now
            self._samples.append(self._sampler.take_sample(self._make_way))
            self._make_way()
            self._look_for_rivals(self._samples[-1].starved_share, now)
        self._read()
        if self._last_sample == now:
            self._progress = self._read_progress(now)
            stack_signal.keep(self._listener.native_thread)
            self._make_way()
        if self._last_sample == now or not self._setup.settled:
            self._listener.identity.set_facts(setup=self._setup.read())
            self._make_way()
        output.relieve()
        self._report_exception()
        # During a pause, the script may call nothing that is hooked.
        if self._listener.clock.pausing is not None and self._stacks.has_moved():
            self._moves += 1
        self._gather(now)
        self._make_way()
        self._hub.send()
        self._hub.introduce_nodes(self._listener.account.start)
        if self._stacks.is_due(now):
            self._hub.send_once(self._stacks.capture(now))  # Only the latest stack matters.
        if self._stack_sampler.is_due(now) and (samples := self._stack_sampler.result()) is not None:
            self._hub.send_once(samples)  # If the message is lost, the hub asks again.
        self._profiler.advance_profile(self._hub.send_once)

    def _look_for_rivals(self, starved: float | None, now: float) -> None:
        thread = self._listener.native_thread or 0
        rivals = self._rival_search.find_rivals(starved, thread, now, self._make_way)
        if rivals is not None:
            self._listener.identity.set_facts(cpu_rivals=rivals)

    def _read(self) -> None:
        """Read all notes of the training thread."""
        listener = self._listener
        while listener.journal.read_notes(NOTES_AT_ONCE):
            self._make_way()
        start = listener.account.start
        if start is not None and listener.account.begins_at is None:
            listener.account.begins_at = start.agreed_start(listener.identity, listener.journal.held_count)
            if listener.account.begins_at is not None:
                listener.journal.release_notes()
                self._read()
                return
        clock = listener.clock
        update_counter.mark_read(listener.hot.updates, max(0, listener.account.updates - len(clock.held)), clock.step)

    def _read_progress(self, now: float) -> Progress:
        """Return the progress of the training loop, once steps count."""
        listener = self._listener
        return listener.loops.progress(listener.clock.step, now) if listener.account.steps_count else self._progress

    def _make_way(self) -> None:
        """Offer the GIL to the training thread if this thread has held it for MAX_GIL_S and is not ending."""
        if time.monotonic() - self._woke >= MAX_GIL_S and not self._stopping.is_set():
            time.sleep(MAKE_WAY_S)
            self._woke = time.monotonic()

    def _gather(self, now: float) -> None:
        """Encode the training thread's records as frames. An empty frame is the heartbeat."""
        steps = self._steps(now)
        scalars = self._scalars()
        digests = self._digests()
        if steps or scalars or digests or self._samples or now - self._last_batch >= HEARTBEAT_S or self._is_last:
            self._add_batch(steps, scalars, digests)
            while len(steps) == STEPS_PER_BATCH:
                self._make_way()
                if steps := self._steps(now):
                    self._add_batch(steps, [], [])
            self._last_batch = now

    def _steps(self, now: float) -> list[Step]:
        finished = self._listener.clock.finished
        steps: list[Step] = []
        while finished and len(steps) < STEPS_PER_BATCH:
            raw = finished[0]
            if raw.marks and not has_passed(raw):
                break
            if unread(raw) and now - raw.end / 1e9 < READING_S:
                break
            finished.popleft()
            self._stack_sampler.step_ended(raw)
            self._profiler.step_ended(raw)
            if raw.marks:
                raw = self._placed(raw)
            step, losses = self._step_records.record(raw)
            self._stacks.step_took(step.length_us * 1000)
            self._of_steps += [Scalar(step.step, LOSS_OF + name, loss) for name, loss in losses.items()]
            self._of_steps += self._profiler.utilization(step)
            steps.append(step)
        return steps

    def _placed(self, raw: RawStep) -> RawStep:
        """Return a step with its times on the GPU's timeline. The step's events go back to the pool."""
        placed = [self._timeline.place_step(part) for part in parts(raw)]
        events = self._listener.hot.events
        if events is not None:
            for part in parts(raw):
                events.recycle_step_events(part.marks)
        return replace(placed[-1], before=tuple(placed[:-1]))

    def _scalars(self) -> list[Scalar]:
        waiting = self._listener.account.scalars
        scalars, self._of_steps = self._of_steps, []
        while waiting and not is_pending(waiting[0][2]):
            step, name, value = waiting.popleft()
            number = resolve_reading(value)
            if number is not None:
                scalars.append(Scalar(step, name, number))
        return scalars

    def _digests(self) -> list[Digest]:
        waiting = self._listener.account.sampled
        digests: list[Digest] = []
        while waiting and (value := waiting[0].value()) is not None:
            sampled = waiting.popleft()
            where = sampled.group, sampled.sequence, sampled.updates, sampled.of
            digests.append(Digest(sampled.step, sampled.model, value, *where))
        return digests

    def _layouts(self) -> list[Layout]:
        waiting = self._listener.buckets.layouts if self._listener.buckets else ()
        return [waiting.popleft() for _ in range(len(waiting))] if waiting else []

    def _add_batch(self, steps: list[Step], scalars: list[Scalar], digests: list[Digest]) -> None:
        listener = self._listener
        self._seq += 1
        batch = Batch(
            rank=listener.identity.facts.rank,
            pid=os.getpid(),
            seq=self._seq,
            now_us=time.monotonic_ns() // 1000,
            stage=listener.identity.facts.stage,
            step=listener.clock.step,
            dropped=self._hub.outbox.dropped,
            phase=min(listener.clock.phase, OTHER),
            steps=steps,
            samples=self._samples,
            scalars=scalars,
            total_steps=listener.account.total_steps or self._progress.total,
            unsynchronised=listener.account.unsynchronised,
            digests=digests,
            layouts=self._layouts(),
            pausing=listener.clock.pausing,
            beats=listener.account.beats + self._moves,
            closing_pauses=closing_pauses(listener.clock) if self._is_last else [],
            epoch=self._progress.epoch,
            epochs=self._progress.epochs,
            skipped=sum(listener.account.skips),
            held_out=listener.account.held_out,
        )
        self._hub.outbox.add(PendingFrame(self._seq, encode(batch), len(steps) + len(self._samples) + len(scalars)))
        self._samples = []

    def _report_exception(self) -> None:
        """Report an uncaught exception to the hub, as soon as Python has recorded it."""
        error = getattr(sys, "last_value", None)
        if error is None or self._exception_told:
            return
        from ddpmon.probe.failure_facts import facts_of  # imported here, as only a failing rank needs it
        from ddpmon.redaction import redact_text

        self._exception_told = True
        listener = self._listener
        self._read()
        self._end_iteration()
        text = "".join(traceback.format_exception(error))
        failure = Failure(
            rank=listener.identity.facts.rank,
            pid=os.getpid(),
            time_us=time.monotonic_ns() // 1000,
            error=one_line(error),
            traceback=utf8(redact_text(text[-2 * MAX_TEXT :])[-MAX_TEXT:]),
            step=listener.clock.step,
            facts={name: utf8(value) for name, value in facts_of(error).items()},
        )
        self._seq += 1
        self._hub.outbox.add(PendingFrame(self._seq, encode(failure), 1))

    def _end_iteration(self) -> None:
        """Finish the last step, because training has ended, even if no optimizer consumed its gradients."""
        if self._listener.clock.held:
            self._listener.account.close()

    def _goodbye(self) -> None:
        """Send all remaining records. Frames that no hub acknowledges go into the run's folder for a later hub."""
        listener = self._listener
        self._read()
        self._hub.finish_exchange()
        self._report_exception()
        self._end_iteration()
        listener.identity.set_facts(setup=self._setup.read())  # A short script may end before its setup was read.
        listener.identity.reach_stage(STAGE_ENDED)
        self._is_last = True
        progress = self._read_progress(time.monotonic())
        if progress != self._progress:
            self._progress, self._last_batch = progress, 0.0  # A last batch, perhaps otherwise empty, has the progress.
        self._gather(time.monotonic())
        bye = Bye(listener.identity.facts.rank, os.getpid(), self._seq, self._hub.outbox.dropped)
        self._hub.say_goodbye(bye)
        if not self._hub.outbox.is_all_recorded:
            frames = self._hub.outbox.unacknowledged()
            leave_tail(bye.rank, [encode(listener.identity.facts), *(frame.payload for frame in frames), encode(bye)])


def one_line(error: BaseException) -> str:
    """Return an exception's type and message as one line, without added notes, and with secrets hidden.

    For an error that torch passes on from a DataLoader worker, this is the last line, the worker's own error.
    """
    from ddpmon.exception_text import in_one_line  # imported here, as only a failing rank needs it
    from ddpmon.redaction import redact_text

    lines = [line for line in "".join(traceback.format_exception_only(error)).splitlines() if line.strip()]
    notes = [line for note in getattr(error, "__notes__", ()) for line in str(note).splitlines() if line.strip()]
    lines = lines[: len(lines) - len(notes)]
    first = next(place for place, line in enumerate(lines) if not line.startswith(" "))  # skip a SyntaxError's location
    if "Original Traceback (most recent call last):" in lines:
        first = len(lines) - 1
    return utf8(redact_text(in_one_line(lines[first:])))
