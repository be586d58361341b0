"""ddpmon run and ddpmon exec: start a run, then watch it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpmon import runs
from ddpmon.cli.options import Notify, WholeNumber, grace, lines, notifications, on_alert, root_hub, theme, trackers
from ddpmon.cli.streams import survive_lost_output
from ddpmon.errors import RunNotFoundError, UsageError
from ddpmon.runs import job_key

if TYPE_CHECKING:
    from ddpmon.launch.given_hub import GivenHub
    from ddpmon.runs import Run
    from ddpmon.runs.jobs import Job

EXIT_CODES = """
    \b
    Exit codes:
      {code}
      130         somebody stopped the run
      143         a SIGTERM to this command stopped the run
      0           you left the dashboard; the run goes on
      1 or 2      the run did not start; one line on stderr says why
      1           the run's supervisor was killed: outcome unknown
"""

TORCHRUNS = """torchrun's  the run has ended (0: done; 1: a rank failed, with any exit code
                  of its own, which the verdict and the report name)"""

OUTPUT = """
    ddpmon saves up to 256 MB of the ranks' output in the run's folder; DDPMON_LOGS=2G raises the limit. Above this
    limit, ddpmon saves the beginning and the end of the output. If the disk is full, training continues, and the log
    says how many bytes of output are missing.

    The ranks read the standard input of this command, as with torchrun. With the dashboard open, the keyboard controls
    the dashboard, and the ranks have no input.
"""

_OURS_COME_FIRST = {"allow_interspersed_args": False}


def _watch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--name", help="Name of the run; the default is the script's name."),
        grace,
        click.option(
            "--buckets",
            is_flag=True,
            help="Also record the all-reduce of each gradient bucket; this costs one more pass over the gradients.",
        ),
        on_alert,
        root_hub("Without --hub, the hubs of the machines find each other once the process group exists."),
        notifications,
        trackers,
        theme,
        lines,
    ):
        function = option(function)
    return function


@click.command(
    context_settings=_OURS_COME_FIRST,
    help=f"""Start SCRIPT with torchrun and watch it.

    Arguments after SCRIPT go to the script, which needs no change. In a terminal, the dashboard opens: q closes it and
    the run continues, x stops the run. Without a terminal, Ctrl-C stops the run and a second Ctrl-C kills it.

    In a Slurm job, start one task per node: srun ddpmon run --nproc gpu SCRIPT. In a Slurm job, ddpmon takes the
    addresses of the nodes from Slurm's environment variables. ddpmon also reads torchrun's own environment variables,
    such as PET_NNODES, which Kubeflow's TrainJob sets. ddpmon passes SIGUSR1 and SIGUSR2 on to the ranks that have a
    handler for them.
    {OUTPUT}{EXIT_CODES.format(code=TORCHRUNS)}""",
)
@click.option(
    "--nproc",
    "--nproc-per-node",
    metavar="N",
    help="Number of ranks on this machine, or gpu (one per GPU), cpu or auto.  [default: $PET_NPROC_PER_NODE, or 1]",
)
@click.option("-m", "module", is_flag=True, help="Run SCRIPT as a module, like python -m.")
@click.option(
    "--max-restarts", type=WholeNumber(0), metavar="N", default=0, show_default=True, help="Restarts by torchrun."
)
@click.option(
    "--nnodes",
    metavar="N",
    help="Number of machines in this run, or MIN:MAX for an elastic run.  [default: $PET_NNODES, or the number in "
    "the Slurm job step, or 1]",
)
@click.option("--node-rank", type=int, help="Number of this machine, counted from 0.")
@click.option(
    "--rdzv-endpoint",
    metavar="HOST:PORT",
    help="Address of torchrun's rendezvous: the host of machine 0 and a free port on it.",
)
@_watch_options
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    nproc: str | None,
    module: bool,
    max_restarts: int,
    nnodes: str | None,
    node_rank: int | None,
    rdzv_endpoint: str | None,
    name: str | None,
    grace: float,
    buckets: bool,
    on_alert: list[str],
    hub: str | None,
    hub_key: Path | None,
    headless: bool,
    every: float,
    notify: Notify,
    script: str,
    args: tuple[str, ...],
    **places: str | None,
) -> int:
    """Start a script with torchrun."""
    from ddpmon.launch import node_environment, torchrun
    from ddpmon.launch.given_hub import given_hub
    from ddpmon.launch.last_launch import form_for, store_form
    from ddpmon.launch.prepare import Asked, prepare_run

    by_environment = None
    if nnodes is None and node_rank is None and rdzv_endpoint is None:
        by_environment = node_environment.nodes_from_environment(os.environ) or node_environment.job_step_nodes(
            os.environ
        )
    nodes = by_environment or torchrun.node_options(nnodes or "1", node_rank, rdzv_endpoint)
    if hub is not None and nodes.count == 1:
        raise UsageError(
            "--hub is for runs over several machines, which also need --nnodes, --node-rank and --rdzv-endpoint"
        )
    options = Asked(
        script,
        list(args),
        module,
        nproc if nproc is not None else node_environment.ranks_per_node(os.environ),
        name,
        nodes=nodes,
        max_restarts=max_restarts,
        grace_s=grace,
        buckets=buckets,
        on_alert=on_alert,
        notify=notify.urls,
    )
    given = given_hub(hub, hub_key, os.environ, nodes.rank)
    with runs.reserved() as run_id:
        prepared = prepare_run(options, run_id)
        if options.nodes.count == 1:
            store_form(form_for(options))
        return _start(prepared, given, headless, every, notify.way, places)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def key(file: Path) -> int:
    """Write a new key for --hub to FILE. Only you can read FILE.

    Copy FILE to every machine of the job (scp -p keeps its mode), or set DDPMON_HUB_KEY to its content. Everyone who
    has the key can see the run and stop it.
    """
    job_key.make(file)
    print(f"wrote a new key to {file}; on every machine, use ddpmon run --hub HOST:PORT --hub-key {file}")
    return 0


@click.command(
    "exec",
    context_settings=_OURS_COME_FIRST,
    help=f"""Run any command, and watch every Python process that it starts.

    Use this command with launchers other than torchrun: ddpmon exec -- python train.py --world_size 2 --rank 0. The run
    ends when CMD exits.

    A launcher such as srun or mpirun may also start one ddpmon exec per rank: srun ddpmon exec -- python train.py. On
    each machine, the first ddpmon exec of a job starts a run, and the others join that run. Each ddpmon exec exits with
    the exit code of its own CMD.
    {OUTPUT}{EXIT_CODES.format(code="CMD's       CMD has ended (0: done)")}""",
)
@_watch_options
@click.option(
    "--apart",
    is_flag=True,
    help="Start a separate run for each task of a job; use this if each task trains its own model.",
)
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, required=True)
def exec_(
    name: str | None, grace: float, buckets: bool, on_alert: list[str], hub: str | None, hub_key: Path | None,
    headless: bool, every: float, notify: Notify, apart: bool, cmd: tuple[str, ...],
    **places: str | None,
) -> int:  # fmt: skip
    """Run the user's command line."""
    from ddpmon.launch import joining, spec
    from ddpmon.launch.given_hub import given_hub
    from ddpmon.launch.start import new_run

    if shutil.which(cmd[0]) is None:
        raise UsageError(f"there is no program {cmd[0]}")
    script = next((word for word in cmd if word.endswith(".py")), cmd[0])
    run_name = runs.check_name(name) if name is not None else spec.name_for(script)
    task = None if apart else joining.place_in_job(os.environ)
    given = given_hub(hub, hub_key, os.environ)
    command = list(cmd)
    with joining.joined_or_first(command, task) as job, runs.reserved() as run_id:
        prepared = new_run(
            run_id, name=run_name, argv=command, script=cmd[0], script_args=command[1:], cwd=spec.current_folder(),
            world_size=0,
            grace_s=grace, buckets=buckets, on_alert=on_alert, notify=notify.urls, job=task.job if task else "",
            job_rank=task.rank if task else None,
        )  # fmt: skip
        return _start(prepared, given, headless, every, notify.way, places, job)


