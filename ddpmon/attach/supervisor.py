"""python -m ddpmon.attach.supervisor RUN_ID: enter the ranks of a job, watch it until it ends, or remove the probe.

This supervisor is the counterpart of `ddpmon.launch.supervisor` for a job that ddpmon did not start. Its only child is
the hub. The job's processes continue if the supervisor ends. Standard library only.

    SIGRTMIN          detach: remove the probe from all ranks; the job goes on
    SIGTERM, SIGINT   stop the job: signal its launcher, or without one its ranks, and SIGKILL them after the grace
    SIGQUIT           kill the job's launcher and ranks
    --take-over       replace a supervisor that was killed
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

from ddpmon import proc, runs
from ddpmon.attach import jobs, log_notes, probe_code
from ddpmon.attach.process_entry import HOLD_S
from ddpmon.attach.rank_entries import Entries
from ddpmon.attach.signals import DETACH
from ddpmon.launch import exit_traces, processes
from ddpmon.launch.exit_traces import Stranger
from ddpmon.launch.life import STOP_MARGIN_S
from ddpmon.launch.run_file import RunFile
from ddpmon.launch.supervising import IDLE_S, Supervising, SupervisorLog, become_supervisor
from ddpmon.runs import Process
from ddpmon.runs.run import ENDED, ENTERING, IN, STARTING, WAITING, Attached

ENTERING_INTERVAL_S = 0.05
LEAVING_S = 20.0
"""Longest time, in seconds, for ranks to remove the probe. A rank in C code removes the probe when it returns to Python
code, even after this time."""
RESTART_S = 30.0
"""Seconds after the end of all ranks within which their launcher must end or start new ranks."""
RANK_SEARCH_S = 2.0
"""Interval, in seconds, at which the supervisor searches for new ranks of the launcher."""
UNKNOWN = "the job has ended; ddpmon cannot see its exit code, because ddpmon did not start the job"
ATTACH_SIGNALS = (DETACH, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD)

journal = SupervisorLog(sys.stderr.fileno())
say = journal.write_line


class Supervisor(Supervising):
    """Supervises one attached run: injects the probe into the ranks, and ends with the job or the probe's removal."""

    def __init__(self, file: RunFile, takes_over: bool) -> None:
        super().__init__(file, say)
        self.folder = runs.run_dir(file.run.id) / "attach"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.launcher = Stranger(file.run.agent) if file.run.agent else None
        self.ranks = {each.process: Stranger(each.process) for each in file.run.attached}
        self.entries: Entries | None = None
        """The current round: it arms the probe in the ranks, or disarms it."""
        self.leaving_since: float | None = None
        self.why_left = ""
        """The error because of which the probe was removed from the ranks; "" if a user requested the removal."""
        self.killed_at: float | None = None
        self.kill_at: float | None = None
        self.below: set[Process] = set()
        """Descendants of the launcher and the ranks since a stop was requested, such as DataLoader workers."""
        self.alone_since: float | None = None
        """Monotonic time since which the launcher has had no ranks."""
        self.searched_at = 0.0
        self.rounds = 0
        self._takes_over = takes_over
        self._woken = self._listen()

    def supervise(self) -> None:
        """Enter the ranks, wait until the run is over, write down how it ended, and end the hub."""
        if self._takes_over:
            self._go_on()
        self._keep_hub()
        if not self._takes_over:
            with contextlib.suppress(OSError):  # The disk may be full.
                log_notes.note(self.run.id, self.run.attached)
            self._enter(self.run.attached)
        self._until_over()
        self._finish()
        self._conclude_run()

    # --- one turn of the loop --------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        now = time.monotonic()
        self._take_signals(now)
        self._advance()
        if self.kill_at is not None:
            self._note_below()
        if self._left(now):
            return True
        if self._ended(now):
            self._end_below()
            return True
        if self.kill_at is not None and now >= self.kill_at:
            self._kill()
        self._reap(now)
        self._keep_hub()
        self.file.write_pending()
        journal.write_pending()
        self._wait(ENTERING_INTERVAL_S if self.entries or self.kill_at is not None else IDLE_S)
        return False

    def _listen(self) -> socket.socket:
        """Make signals wake the loop. Returns a socket that gets one byte for each signal."""
        reader, self._writer = socket.socketpair()
        reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in ATTACH_SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ATTACH_SIGNALS)
        return reader

    def _wait(self, seconds: float) -> None:
        """Wait for a signal or the end of a process, for at most `seconds`."""
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        for stranger in [*self.ranks.values(), *([self.launcher] if self.launcher else [])]:
            if stranger.descriptor >= 0 and stranger.alive():
                poller.register(stranger.descriptor, select.POLLIN)
        poller.poll(seconds * 1e3)

    def _take_signals(self, now: float) -> None:
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = self._woken.recv(256)
        if signal.SIGQUIT in numbers:
            self._stop(now, at_once=True)
        elif signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._stop(now, at_once=False)
        if DETACH in numbers and self.leaving_since is None:
            self.file.change_fields(detaching=True)
            self._leave("")

    # --- injecting and removing the probe --------------------------------------------------------------------------

    def _enter(self, ranks: list[Attached]) -> None:
        run = self.run
        address, folder = runs.ingest_address(run.id), runs.run_dir(run.id)
        given = bool(run.hub_at)

        def text(reply: Path) -> str:
            return probe_code.arm(address, run.id, folder, reply, len(run.attached), hub_given=given)

        self.entries = self._round(ranks, "arm", text)

    def _leave(self, why: str) -> None:
        """Remove the probe from every rank in which it is armed or being armed. why: the error; "" if a user requested
        it.
        """
        say(f"removing the probe from the ranks: {why or 'on request'}")
        self.why_left, self.leaving_since = why, time.monotonic()
        inside = [
            each
            for each in self.run.attached
            if each.state in {ENTERING, WAITING, STARTING, IN} and each.process.alive()
        ]
        self.entries = self._round(inside, "disarm", probe_code.disarm)

    def _round(self, ranks: list[Attached], what: str, text: probe_code.Writer) -> Entries:
        self.rounds += 1
        return Entries(ranks, self.folder, text, f"{what}-{self.rounds}")

    def _advance(self) -> None:
        """Update the states of the ranks in run.json, and begin to leave all ranks if one cannot be entered."""
        entries = self.entries
        if entries is None or not entries.poll():
            return
        if self.leaving_since is not None:
            return
        entered = {each.process: each for each in entries.ranks}
        attached = [entered.get(each.process, each) for each in self.run.attached]
        worlds = [reply.get("world") for reply in entries.replies.values()]
        world = max([self.run.world_size, *(size for size in worlds if type(size) is int and size < 1 << 17)])
        self.file.change_fields(attached=attached, world_size=world)
        for each in entries.ranks:
            say(f"{each.name}: {each.state}{': ' if each.why else ''}{each.why}")
            if frames := entries.stacks.pop(each.process, None):
                with contextlib.suppress(OSError):  # The disk may be full.
                    log_notes.stack(self.run.id, each.name, frames)
        refused = entries.refused
        if refused and not entries.entering:  # A running debugger could still arm the probe after its removal.
            self._leave(f"{refused.name}: {refused.why}")
        elif entries.settled:
            self.entries = None

    def _left(self, now: float) -> bool:
        """Return whether all ranks have removed the probe, or `LEAVING_S` has passed since the request."""
        if self.leaving_since is None or self.entries is None:
            return False
        if not self.entries.settled and now - self.leaving_since < LEAVING_S:
            return False
        for each in self.entries.ranks:
            if each.state != IN:
                say(f"{each.name} still has the probe: {each.why or each.state}")
        return True

    # --- the end of the job ----------------------------------------------------------------------------------------

    def _ended(self, now: float) -> bool:
        """Return whether the job is over: its ranks have ended, and its launcher has ended or starts no new ranks."""
        if any(rank.alive() for rank in self.ranks.values()):
            self.alone_since = None
            return False
        if self.launcher is None or not self.launcher.alive():
            return True
        self.alone_since = self.alone_since or now
        if now - self.searched_at >= RANK_SEARCH_S:
            self.searched_at = now
            self._enter_restarted()
        return self.alone_since is not None and now - self.alone_since >= RESTART_S

    def _enter_restarted(self) -> None:
        """Inject the probe into the ranks that the launcher has restarted, once all of them have a process group."""
        if self.run.agent is None or self.leaving_since is not None or self.run.stopping:
            return
        if any(processes.is_rank(pid) for pid in proc.children().get(self.run.agent.pid, ())):
            self.alone_since = None  # The new ranks may need long to import torch.
        again = next((job for job in jobs.find_all() if job.launcher == self.run.agent), None)
        if again is None or len(again.ranks) < len(self.ranks) or not all(rank.has_group for rank in again.ranks):
            return  # Ranks are still starting, and further ones may follow.
        say(f"the launcher has started {len(again.ranks)} new ranks")
        attached = [Attached(each.process, each.rank, ENTERING) for each in again.ranks]
        self.file.change_fields(attached=attached)
        self.ranks = {each.process: Stranger(each.process) for each in attached}
        self._enter(attached)

    def _go_on(self) -> None:
        """Continue a run whose supervisor was killed, from the state in run.json."""
        if self.run.hub and self.run.hub.alive():
            self.hub.take_over(self.run.hub)
        attached = [
            dataclasses.replace(each, state=ENDED) if not each.process.alive() else each for each in self.run.attached
        ]
        self.file.change_fields(attached=attached)
        if (left_s := self.run.grace_left_s()) is not None:
            self.kill_at = time.monotonic() + left_s + STOP_MARGIN_S
        self._let_debuggers_end()
        if self.run.detaching:
            self._leave("")
        elif under_way := [each for each in attached if each.state in {ENTERING, WAITING, STARTING}]:
            self._enter(under_way)  # If a rank runs the code a second time, it keeps its first probe.
        say("this supervisor replaces one that was killed")

    def _let_debuggers_end(self) -> None:
        """Wait until no debugger of the killed supervisor is at work: a process can have only one at a time."""
        deadline, folder = time.monotonic() + HOLD_S, str(self.folder)
        while time.monotonic() < deadline and any(folder in " ".join(proc.arguments(pid)) for pid in proc.pids()):
            time.sleep(ENTERING_INTERVAL_S)

    def _stop(self, now: float, *, at_once: bool) -> None:
        if not self.run.stopping:
            self.file.change_fields(stopping=True, stopping_at=time.time())
            self._note_below()
            self._ask()
            self.kill_at = now + self.run.grace_s + STOP_MARGIN_S
        if at_once:
            self.file.change_fields(grace_ended_at=self.run.grace_ended_at or time.time())
            self.kill_at = now

    def _ask(self) -> None:
        """Ask the job to stop with a signal to the launcher, which forwards it. Without a launcher, signal the ranks.

        The signal is SIGTERM where a rank handles it or a process ignores SIGINT, else SIGINT.
        """
        alive = [process for process, rank in self.ranks.items() if rank.alive()]
        to = [self.run.agent] if self.run.agent and self.launcher and self.launcher.alive() else alive
        listens = any(proc.catches(each.pid, signal.SIGTERM) for each in alive)
        deaf = any(proc.ignores(each.pid, signal.SIGINT) for each in to)
        number = signal.SIGTERM if listens or deaf else signal.SIGINT
        say(f"stop: {number.name} to {', '.join(str(each.pid) for each in to)}, {self.run.grace_s:g} s of grace")
        for each in to:
            processes.send_signal(each, number)
        for each in (*to, *alive):
            processes.resume(each)

    def _kill(self) -> None:
        alive = [process for process, rank in self.ranks.items() if rank.alive()]
        if self.killed_at is None:
            self.killed_at = time.monotonic()
            say("SIGKILL to the launcher and the ranks")
        for each in [*([self.run.agent] if self.run.agent else []), *alive]:
            processes.send_signal(each, signal.SIGKILL)

    def _note_below(self) -> None:
        """Remember the descendants of the job's processes, which cannot be found after their parents have ended."""
        roots = [each.pid for each in (*self.ranks, *([self.run.agent] if self.run.agent else [])) if each.alive()]
        self.below |= {process for _, process in processes.descendants(*roots)} - self.ranks.keys()

    def _end_below(self) -> None:
        """Kill the remaining descendants of a stopped job.

        A DataLoader worker that was just starting does not notice that its rank has ended.
        """
        left = [process for process in self.below if process.alive()]
        if left:
            say(f"SIGKILL to remaining child processes of the ranks: {', '.join(str(process.pid) for process in left)}")
        for process in left:
            processes.send_signal(process, signal.SIGKILL)

    def _finish(self) -> None:
        """Write into run.json how the run ended."""
        run = self.run
        if self.leaving_since is not None:
            attached = [dataclasses.replace(each) for each in run.attached]
            changes = {"error": self.why_left} if self.why_left else {"detached_at": time.time()}
            self.file.write_final(ended_at=run.unix_now(), attached=attached, **changes)
        else:
            code = None if run.stopping else self._exit_code()
            error = UNKNOWN if code is None and not run.stopping else None
            self.file.write_final(ended_at=run.unix_now(), exit_code=code, error=error)
        self._until_written()

    def _exit_code(self) -> int | None:
        """Return the launcher's exit code; without a launcher, the first failing exit code of a rank. None if unknown.

        The kernel reports the exit codes. If it does not, the code is inferred from the goodbyes of the ranks.
        """
        codes = [each.exit_code() for each in ([self.launcher] if self.launcher else self.ranks.values())]
        seen = [code for code in codes if code is not None]
        if len(seen) == len(codes):
            return exit_traces.shell_code(next((code for code in seen if code), 0))
        return exit_traces.wait_for_exit_code(run=self.run, pause=self._wait_and_keep_hub)

    # --- the hub ---------------------------------------------------------------------------------------------------

    def _reap(self, now: float) -> None:
        """Reap the hub's process if it has ended."""
        hub = self.hub.process
        if hub is None:
            return
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(hub.pid, os.WNOHANG)
            if pid:
                self.hub.record_end(now, os.waitstatus_to_exitcode(status))

    def _wait_for_signal(self, seconds: float) -> None:
        time.sleep(seconds)
        self._reap(time.monotonic())


def main() -> None:
    """Detach from the starting process, enter this process in run.json as the supervisor, and supervise the run."""
    file, takes_over, _ = become_supervisor("ddpmon.attach.supervisor", ATTACH_SIGNALS, say)
    Supervisor(file, takes_over).supervise()


if __name__ == "__main__":
    main()
