"""python -m ddpmon.launch.supervisor RUN_ID: the parent of a run's command and of its hub.

The supervisor has a session of its own, so that a closed terminal cannot end it. It adopts every orphaned descendant,
so that no process of the run can outlive the run. Once run.json exists, only the supervisor writes it; other processes
change only the run's name. The supervisor holds the run's lock until it ends, so that a run has at most one supervisor.
Standard library only.

    SIGTERM, SIGINT   stop: the ranks get the run's grace to end by themselves; repeated signals change nothing
    SIGQUIT           stop now
    --take-over       replace the killed supervisor of a run until the run's end

A full disk or a deleted folder delays the supervisor's writes but never ends the supervisor. If it cannot record how
the run ended, even in the reserved space, it retries for ten minutes (`WRITE_END_S`), or until a signal stops it. A
command that waits for the exit code waits as long.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import exit_traces, probe_environment, processes
from ddpmon.launch.kept_process import Draining
from ddpmon.launch.life import Do, Life
from ddpmon.launch.run_file import RunFile
from ddpmon.launch.run_processes import RunProcesses, ranks_of
from ddpmon.launch.supervising import ENDING_S, IDLE_S, STOPS, Supervising, SupervisorLog, become_supervisor
from ddpmon.runs import Process, jobs

SUPERVISOR_SIGNALS = STOPS | {signal.SIGCHLD}

journal = SupervisorLog(sys.stderr.fileno())
say = journal.write_line


class Supervisor(Supervising):
    """Supervises one run from its start, or from where a killed supervisor left it, to the end of its last process."""

    def __init__(self, file: RunFile, takes_over: bool = False, umask: int = 0o077) -> None:
        """Prepare to supervise a run.

        Args:
            file: The run.
            takes_over: An earlier supervisor of the run was killed.
            umask: The umask of the command, which is that of the process that started the run.

        """
        super().__init__(file, say)
        self.umask = umask
        self.takes_over = takes_over
        self.life = Life(file.run.grace_s)
        self.drain = Draining(file.run.id, say)
        self.processes = RunProcesses(file.run.id, say, takes_over or bool(file.run.job))
        self.exit_code: int | None = None
        agent = file.run.agent if takes_over else None
        self._command = exit_traces.Stranger(agent) if agent and agent.alive() else None
        """The command, if this supervisor replaced a killed one and the command is still alive; else None."""
        self._goodbyes_tell = True
        """True if goodbyes of all ranks prove that a command with an unknown exit code succeeded; False once its ranks
        were asked to end."""
        self._goes_on_without = False
        """True if the command has ended, but other commands that joined the run (`ddpmon exec`) are still running."""

    def supervise(self) -> None:
        """Start the run or take it over, wait for its end, end remaining processes, and let the hub conclude."""
        before = exit_traces.read_kill_counts()
        over_since = None
        if self.takes_over:
            over_since = self._take_over()
            self.drain.take_over(time.monotonic())
        else:
            self.drain.start_drain(time.monotonic())
        self._keep_hub()
        if self.takes_over or self._start_command():
            self._until_over()
        self.drain.end_process(self._wait_until)  # Logs must be complete before run.json says that the run has ended.
        killed = "" if self.takes_over else exit_traces.read_kill_counts().increased_since(before)
        if self.takes_over:
            self.exit_code = self._unseen_exit_code()
        self.file.write_final(ended_at=over_since or self.run.unix_now(), exit_code=self.exit_code, memory_kills=killed)
        self._until_written()
        self._conclude_run()

    def _take_over(self) -> float | None:
        """Adopt the remaining processes of the run; if there are none, return the Unix time at which the run ended."""
        run = self.run
        if run.hub and run.hub.alive():
            self.hub.take_over(run.hub)
        alive = self._remaining_processes()
        over_since = None if alive else exit_traces.last_sign_at(run)
        # A launcher that ended before its ranks was killed.
        self._goodbyes_tell = not run.stopping and (self._command is not None or not alive)
        grace_left_s = run.grace_left_s()
        self._goes_on_without = self._command is None and bool(self._job_members())
        ended = self._command is None and not self._goes_on_without
        self.life.take_over(ended, None if grace_left_s is None else time.monotonic() + grace_left_s)
        say(f"this supervisor replaces one that was killed; {len(alive)} processes of the run are alive")
        return over_since

    def _start_command(self) -> bool:
        try:
            whole = runs.with_secrets(self.run)
            environment, output = self._environment(whole), self.drain.output_descriptor()
            pid = processes.spawn_session(whole.argv, environment, output, umask=self.umask, hands_on_stdin=True)
        except DdpmonError as error:
            self.exit_code = 127
            self.file.change_fields(error=str(error))
            return False
        except OSError as error:
            self.exit_code = 127
            self.file.change_fields(error=f"cannot start {self.run.argv[0]}: {error.strerror}")
            return False
        finally:
            _close_stdin()  # Then the writer of the pipe notices when the command closes it.
        self.file.change_fields(agent=Process.of(pid) or Process(pid, 0))
        return True

    @staticmethod
    def _environment(run: runs.Run) -> dict[str, str]:
        # With world_size 0, the command starts the ranks itself, or nodes may join: other machines are possible.
        alone = run.nnodes == 1 and run.world_size > 0
        variables = {**os.environ, **run.environment}
        return probe_environment.rank_environment(
            run.id, variables, buckets=run.buckets, alone=alone, hub_given=bool(run.hub_at)
        )

    def _is_over(self) -> bool:
        """Check the processes of the run, handle what has changed, and return whether the run is over."""
        now = time.monotonic()
        if self._command and not self.life.command_ended and not self._command.alive():
            # torchrun ends after its ranks unless it is killed, so living ranks show that it was killed.
            self._handle_command_end(now, by_signal=bool(ranks_of(self._remaining_processes())))
        if self._goes_on_without and not self._job_members():
            self._handle_command_end(now, by_signal=False)
        counts_processes = self.life.state != "running" or self.life.command_ended
        alive = self._remaining_processes() if counts_processes else []
        ranks = ranks_of(alive)
        if self.life.state == "running" and self.life.command_ended and self.run.world_size and alive and not ranks:
            self._handle_command_end(now, by_signal=False)  # The launcher had ended already; now its ranks have too.
        do = self.life.due_action(now, len(alive) if counts_processes else 1, len(ranks))
        self._perform(do)
        if do is Do.FINISH:
            return True
        self.processes.see_it_passed_on(now, ranks, self.run.agent)
        self.drain.keep_draining(now)
        self._keep_hub()
        self.file.write_pending()
        journal.write_pending()
        number = self._next_signal(IDLE_S if self.life.state == "running" else ENDING_S)
        now = time.monotonic()
        if number in STOPS:
            self._handle_stop(now, number == signal.SIGQUIT)
        self._reap_children(now)
        return False

    @staticmethod
    def _next_signal(seconds: float) -> int | None:
        arrived = signal.sigtimedwait(SUPERVISOR_SIGNALS, seconds)
        return arrived.si_signo if arrived else None

    def _wait_for_signal(self, seconds: float) -> int | None:
        number = self._next_signal(seconds)
        self._reap_children(time.monotonic())
        return number

    def _handle_stop(self, at: float, now: bool) -> None:
        # A run that ended by itself was not stopped.
        if not self.run.stopping and (self.takes_over or not self.life.command_ended):
            self.file.change_fields(stopping=True, stopping_at=time.time())
        if now and self.run.stopping:
            self.file.change_fields(grace_ended_at=self.run.grace_ended_at or time.time())
        do = self.life.request_stop(at, now)
        if do is Do.NOTHING and self.life.state == "asked":
            say(
                f"somebody requested the stop again; {self.run.grace_left_s() or 0.0:.0f} s of the grace "
                "period are left"
            )
        self._perform(do)

    def _reap_children(self, at: float) -> None:
        """Reap children that ended. Orphans that this process adopted need nothing more."""
        agent = None if self.takes_over else self.run.agent
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
                self.exit_code = exit_traces.shell_code(code)
                if self._job_members():  # Processes that wait for this command alone need its code.
                    self.file.change_fields(command_code=self.exit_code)
                self._handle_command_end(at, by_signal=code < 0)
            elif self.hub.process and pid == self.hub.process.pid:
                self.hub.record_end(at, code)
            elif self.drain.process and pid == self.drain.process.pid:
                self.drain.record_end(at, code)

    def _handle_command_end(self, at: float, *, by_signal: bool) -> None:
        """Handle the end of the command, which is the end of the run unless others have joined it."""
        self._goes_on_without = not self._lets_nobody_join()
        if self._goes_on_without:
            return
        do = self.life.handle_command_end(at, by_signal)
        if do is Do.ASK_RANKS:
            self.file.change_fields(launcher_killed_at=time.time())
        self._perform(do)

    def _job_members(self) -> list[Process]:
        return [process for process, _ in jobs.members(self.run.id)] if self.run.job else []

    def _lets_nobody_join(self) -> bool:
        """Close the run to further members of the job. Return False if a member is still alive or may be joining."""
        if not self.run.job:
            return True
        try:
            with contextlib.closing(jobs.Job(self.run.job, wait=False)) as job:
                return job.end(self.run.id)
        except BlockingIOError:  # The process that holds the lock may be about to join.
            return False
        except (DdpmonError, OSError):  # Without a socket folder, a new task starts a run of its own.
            return not self._job_members()

    def _remaining_processes(self) -> list[tuple[int, Process]]:
        return self.processes.remaining(self.hub.process, self.drain.process)

    def _perform(self, do: Do) -> None:
        self._goodbyes_tell &= do in {Do.NOTHING, Do.FINISH, Do.TERMINATE}
        if do is Do.ASK:
            self.processes.ask_to_end(
                self._remaining_processes(), self.run.agent, self._job_members(), self.run.grace_s
            )
        elif do is Do.ASK_RANKS:
            alive = self._remaining_processes()
            self.processes.terminate(do.value, ranks_of(alive) or [process for _, process in alive])
        elif do is Do.TERMINATE:
            self.processes.terminate(do.value, [process for _, process in self._remaining_processes()])
        elif do is Do.KILL:
            self.processes.kill_all([process for _, process in self._remaining_processes()])
        elif do is Do.FINISH and (stuck := self._remaining_processes()):
            say(
                f"{len(stuck)} process{'es survive' if len(stuck) > 1 else ' survives'} SIGKILL, because a "
                "system call in the kernel does not return"
            )

    def _unseen_exit_code(self) -> int | None:
        """Return the exit code of a command that is not a child of this process: from the kernel, or inferred."""
        if self._command and (code := self._command.exit_code()) is not None:
            return exit_traces.shell_code(code)
        if self.run.command_code is not None:
            return self.run.command_code
        if not self._goodbyes_tell:
            return None
        return exit_traces.wait_for_exit_code(self.run, self._wait_and_keep_hub)


def _close_stdin() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def main() -> None:
    """Detach from the starting process, enter this process in run.json, and supervise the run."""
    file, takes_over, umask = become_supervisor("ddpmon.launch.supervisor", SUPERVISOR_SIGNALS, say)
    Supervisor(file, takes_over, umask).supervise()


if __name__ == "__main__":
    main()
