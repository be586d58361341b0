"""ddpmon run and ddpmon exec: start a run, then watch it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpmon.cli.options import Within, lines, notifications

if TYPE_CHECKING:
    from ddpmon.launch.spec import Spec
    from ddpmon.runs.jobs import Job

EXIT_CODES = """
    \b
    Exit code: the run's (torchrun's; 0 done), 130 if it was stopped, 143 if
    it was stopped by a SIGTERM to this command, 0 after leaving the dashboard
    while it runs, 2 or 1 with a line on stderr if it was not started, 1 if its
    supervisor was killed and nobody could tell how it ended.
"""

OUTPUT = """
    What the ranks print is kept in the run's folder, 256 MB at most: the end
    of each stream and how it began. DDPMON_LOGS=2G keeps more. On a full disk
    the ranks go on, and what could not be kept is counted in the log.

    Standard input is the command's, as without ddpmon, and torchrun hands it to
    its ranks. Where the dashboard opens it takes the keys: then there is none.
"""

_OURS_COME_FIRST = {"allow_interspersed_args": False}


def _program(_context: click.Context, _param: click.Parameter, value: str | None) -> list[str]:
    """A command line as a shell would split it."""
    import shlex
    import shutil

    if value is None:
        return []
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise click.BadParameter(str(error).lower()) from None
    if not words or shutil.which(words[0]) is None:
        raise click.BadParameter(f"no program {words[0] if words else ''!r}")
    return words


def _watch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--name", help="What to call the run; the script's name otherwise."),
        click.option(
            "--grace",
            type=Within(0, 86_400),
            default=20.0,
            metavar="SECONDS",
            show_default=True,
            help="How long the ranks may take to end when the run is stopped.",
        ),
        click.option(
            "--buckets",
            is_flag=True,
            help="Record every bucket's all-reduce too; costs a further pass over the gradients.",
        ),
        click.option(
            "--on-alert",
            metavar="CMD",
            callback=_program,
            envvar="DDPMON_ON_ALERT",
            show_envvar=True,
            help="Run CMD, without a shell, when the run needs a look, stalls or fails, whoever watches: JSON with "
            "the finding on its standard input, 30 s at most, 20 times an hour at most.",
        ),
        click.option(
            "--hub",
            envvar="DDPMON_HUB",
            show_envvar=True,
            metavar="HOST:PORT",
            help="Of several machines: where the hub of all is to listen, on the machine that is HOST; the same on "
            "each. Without it hubs find each other once the process group is up.",
        ),
        click.option(
            "--hub-key",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="The key of --hub, the same on each machine; `ddpmon key FILE` makes one.  [default: what is in "
            "$DDPMON_HUB_KEY]",
        ),
        notifications,
        lines,
    ):
        function = option(function)
    return function


@click.command(
    context_settings=_OURS_COME_FIRST,
    help=f"""Start SCRIPT on torchrun and watch it.

    Everything after SCRIPT belongs to the script, which is run unchanged. In a terminal the dashboard opens:
    q leaves the run running, x stops it. Without one, Ctrl-C stops the run and a second Ctrl-C kills it.

    In a Slurm job (srun ddpmon run --nproc gpu SCRIPT, one task a node) and where torchrun's own variables are set
    (PET_NNODES and the like, as in Kubeflow's TrainJob), nodes find each other by these.
    SIGUSR1 and SIGUSR2 are handed to the ranks that have a handler for them.
    {OUTPUT}{EXIT_CODES}""",
)
@click.option(
    "--nproc",
    "--nproc-per-node",
    metavar="N",
    help="Ranks on this machine: a number, gpu (one for each), cpu or auto.  [default: $PET_NPROC_PER_NODE, or 1]",
)
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as with python -m.")
@click.option("--max-restarts", type=click.IntRange(0), default=0, show_default=True, help="As torchrun's.")
@click.option(
    "--nnodes",
    metavar="N",
    help="Machines in this run, or LEAST:MOST where it goes on as some come and go.  [default: $PET_NNODES, or those "
    "of the Slurm job step, or 1]",
)
@click.option("--node-rank", type=int, help="Which of them this one is, from 0.")
@click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Where they meet: a free port on machine 0.")
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
    notify: str,
    script: str,
    args: tuple[str, ...],
) -> int:
    """Start a script on torchrun; the option's help says the rest."""
    import os

    from ddpmon import runs
    from ddpmon.errors import UsageError
    from ddpmon.launch import slurm, torchrun, torchrun_env
    from ddpmon.launch.given_hub import given_hub
    from ddpmon.launch.prepare import Asked, prepare
    from ddpmon.launch.remembered import remember, typed

    by_environment = None
    if nnodes is None and node_rank is None and rdzv_endpoint is None:
        by_environment = torchrun_env.nodes(os.environ) or slurm.nodes(os.environ)
    nodes = by_environment or torchrun.nodes(nnodes or "1", node_rank, rdzv_endpoint)
    if hub is not None and nodes.count == 1:
        raise UsageError("--hub is for runs of several machines: give --nnodes, --node-rank and --rdzv-endpoint too")
    options = Asked(
        script,
        list(args),
        module,
        nproc if nproc is not None else torchrun_env.ranks(os.environ),
        name,
        nodes=nodes,
        max_restarts=max_restarts,
        grace_s=grace,
        buckets=buckets,
        on_alert=on_alert,
        hub=given_hub(hub, hub_key, os.environ, nodes.rank),
    )
    with runs.reserved() as run_id:
        launch_spec = prepare(options, run_id)
        if options.nodes.count == 1:
            remember(typed(options))
        return _start(launch_spec, run_id, headless, every, notify)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def key(file: Path) -> int:
    """Make a key for --hub into FILE, which this user alone can read.

    Copy it to each machine of the job (scp keeps its mode with -p), or give what is in it as DDPMON_HUB_KEY. Whoever
    has it sees the run and can end it.
    """
    from ddpmon.runs import job_key

    job_key.make(file)
    print(f"{file}: a new key; ddpmon run --hub HOST:PORT --hub-key {file} on each machine")
    return 0


@click.command(
    "exec",
    context_settings=_OURS_COME_FIRST,
    help=f"""Run any command line with the probe armed in every Python under it.

    For launchers of your own: ddpmon exec -- python train.py --world_size 2 --rank 0. The run ends with CMD.

    A launcher may also start one for each rank, as srun ddpmon exec -- python train.py or mpirun do: those of one job
    on one machine are one run. The first starts it, the others join it, and each ends as its own CMD does.
    {OUTPUT}{EXIT_CODES}""",
)
@_watch_options
@click.option(
    "--apart",
    is_flag=True,
    help="A run of its own, though this is one of several tasks of a job: where each trains a model of its own.",
)
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, required=True)
def exec_(
    name: str | None, grace: float, buckets: bool, on_alert: list[str], hub: str | None, hub_key: Path | None,
    headless: bool, every: float, notify: str, apart: bool, cmd: tuple[str, ...],
) -> int:  # fmt: skip
    """Run a command line of the user's own."""
    import os
    import shutil

    from ddpmon import runs
    from ddpmon.errors import UsageError
    from ddpmon.launch import joining, spec
    from ddpmon.launch.given_hub import given_hub

    if shutil.which(cmd[0]) is None:
        raise UsageError(f"no program {cmd[0]}")
    script = next((word for word in cmd if word.endswith(".py")), cmd[0])
    run_name = runs.check_name(name) if name is not None else spec.name_for(script)
    task = None if apart else joining.place(os.environ)
    given = given_hub(hub, hub_key, os.environ)
    launch_spec = spec.Spec(
        list(cmd), run_name, cmd[0], list(cmd[1:]), grace_s=grace, buckets=buckets, on_alert=on_alert,
        job=task.job if task else "", job_rank=task.rank if task else None, hub=given,
    )  # fmt: skip
    with joining.joined_or_first(launch_spec, task) as job, runs.reserved() as run_id:
        return _start(launch_spec, run_id, headless, every, notify, job)


