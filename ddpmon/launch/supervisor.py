"""python -m ddpmon.launch.supervisor RUN_ID: the parent of a run's command and of its hub.

Standard library only. It lives in a session of its own, so that no closed terminal reaches it, and adopts
every orphan below it, so that no process of the run can outlive the run. It writes run.json after its creation;
nobody else changes anything in there but the run's name.

    SIGTERM, SIGINT   stop: the ranks get the run's grace to end by themselves; a second one means now
    SIGUSR1           stop now
    --adopt           take over a run whose supervisor was killed, in order to stop it
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from ddpmon import runs
from ddpmon.errors import DdpmonError, RunNotFoundError
from ddpmon.launch import env, memory_kills, processes, remains
from ddpmon.launch.keeper import HubKeeper
from ddpmon.launch.life import HUB_END_S, Do, Life
from ddpmon.runs import Process

SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
IDLE_S = 1.0
ENDING_S = 0.1
"""How often it looks while the run ends: what is left need not be a child, whose end would be signalled."""
HUB_READY_S = 5.0


def say(text: str) -> None:
    """A line in supervisor.log."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


class Supervisor:
    """One run from its start to the end of its last process."""

    def __init__(self, run: runs.Run, adopted: bool = False, umask: int = 0o077) -> None:
        """umask: the command's; whoever started the run knows what its files are to be."""
        self.umask = umask
        self.run = run
        self.adopted = adopted
        self.life = Life(run.grace_s, command_ended=adopted)
        self.hub = HubKeeper(run.id, say)
        self.exit_code: int | None = None
        self._told = ""
        self._unwritten: dict[str, Any] = {}
        """Changes of `run` that are not in run.json yet."""

    def supervise(self) -> None:
        """Start the run (or find what is left of it), wait for its end, sweep, and tell the hub."""
        with contextlib.suppress(OSError):  # a full disk: nobody elsewhere will know that it runs
            self._lock = runs.hold(self.run.id)
        self._update(supervisor=Process.of(os.getpid()))
        before = memory_kills.count()
        if not self.adopted:
            self._keep_hub()
        if self.adopted or self._start_command():
            self._until_over()
        killed = "" if self.adopted else memory_kills.count().since(before)
        self._update(ended_at=time.time(), exit_code=self.exit_code, memory_kills=killed)
        self._end_hub()
        runs.remove_sockets(self.run.id)
        say("run ended")

    def _update(self, **changes: Any) -> None:
        self.run = dataclasses.replace(self.run, **changes)
        self._unwritten |= changes
        try:
            try:
                self.run = runs.update(self.run.id, **self._unwritten)
            except RunNotFoundError:  # somebody damaged it
                runs.save(self.run)
            self._unwritten = {}
        except OSError as error:  # a full disk is no reason to leave a run alone
            say(f"cannot write run.json: {error}")

    def _keep_hub(self, even_if_not_due: bool = False) -> None:
        if self.hub.start_if_due(time.monotonic(), even_if_not_due):
            self._update(hub=self.hub.process)

    def _start_command(self) -> bool:
        log = runs.run_dir(self.run.id) / "logs" / "launcher.log"
        try:
            whole = runs.whole(self.run)
            pid = processes.spawn(whole.argv, self._environment(whole), log, umask=self.umask)
        except DdpmonError as error:
            self.exit_code = 127
            self._update(error=str(error))
            return False
        except OSError as error:
            self.exit_code = 127
            self._update(error=f"cannot start {self.run.argv[0]}: {error.strerror}")
            return False
        self._update(agent=Process.of(pid) or Process(pid, 0))
        return True

    @staticmethod
    def _environment(run: runs.Run) -> dict[str, str]:
        return env.armed(run.id, {**os.environ, **run.environment}, buckets=run.buckets)

    def _until_over(self) -> None:
        while True:
            now = time.monotonic()
            ending = self.life.state != "running"
            do = self.life.tick(now, len(self._left()) if ending else 1)
            self._do(do)
            if do is Do.FINISH:
                return
            if not self.adopted:
                self._keep_hub()
            number = self._wait(ENDING_S if ending else IDLE_S)
            now = time.monotonic()
            if number in {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}:
                self._stop(now, number == signal.SIGUSR1)
            self._reap(now)

    @staticmethod
    def _wait(seconds: float) -> int | None:
        found = signal.sigtimedwait(SIGNALS, seconds)
        return found.si_signo if found else None

    def _stop(self, at: float, now: bool) -> None:
        if self.adopted or not self.life.command_ended:  # a run that ended by itself is not a stopped one
            self._update(stopping=True)
        self._do(self.life.stop(at, now))

    def _reap(self, at: float) -> None:
        """Take notice of children that ended; orphans that came to us are simply let go."""
        agent = self.run.agent
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            if agent and pid == agent.pid:
                say(f"command ended with {code}")
                self.exit_code = 128 - code if code < 0 else code
                self.life.ended(at, by_signal=code < 0)
            elif self.hub.process and pid == self.hub.process.pid:
                self.hub.ended(at, code)

    def _left(self) -> list[tuple[int, Process]]:
        """Every process of the run that still lives, with its parent's pid; never the hub."""
        hub = self.run.hub if self.adopted else self.hub.process
        if self.adopted:
            found = [(0, process) for process in remains.of_run(self.run.id)]
        else:
            found = processes.descendants(os.getpid())
        return [(parent, process) for parent, process in found if hub is None or process.pid != hub.pid]

    def _do(self, do: Do) -> None:
        if do is Do.ASK:
            self._ask()
        elif do in {Do.TERMINATE, Do.KILL}:
            left = [process for _, process in self._left()]
            text = f"{do.value}: {', '.join(str(process.pid) for process in left)}"
            if left and text != self._told:  # SIGKILL is repeated until nothing is left: once in the log is enough
                say(text)
                self._told = text
            for process in left:
                processes.send(process, signal.SIGTERM if do is Do.TERMINATE else signal.SIGKILL)
        elif do is Do.FINISH and (stuck := self._left()):
            say(f"{len(stuck)} process{'es survive' if len(stuck) > 1 else ' survives'} SIGKILL: stuck in the kernel")

    def _ask(self) -> None:
        """SIGTERM where somebody listens to it (to save a checkpoint), else SIGINT, as Ctrl-C would be.

        torchrun hands either one to its ranks. It must never get SIGUSR1: that kills it and leaves its ranks.
        """
        agent, left = self.run.agent, self._left()
        alive = agent is not None and agent.alive()
        is_rank = processes.is_rank
        ranks = [process for parent, process in left if is_rank(process.pid) and not is_rank(parent)]
        listeners = ranks or ([agent] if agent and alive else [process for _, process in left])
        catch = any(processes.catches(process.pid, signal.SIGTERM) for process in listeners)
        number = signal.SIGTERM if catch else signal.SIGINT
        say(f"stop: {number.name}, {self.run.grace_s:g} s of grace")
        if agent is None or not alive:
            for process in listeners:
                processes.send(process, number)
        elif catch:  # to the launcher alone: a rank in its group needs its DataLoader workers while it saves
            processes.send(agent, number)
        else:
            processes.send_group(agent, number)

    def _end_hub(self) -> None:
        """Let the hub write its last, then see that it is gone."""
        self._reap(time.monotonic())
        if not self.adopted:
            self._keep_hub(even_if_not_due=True)  # if it is down just now, one must still write the report
        hub, self.hub.process = self.run.hub if self.adopted else self.hub.process, None
        if hub is None:
            return
        # a hub that was only just started must have come far enough to take a SIGTERM for what it means
        view = runs.socket_dir(self.run.id) / "view.sock"
        self._wait_for_hub(hub, HUB_READY_S, view.exists)
        processes.send(hub, signal.SIGTERM)
        processes.send(hub, signal.SIGCONT)  # one that was stopped has not taken what the last ranks left
        self._wait_for_hub(hub, HUB_END_S, lambda: False)
        if hub.alive():
            say("hub does not end; SIGKILL")
            processes.send(hub, signal.SIGKILL)
            self._wait_for_hub(hub, 1.0, lambda: False)

    def _wait_for_hub(self, hub: Process, seconds: float, or_until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while hub.alive() and not or_until() and time.monotonic() < deadline:
            self._wait(ENDING_S)
            self._reap(time.monotonic())


def main() -> None:
    """Detach from whoever started this, then supervise."""
    parser = argparse.ArgumentParser(prog="ddpmon.launch.supervisor")
    parser.add_argument("run_id")
    parser.add_argument("--adopt", choices=("grace", "now"))
    arguments = parser.parse_args()
    try:
        run = runs.load(arguments.run_id)
        processes.become_subreaper()
    except (DdpmonError, OSError) as error:
        sys.exit(str(error))
    if os.fork():  # the one that started us waits for this first process only; init takes over the second
        os._exit(0)
    processes.become_subreaper()  # does not pass through a fork
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    umask = os.umask(0o077)  # what this process and the hub write is for their user alone
    supervisor = Supervisor(run, adopted=arguments.adopt is not None, umask=umask)
    if arguments.adopt:
        with contextlib.suppress(ProcessLookupError):
            os.kill(os.getpid(), signal.SIGUSR1 if arguments.adopt == "now" else signal.SIGTERM)
    supervisor.supervise()


if __name__ == "__main__":
    main()
