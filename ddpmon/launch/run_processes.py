"""Finds the processes of a run, even those that tried to detach from it, and ends them with signals.

Standard library only. A process belongs to a run if

- it was started with the run's environment,
- it prints into the run's logs or spools, even if its environment was cleared (`env -i`, `exec -c`),
- it is in the session or the process group of the run's command, or is a rank that ddpmon has attached to,
- or one of its ancestors belongs to the run for one of these reasons.

The run's supervisor and hub do not count.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable

from ddpmon import proc, runs
from ddpmon.errors import RunNotFoundError
from ddpmon.launch import processes, spool
from ddpmon.launch.life import Do
from ddpmon.runs import Process, Run, Sight

PASS_ON_S = 2.0
"""Longest time, in seconds, for a launcher to forward a signal to its ranks."""
FORKING_S = 5.0
"""Age of a rank, in seconds, up to which its launcher may not know the rank. torchrun records its ranks after it has
forked all of them. If torchrun is asked to end earlier, it leaves its ranks behind. Ranks this young have nothing to
save yet."""
_OURS = ("supervisor.log", "hub.log")
"""Logs that no process of the run itself prints into."""


class RunProcesses:
    """Every live process that a run started, except its hub and its drain."""

    def __init__(self, run_id: str, say: Callable[[str], None], elsewhere: bool) -> None:
        """Prepare to find a run's processes.

        Args:
            run_id: The run.
            say: Writes a line into the supervisor's log.
            elsewhere: Some processes are no descendants of this one: an earlier supervisor or another launcher
                started them.

        """
        self._run_id = run_id
        self._say = say
        self._elsewhere = elsewhere
        self._passing_on: tuple[signal.Signals, float] | None = None
        """The signal that the launcher should forward to its ranks, and the time in seconds at which it was sent. None
        once ddpmon has checked that the launcher forwards it."""
        self._known_until_ticks = math.inf
        """Start time, in clock ticks since boot. The stopped launcher may not know ranks that started later."""
        self._terminated: set[Process] = set()
        """Processes that were sent SIGTERM. A second SIGTERM would begin another checkpoint while the rank still writes
        the first one."""
        self._last_line = ""

    def remaining(self, *ours: Process | None) -> list[tuple[int, Process]]:
        """Return every live process of the run with its parent's pid, except `ours`: the hub and the drain."""
        alive = processes.descendants(os.getpid())
        if self._elsewhere:
            listed = {process for _, process in alive}
            alive += [(proc.parent(process.pid), process) for process in of_run(self._run_id) if process not in listed]
        own = {os.getpid(), *(process.pid for process in ours if process)}
        return [(parent, process) for parent, process in alive if process.pid not in own]

    def ask_to_end(
        self, remaining: list[tuple[int, Process]], agent: Process | None, members: list[Process], grace_s: float
    ) -> None:
        """Ask the run to end: with SIGTERM if a process handles it (to save a checkpoint), else with SIGINT, as Ctrl-C
        would.

        torchrun forwards either signal to its ranks. SIGUSR1 would kill torchrun and leave its ranks behind.

        Args:
            remaining: Every live process of the run, with its parent's pid.
            agent: The run's command.
            members: Commands that joined the run, each with processes of its own below it.
            grace_s: The run's grace in seconds, for the log.

        """
        alive = agent is not None and agent.alive()
        heads = [*([agent] if agent and alive else []), *members]
        listeners = ranks_of(remaining) or heads or [process for _, process in remaining]
        catch = any(proc.catches(process.pid, signal.SIGTERM) for process in listeners)
        number = signal.SIGTERM if catch else signal.SIGINT
        self._say(f"stop: {number.name}, {grace_s:g} s of grace")
        below = () if catch else processes.descendants(*(member.pid for member in members))
        # As with Ctrl-C, all these processes must get the signal. Their process group has other members, so signal each
        # process by itself.
        for process in (*members, *(process for _, process in below)):
            processes.send_signal(process, number)
        if not heads:
            for process in listeners:
                processes.send_signal(process, number)
            self._terminated.update(listeners if catch else ())
        elif agent is not None and alive:
            # Send SIGTERM to the launcher alone: the group includes DataLoader workers, which ranks may need to save.
            processes.send_signal(agent, number, to_group=not catch)
            self._passing_on = number, time.monotonic()
            booted_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            self._known_until_ticks = (booted_s - FORKING_S) * os.sysconf("SC_CLK_TCK")
        for _, process in remaining:
            processes.resume(process)  # A stopped process cannot end.

    def see_it_passed_on(self, at: float, rank_processes: list[Process], agent: Process | None) -> None:
        """Signal the ranks directly if their launcher does not forward the signal, or has left them behind."""
        if agent is not None and not agent.alive():
            unknown = [process for process in rank_processes if process.start_ticks > self._known_until_ticks]
            if unknown:
                self.terminate("sending SIGTERM to the ranks that the launcher did not end", unknown)
        if self._passing_on is None or agent is None or at - self._passing_on[1] < PASS_ON_S:
            return
        number, self._passing_on = self._passing_on[0], None
        if agent.alive() and proc.is_pending(agent.pid, number):
            self._terminated.update(rank_processes)
            self._signal_all(
                f"the launcher does not handle {number.name}; sending the signal to the ranks instead",
                rank_processes,
                number,
            )

    def terminate(self, reason: str, targets: list[Process]) -> None:
        """Send SIGTERM to each process that has not been sent one before."""
        fresh = [process for process in targets if process not in self._terminated]
        self._terminated.update(fresh)
        self._signal_all(reason, fresh, signal.SIGTERM)

    def kill_all(self, targets: list[Process]) -> None:
        self._signal_all(Do.KILL.value, targets, signal.SIGKILL)

    def _signal_all(self, reason: str, targets: list[Process], number: signal.Signals) -> None:
        text = f"{reason}: {', '.join(str(process.pid) for process in targets)}"
        # SIGKILL is repeated until nothing is left; one line in the log is enough.
        if targets and text != self._last_line:
            self._say(text)
            self._last_line = text
        for process in targets:
            processes.send_signal(process, number)
            processes.resume(process)


