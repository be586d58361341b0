"""The hub of one run: one thread, one loop around two sockets, a clock tick and signals."""

from __future__ import annotations

import contextlib
import gc
import secrets
import signal
import socket
import time
from functools import partial

import msgspec
import zmq

from ddpmon import proc, runs
from ddpmon.analysis.processes.explanation import is_consequence
from ddpmon.errors import DdpmonError
from ddpmon.hub.alerts import Alerts
from ddpmon.hub.bookkeeping import Bookkeeping
from ddpmon.hub.cores import Cores
from ddpmon.hub.cpu_budget import CpuBudget
from ddpmon.hub.nodes import MAX_NODES_END_S, Nodes
from ddpmon.hub.opening import open_recording
from ddpmon.hub.processes import Processes, StepCounters
from ddpmon.hub.profile_requests import ProfileRequests
from ddpmon.hub.sample_requests import SampleRequests
from ddpmon.hub.sockets import Sockets, process_messages, send_to_rank
from ddpmon.hub.stack_requests import StackRequests
from ddpmon.hub.usual_speed import UsualSpeed
from ddpmon.hub.viewers import Viewers
from ddpmon.messages import Ask, FromRank, Hello, Snapshot, ToRank, ViewRequest
from ddpmon.recording.collector import Collector
from ddpmon.store.endings import ends_here, whole_ending
from ddpmon.store.parts import with_parts
from ddpmon.store.processes import RankProcess
from ddpmon.store.view import snapshot

TICK_S = 0.5
MEND_S = 5.0
LAST_FRAMES_S = 0.3
ASK_WHERE_S = 3.0
ANALYSIS_SHARE = 0.125
"""Largest share of one core for the analysis. The analysis thus runs twice a second with some hundred ranks, and every
few seconds with 16,384 ranks."""
JUDGE_SHARE, JUDGE_S = 0.008, 0.9
"""Largest share of one core for updating findings, and the longest interval between updates in seconds."""
NODE_ANALYSIS_S = 5.0
"""Seconds between two analyses by a node's hub while its viewers get the root's snapshots."""
GATHER_MS = 100
"""Milliseconds that a node's hub waits for messages of further ranks after the first, because a turn of its loop costs
as much as the messages themselves."""
GC_THRESHOLD = 50_000, 20, 100
"""Thresholds of the garbage collector. They are high because the thousands of batches and samples that arrive form no
reference cycles. With Python's default thresholds and 16,384 ranks, collections took a third of a core."""
ORPHANED_S = 5.0
"""Seconds without a message of a rank after which the hub of a run without a supervisor ends by itself."""


