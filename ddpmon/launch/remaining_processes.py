"""Finds the live processes of a run, even those that tried to detach from it. Standard library only.

A process belongs to a run if

- it was started with the run's environment,
- it prints into the run's logs or spools, even if its environment was cleared (`env -i`, `exec -c`),
- it is in the session or the process group of the run's command, or is a rank that ddpmon has attached to,
- or one of its ancestors belongs to the run for one of these reasons.

The run's supervisor and hub do not count.
"""

from __future__ import annotations

import os

from ddpmon import proc, runs
from ddpmon.errors import RunNotFoundError
from ddpmon.launch import processes, spool
from ddpmon.runs import Process, Sight

_OURS = ("supervisor.log", "hub.log")
"""Logs that no process of the run itself prints into."""


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

    The kernel does not reuse a pid while a session or group has that number. So these processes belong to the command
    as long as no other process has its pid.
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