def _start(launch_spec: Spec, run_id: str, headless: bool, every: float, notify: str, job: Job | None = None) -> int:
    from ddpmon import runs
    from ddpmon.cli import watching
    from ddpmon.cli.streams import survive_lost_output
    from ddpmon.errors import RunNotFoundError
    from ddpmon.launch import joining
    from ddpmon.launch.stop import request

    survive_lost_output("the run goes on, and this command ends with it")
    _make_room()
    if headless or not watching.interactive():
        with watching.Signals(owns_run=True) as signals:
            return watching.follow(joining.begin(launch_spec, run_id, job, _input()), every, signals)
    try:
        return watching.dashboard(joining.begin(launch_spec, run_id, job), every, owns_run=True, notify=notify)
    except KeyboardInterrupt:
        # before the dashboard could take the key: whoever just started this wants it gone
        with contextlib.suppress(RunNotFoundError):
            request(runs.load(run_id))
        raise


def _input() -> int:
    """Return what the command is to read: this command's standard input, if reading it would not stop this command."""
    import os
    import subprocess
    import sys

    stdin = sys.stdin.fileno()
    if os.isatty(stdin) and os.tcgetpgrp(stdin) != os.getpgrp():  # in the background of a shell, whose keys these are
        return subprocess.DEVNULL
    return stdin


def _make_room() -> None:
    """Keep to $DDPMON_KEEP before a run begins: say what goes, or that it comes near, in one line."""
    import sys

    from ddpmon.launch import retention

    bound = retention.from_environment()
    if bound is None:
        return
    plan = retention.plan(bound)
    if plan.going:
        first = plan.going[0].run
        more = f" to {plan.going[-1].run.id}" if len(plan.going) > 1 else ""
        total = retention.sum_text(plan.going)
        print(
            f"ddpmon: deleting {total}, to keep {bound.text} ({retention.VARIABLE}): {first.id}{more}", file=sys.stderr
        )
    elif plan.near:
        print(f"ddpmon: {plan.near}", file=sys.stderr)
    for _, why in retention.delete(plan.going):
        if why:
            print(f"ddpmon: {why}", file=sys.stderr)