class Hub:
    """Collects, records and serves one run until SIGTERM."""

    def __init__(self, run_id: str) -> None:
        """Bind the sockets and open the recording, or continue an existing one. Raise DdpmonError if that fails."""
        self._run_id = run_id
        run = runs.load(run_id)
        self._end_requested = False
        self._woken = self._listen_for_the_end()  # before any process can see the sockets
        self._sockets = Sockets(run_id)
        try:
            self._store, self._recorder = open_recording(run)
        except BaseException:
            self._sockets.close()
            raise
        self._epoch = secrets.token_hex(4)
        self._collector = Collector(self._store, self._recorder, self._epoch, self._answer, self._accept)
        self._nodes = Nodes(self._store, self._collector, partial(send_to_rank, self._sockets.ingest))
        self._viewers = Viewers(
            self._sockets.view,
            self._build,
            self._with_parts,
            self._ask,
            self._epoch,
            relay=self._nodes.relay_request,
            deliver=self._nodes.send_to_viewer,
        )
        self._nodes.take_role(self._viewers)
        self._asking = StackRequests(self._store.registry, self._collector.ask)
        self._sample_requests = SampleRequests(self._store, self._collector.ask)
        profiles = runs.run_dir(run_id)
        self._profile_requests = ProfileRequests(self._store, self._collector.ask, profiles)
        self._processes = Processes(self._store, self._recorder, self._asking)
        self._step_counters = StepCounters(self._store.registry)
        self._cores = Cores(self._store.registry.host)
        self._books = Bookkeeping(self._store, self._recorder, self._collector)
        self._usual_speed = UsualSpeed(self._store)
        told = self._store, self._store.add_event
        command, urls = runs.alerts(run)
        self._alerts = Alerts(command, *told), Alerts((), *told, urls=urls)
        now = time.monotonic()
        self._heard_at = now
        self._analysis, self._judging = CpuBudget(ANALYSIS_SHARE), CpuBudget(JUDGE_SHARE, JUDGE_S)
        self._judged_failures, self._judged_at = 0, float("-inf")
        self._has_fallen = False
        """True if a rank has died since the last judgement."""
        self._fault = ""
        """Traceback of the last judgement, or "" if it succeeded."""
        self._mended_at = self._stacks_asked_at = now
        self._run_stamp: object = None

    def serve(self) -> None:
        """Run until SIGTERM, or until a run without a supervisor has no ranks left."""
        poller = zmq.Poller()
        poller.register(self._sockets.ingest, zmq.POLLIN)
        poller.register(self._sockets.view, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        others = zmq.Poller()
        others.register(self._sockets.view, zmq.POLLIN)
        others.register(self._woken, zmq.POLLIN)
        try:
            next_tick = time.monotonic()
            while not self._end_requested and not self._orphaned():
                now = time.monotonic()
                due = self._viewers.next_due(now)
                wait = max(0.0, min(next_tick - now, self._nodes.every_s, TICK_S if due is None else due))
                self._nodes.keep_polled(poller)
                busy = self._recorder.backlog_is_large or self._recorder.too_large
                ready = dict(poller.poll(0 if busy else int(wait * 1e3) + 1))
                if self._nodes.root_shows and ready.keys() == {self._sockets.ingest}:
                    ready |= others.poll(GATHER_MS)
                now = time.monotonic()
                if self._sockets.ingest in ready and self._receive(now):
                    self._heard_at = now
                    if self._collector.heard_of_an_end:
                        self._collector.heard_of_an_end = False
                        self._report_dead(now, time.time())
                    if self._collector.stack_reported_at == now:
                        self._viewers.expect_news()
                if self._sockets.view in ready:
                    self._viewers.process_requests(now)
                if self._nodes.root_shows:
                    self._reload()  # Then the root learns of a stop together with the last messages of ranks.
                self._nodes.exchange_messages(now)
                if self._recorder.backlog_is_large:
                    self._collector.write_and_acknowledge()
                if self._recorder.too_large:
                    self._recorder.merge_oldest()
                if now >= next_tick:
                    self._tick(now, time.time())
                    next_tick = max(next_tick + TICK_S, now)
                self._viewers.answer_due(now)
            self._end()
        finally:
            self._recorder.close()
            self._nodes.close()
            self._sockets.close()

    def _listen_for_the_end(self) -> socket.socket:
        """Let SIGTERM end the loop, even during a poll, and return the socket that then becomes readable."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._wakeup = writer  # kept open until the hub ends
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def end(*_: object) -> None:
            self._end_requested = True

        signal.signal(signal.SIGTERM, end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # It may be pending.
        return reader

    def _tick(self, now: float, unix: float) -> None:
        self._reload()
        store = self._store
        self._books.take_tails()  # first, because these files may contain the Bye of a rank that has ended
        self._report_dead(now, unix)
        self._processes.find_ranks(now)
        self._cores.measure(now)
        if now - self._mended_at >= MEND_S:
            self._mended_at = now
            if self._sockets.rebind_deleted():
                store.add_event(unix, "warn", "somebody removed the run's sockets; the hub has made new sockets")
        self._collector.add_failure_events(now, unix)
        self._add_refusal_events(unix)
        stops = store.winding_down(unix) and store.state != "stopping"
        failed = len(store.failures) != self._judged_failures
        urgent = self._has_fallen or failed or stops or store.run.ended
        often_enough = self._nodes.root_shows and now - self._judged_at < NODE_ANALYSIS_S
        if urgent or (self._analysis.is_due(now) and not often_enough):
            with self._analysis.measured(now):
                self._analyse(now, unix, judge=urgent or self._judging.is_due(now))
        if self._profile_requests.process_answers(now) | self._processes.examine_silent(now):
            self._viewers.expect_news()
        if store.state == "stalled" and now - self._stacks_asked_at >= ASK_WHERE_S:
            self._stacks_asked_at = now
            self._collector.ask_where()
        self._viewers.process_requests(now)  # before the disk is written, so that viewers do not wait for it
        self._viewers.answer_due(now)
        self._books.write_due(now, unix)
        self._pass_on(now, unix)

    def _report_dead(self, now: float, unix: float) -> None:
        """Add events about ranks that have ended without Bye or exception.

        The hub also calls this just before it judges a rank's report of its own end, because the cause may be that
        another rank has ended.
        """
        store = self._store
        for process in self._mark_dead(now):
            self._has_fallen = True
            self._recorder.record_process(process)
            self._nodes.report_end(process)
            if process.left or store.winding_down(unix) or any(process.failed_of(f) for f in store.failures):
                continue
            others = (other for other in store.registry.process_of_rank.values() if other is not process)
            is_first = all(other.ended_us is None or other.ended_us == process.ended_us for other in others)
            own_faults = (f for f in store.failures_of(process.attempt) if not is_consequence(f))
            severity = "critical" if is_first and not any(own_faults) else "warn"
            if not store.blames_the_gone:
                severity = "info"
            store.add_event(unix, severity, f"rank {process.rank} (pid {process.hello.pid}) exited unexpectedly")

    def _analyse(self, now: float, unix: float, *, judge: bool) -> None:
        """Process the records that have arrived. If `judge` is true, also update findings and the verdict."""
        store = self._store
        self._judged_at = now
        store.add_arrived()
        if judge:
            self._has_fallen = False
            self._judged_failures = len(store.failures)
            with self._judging.measured(now):
                store.judge(now, unix)
            self._report_fault(unix)
            self._sample_requests.send_requests(now)
            self._check_alerts(now, unix)
            self._usual_speed.add_event_if_changed(unix)

    def _check_alerts(self, now: float, unix: float) -> None:
        for alerts in self._alerts:
            alerts.queue_alerts(now, unix)

    def _report_fault(self, unix: float) -> None:
        """Add an event, once, if a judgement raised because of a bug of ddpmon. Recording and viewing continue."""
        fault = self._store.fault
        if fault and fault != self._fault:
            print(fault, flush=True)
            self._store.add_event(unix, "warn", f"ddpmon's analysis of the run failed: {fault.splitlines()[-1]}")
        self._fault = fault

    def _add_refusal_events(self, unix: float) -> None:
        refusals = self._store.registry.refusals
        for text in refusals.new_sentences():
            self._store.add_event(unix, "warn", text)
        self._recorder.record_refusals(refusals.rows())

    def _pass_on(self, now: float, unix: float) -> None:
        """Send heartbeats with the state of the recording to other hubs, and update the notes for viewers."""
        self._nodes.send_heartbeats(now, unix, recorded=self._books.is_all_recorded)
        self._store.notes = [*self._books.notes(), *self._nodes.notes(now)]

    def _reload(self) -> None:
        """Read run.json again if it has changed."""
        path = runs.run_dir(self._run_id) / "run.json"
        with contextlib.suppress(OSError, DdpmonError):
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp != self._run_stamp:
                self._store.run = run = runs.load(self._run_id)
                self._run_stamp = stamp
                if run.ended:  # so that verdict and findings name the same cause at once
                    self._store.ending = whole_ending(run, self._store.registry)

    def _orphaned(self) -> bool:
        """Return whether no rank sends messages, and no supervisor or launcher is alive that could end this hub."""
        if time.monotonic() - self._heard_at < ORPHANED_S:
            return False
        run = self._store.run
        return (run.ended and not (run.supervisor and run.supervisor.alive())) or (
            run.lost() and not (run.agent and run.agent.alive())
        )

    def _receive(self, now: float) -> int:
        return process_messages(self._sockets.ingest, self._collector, now, time.time())

    def _answer(self, identity: bytes, message: ToRank) -> None:
        if not self._nodes.answer(identity, message):
            send_to_rank(self._sockets.ingest, identity, message)

    def _accept(self, process: RankProcess, message: FromRank) -> None:
        self._nodes.accept(process, message)
        if process.hello.through:
            self._heard_at = process.heard_at

        if isinstance(message, Hello):
            self._step_counters.open_counter(process)

    def _mark_dead(self, now: float) -> list[RankProcess]:
        """Mark ranks that have ended, and return them. Also count the steps that ended processes could not report."""
        fallen = self._store.registry.mark_dead(now)
        for process in self._step_counters.update_ended():
            self._recorder.record_process(process)
        return fallen

    def _build(self, version: int) -> Snapshot:
        return snapshot(self._store, self._epoch, version, time.monotonic(), time.time())

    def _ask(self, request: Ask) -> None:
        if request.profile_steps:
            self._profile_requests.request_profiles(
                request.ranks, request.profile_steps, time.monotonic(), request.peak_flops
            )
        else:
            self._asking.request_stacks(request.ranks, time.monotonic())
        self._viewers.expect_news()

    def _with_parts(self, shot: Snapshot, view_request: ViewRequest) -> Snapshot:
        shot = with_parts(shot, self._store, view_request)
        if view_request.printed is not None:
            printed = self._nodes.rank_output(view_request.printed, time.monotonic())
            shot = msgspec.structs.replace(shot, printed=printed)
        if view_request.cores is not None:
            shot = msgspec.structs.replace(shot, cores=self._cores.view(view_request.cores))
        return shot

    def _end(self) -> None:
        """Receive the remaining messages. If the run is over, record its end and send viewers the last snapshot."""
        deadline = time.monotonic() + LAST_FRAMES_S
        while time.monotonic() < deadline and self._sockets.ingest.poll(20):
            self._receive(time.monotonic())
        self._books.take_tails()
        self._reload()
        store = self._store
        over = store.run.ended or store.run.lost()
        if over:
            self._mark_dead(time.monotonic())
            self._nodes.report_run_end(ends_here(store.run, store.registry))
            self._hand_over()
        now, unix = time.monotonic(), time.time()
        self._collector.add_failure_events(now, unix, final=True)
        self._add_refusal_events(unix)
        if over:
            store.live = False
            self._mark_dead(time.monotonic())
        store.add_arrived(final=over)  # before silent ranks are marked as ended
        if over:
            store.ending = whole_ending(store.run, store.registry)
            for process in store.registry.process_of_rank.values():
                process.mark_ended(now, left=False)
                self._recorder.record_process(process)
            self._step_counters.update_ended()
        store.judge(now, unix)
        self._report_fault(unix)
        self._check_alerts(now, unix)
        self._books.keep_last(now, unix)
        self._pass_on(now, unix)
        recorded = self._recorder.unrecorded
        self._recorder.close()
        if self._recorder.unrecorded > recorded:
            store.judge(now, unix)
        if not over:
            return
        self._processes.delete_files()
        self._books.write_report()
        self._viewers.process_requests(time.monotonic())
        self._viewers.take_leave(time.monotonic())
        for alerts in self._alerts:
            alerts.finish(unix)

    def _hand_over(self) -> None:
        """Exchange the remaining messages: a node's hub sends them to the root, and the root waits for all nodes."""
        deadline = time.monotonic() + MAX_NODES_END_S
        while not self._nodes.is_all_transferred(now := time.monotonic()) and now < deadline:
            self._receive(now)
            self._nodes.exchange_messages(now)
            self._collector.record_all()
            self._nodes.send_heartbeats(now, time.time(), recorded=not self._recorder.trouble)
            time.sleep(0.02)
        self._collector.record_all()
        self._nodes.send_heartbeats(time.monotonic(), time.time(), recorded=not self._recorder.trouble)


def main(run_id: str) -> int:
    """Serve a run and return the exit code."""
    # The hub ignores signals for the terminal or the launcher's process group. The supervisor ends it with SIGTERM.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    proc.allow_most_files()  # Each connection needs a descriptor, and a thousand other hubs may connect.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    try:
        Hub(run_id).serve()
    except DdpmonError as error:
        print(error, flush=True)
        return 1
    return 0
