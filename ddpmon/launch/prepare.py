"""Checks a user's request, and makes a run that can start from it: a new run, or an old run again."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpmon import runs
from ddpmon.errors import UsageError
from ddpmon.launch import spec, torchrun
from ddpmon.launch.start import new_run
from ddpmon.launch.torchrun import NodeOptions
from ddpmon.runs import Run

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "DDPMON_"


@dataclass(frozen=True)
class Asked:
    """Arguments of `ddpmon run`."""

    script: str
    """Path of the script; with `module`, the name of a module, as for `python -m`."""
    args: list[str] = field(default_factory=list)
    module: bool = False
    nproc: str = "1"
    """Ranks on this machine: a number, gpu, cpu or auto."""
    name: str | None = None
    """Name of the run; if None, the run is named after the script."""
    cwd: str | None = None
    """Folder in which the script runs; None: the current folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    nodes: NodeOptions = field(default_factory=NodeOptions)
    max_restarts: int = 0
    grace_s: float = 20.0
    buckets: bool = False
    on_alert: list[str] = field(default_factory=list)
    notify: list[str] = field(default_factory=list)


def prepare_run(options: Asked, run_id: str) -> Run:
    """Return a run that may start, for an id from `runs.new_id`. Raise UsageError on a wrong request."""
    check_folder(options.cwd)
    check_environment(options.environment)
    ranks = spec.processes(options.nproc)
    if options.module:
        spec.check_module(options.script, options.cwd)
    else:
        spec.check_script(options.script, options.cwd)
    name = runs.check_name(options.name) if options.name is not None else spec.name_for(options.script)
    spec.check_torch()
    command = torchrun.launch_command(
        options.script,
        options.args,
        module=options.module,
        nproc=ranks,
        nodes=options.nodes,
        max_restarts=options.max_restarts,
        grace_s=options.grace_s,
        run_id=run_id,
        log_dir=_log_dir(run_id),
    )
    return new_run(
        run_id,
        name=name,
        argv=command,
        script=options.script,
        script_args=options.args,
        world_size=ranks * options.nodes.count if options.nodes.least is None else 0,
        nnodes=options.nodes.count,
        grace_s=options.grace_s,
        buckets=options.buckets,
        cwd=options.cwd or spec.current_folder(),
        environment=dict(options.environment),
        notes=torchrun.unsupported_requests(options.grace_s),
        on_alert=options.on_alert,
        notify=options.notify,
    )


def prepare_again(run: Run, run_id: str) -> Run:
    """Return the same run under another id: its command, name, folder, and the variables set for it.

    Raises:
        UsageError: The run is still running, spans machines, or needs something that no longer exists.

    """
    if run.state() in {"running", "unknown"}:
        elsewhere = run.elsewhere()
        obstacle = f"{elsewhere}; stop it there" if elsewhere else "is running; stop it"
        raise UsageError(f"{run.name} {obstacle} first, then start the run again")
    if run.attached:
        raise UsageError(f"ddpmon did not start {run.name}, so it cannot start this job again; use ddpmon run")
    if run.nnodes > 1 or run.hub_at:
        raise UsageError(f"{run.name} ran on several machines; start the run again on each of them")
    check_folder(run.cwd)
    run = runs.with_secrets(run)
    logs = _log_option(run)
    if logs:  # The run was started by `ddpmon run`.
        (spec.check_module if _is_module(run) else spec.check_script)(run.script, run.cwd)
        spec.check_torch()
    if not run.argv:
        raise UsageError(f"{run.name}: ddpmon did not record the command of this run")
    if shutil.which(os.path.join(run.cwd, run.argv[0]) if "/" in run.argv[0] else run.argv[0]) is None:
        raise UsageError(f"no program {run.argv[0]}")
    line = run.argv
    if logs:
        own = {logs: f"--log-dir={_log_dir(run_id)}", torchrun.rendezvous_id(run.id): torchrun.rendezvous_id(run_id)}
        line = [own.get(word, word) for word in line]
    return new_run(
        run_id,
        name=run.name,
        argv=torchrun.without_unsupported(line) if logs else line,
        script=run.script,
        script_args=run.script_args,
        world_size=run.world_size if logs else 0,
        grace_s=run.grace_s,
        buckets=run.buckets,
        cwd=run.cwd,
        environment=run.environment,
        notes=torchrun.unsupported_requests(run.grace_s) if logs else [],
        on_alert=run.on_alert,
        notify=run.notify,
    )


def command_line(run: Run) -> list[str]:
    """Return the command line that starts a run like this one in its folder."""
    if run.attached or not run.argv:
        return run.argv or [run.script, *run.script_args]
    if _log_option(run) is None:
        return ["ddpmon", "exec", "--", *run.argv]
    nodes = ["--nnodes", str(run.nnodes)] if run.nnodes > 1 else []
    ranks = next((word.partition("=")[2] for word in run.argv if word.startswith("--nproc-per-node=")), "1")
    module = ["-m"] if _is_module(run) else []
    return ["ddpmon", "run", "--nproc", ranks, *nodes, *module, run.script, *run.script_args]


def _log_option(run: Run) -> str | None:
    """Return the option with which `ddpmon run` sets the ranks' log folder; None if another command started them."""
    ends = f"/{run.id}/ranks", f"/{run.id}/logs/ranks"
    return next((word for word in run.argv if word.startswith("--log-dir=") and word.endswith(ends)), None)


def _is_module(run: Run) -> bool:
    """Return whether `ddpmon run` was given a module rather than a file."""
    ours = run.argv[: run.argv.index("--")] if "--" in run.argv else run.argv
    return "-m" in ours[ours.index(_log_option(run) or ours[0]) :]


def check_folder(path: str | None) -> None:
    """Raise UsageError if the folder to run in does not exist; None means the current folder."""
    if path is not None and not os.path.isdir(path):
        raise UsageError(f"no folder {path}")


def check_environment(variables: Mapping[str, str]) -> None:
    """Raise UsageError if a variable's name is invalid or begins with `DDPMON_`."""
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"environment: {name!r} is not the name of a variable; write KEY=VALUE")
        if name.startswith(_OURS):
            raise UsageError(f"environment: ddpmon sets {name} itself; set this variable before you start ddpmon")


def _log_dir(run_id: str) -> str:
    """Return the log folder for torchrun: beside the run's sockets, because the disk with the runs may be full.

    The run's drain reads the ranks' output there.
    """
    return str(runs.socket_dir(run_id) / "ranks")