def of_run(run_id: str) -> list[Process]:
    """Return every live process of a run that is visible from here. Zombies count as dead."""
    members = set(processes.with_run_id(run_id)) | _printing_processes(run_id)
    not_counted = {Process.of(os.getpid())}
    try:
        run = runs.load(run_id)
    except RunNotFoundError:  # run.json is damaged, so only the environment and the output identify processes.
        pass
    else:
        if run.sight is Sight.PIDS:
            not_counted |= {run.supervisor, run.hub}
            if run.attached and not run.ended:
                members |= {each.process for each in run.attached if each.process.alive()}
            elif run.agent is not None and not run.ended:
                members |= _together_with(run.agent)
    members.update(below for _, below in processes.descendants(*(process.pid for process in members - not_counted)))
    return sorted(members - not_counted, key=lambda process: process.pid)


def _printing_processes(run_id: str) -> set[Process]:
    """Return the processes whose standard output or error is a log or spool of the run."""
    logs = os.path.realpath(runs.run_dir(run_id) / "logs") + "/"
    sockets = os.path.realpath(runs.socket_dir(run_id))
    printing = set()
    for pid in proc.pids():
        for descriptor in (1, 2):
            output = proc.descriptor_link(descriptor, pid)
            into_a_log = output.startswith(logs) and output.removeprefix(logs) not in _OURS
            if into_a_log or spool.log_of(output, run_id, sockets) is not None:
                printing.add(Process.of(pid))
    return {process for process in printing if process is not None}


def _together_with(agent: Process) -> set[Process]:
    """Return the processes in the session or the process group of the run's command.

    The kernel does not reuse a pid while a session or a process group has that number. So these processes belong to the
    command unless another process has the command's pid.
    """
    if Process.of(agent.pid) not in {None, agent}:
        return set()
    return {
        Process(pid, stat.start_ticks)
        for pid, stat in proc.stats().items()
        if agent.pid in {stat.group, stat.session}
        and stat.alive
        and stat.start_ticks >= agent.start_ticks > 0
        and proc.owner(pid) == os.getuid()
    }


def ranks_of(remaining: list[tuple[int, Process]]) -> list[Process]:
    """Return the ranks that a launcher started, without their DataLoader workers, which inherit their environment."""
    is_rank = processes.is_rank
    return [process for parent, process in remaining if is_rank(process.pid) and not is_rank(parent)]


def hand_to_ranks(run: Run, number: signal.Signals) -> tuple[int, int]:
    """Send a signal to the ranks on this machine that handle it. Return the numbers of ranks with and without handler.

    The launcher and ranks without a handler do not get the signal, because it would end them.
    """
    agent = run.agent
    if agent is None or not agent.alive():
        return 0, 0
    here = ranks_of([(proc.parent(agent.pid), agent), *processes.descendants(agent.pid)])
    listeners = [process for process in here if proc.catches(process.pid, number)]
    for process in listeners:
        processes.send_signal(process, number)
    return len(listeners), len(here) - len(listeners)