def _start(
    prepared: Run, hub: GivenHub | None, headless: bool, every: float, notify: str,
    places: Mapping[str, str | None], job: Job | None = None,
) -> int:  # fmt: skip
    from ddpmon.cli import watching
    from ddpmon.cli.publisher import Publisher
    from ddpmon.launch import joining
    from ddpmon.launch.stop import request_stop

    survive_lost_output("the run continues, and this command ends when the run ends")
    _make_room()
    if headless or not watching.interactive():
        with watching.Signals(owns_run=True) as signals:
            run = joining.start_joinable(prepared, hub, job, _input())
            publisher = Publisher(run, places)
            code = watching.follow(run, every, signals)
            publisher.finish()
            return code
    try:
        run = joining.start_joinable(prepared, hub, job)
        publisher = Publisher(run, places)
        code = watching.dashboard(run, every, owns_run=True, notify=notify)
        publisher.finish()
        return code
    except KeyboardInterrupt:
        # The user pressed Ctrl-C before the dashboard could catch it, which is a wish to end the new run.
        with contextlib.suppress(RunNotFoundError):
            request_stop(runs.load(prepared.id))
        raise


def _input() -> int:
    """Return the descriptor for the ranks' standard input: this process's own, unless reading it would stop them."""
    import subprocess

    stdin = sys.stdin.fileno()
    # A background job of a shell is stopped when it reads from the terminal.
    if os.isatty(stdin) and os.tcgetpgrp(stdin) != os.getpgrp():
        return subprocess.DEVNULL
    return stdin


def _make_room() -> None:
    """Delete the oldest runs above the limit of $DDPMON_KEEP; print which, or a warning if the limit is near."""
    from ddpmon.launch import removal

    bound = removal.limit_from_environment()
    if bound is None:
        return
    plan = removal.plan_pruning(bound)
    if plan.going:
        first = plan.going[0].run
        more = f" to {plan.going[-1].run.id}" if len(plan.going) > 1 else ""
        total = removal.sum_text(plan.going)
        print(
            f"ddpmon: deleting {total}, because the limit for all runs is {bound.text} "
            f"({removal.KEEP_VARIABLE}): {first.id}{more}",
            file=sys.stderr,
        )
    elif plan.near:
        print(f"ddpmon: {plan.near}", file=sys.stderr)
    for _, why in removal.delete_runs(plan.going):
        if why:
            print(f"ddpmon: {why}", file=sys.stderr)
