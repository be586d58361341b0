"""Starts a run: creates its folder and its sockets' folder, and starts the supervisor, which does the rest."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from typing import Any

import ddpmon
from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch.boundedlog import bound_bytes
from ddpmon.launch.given_hub import check_free
from ddpmon.launch.spec import Spec, here
from ddpmon.runs import job_key


def start(spec: Spec, run_id: str, stdin: int = subprocess.DEVNULL) -> runs.Run:
    """Start a run under an id from `runs.new_id`; return once its supervisor is up.

    Args:
        spec: The description of the run.
        run_id: The run's id.
        stdin: A descriptor that becomes the command's standard input; DEVNULL: it has none.

    Raises:
        DdpmonError: A folder is unsafe, DDPMON_LOGS is not a size, the hub's port is taken, or the supervisor does not
            come up.

    """
    bound_bytes(os.environ)
    run = new_run(
        run_id,
        name=spec.name,
        argv=spec.command,
        script=spec.script,
        script_args=spec.script_args,
        cwd=spec.cwd or here(),
        world_size=spec.world_size,
        nnodes=spec.nnodes,
        grace_s=spec.grace_s,
        buckets=spec.buckets,
        on_alert=spec.on_alert,
        notify=spec.notify,
        environment=dict(spec.environment),
        notes=spec.notes,
        job=spec.job,
        job_rank=spec.job_rank,
        hub_at=spec.hub.endpoint if spec.hub else "",
        hub_is_here=spec.hub is not None and spec.hub.is_here,
    )
    if spec.hub is not None and spec.hub.is_here:
        check_free(spec.hub.endpoint)
    return start_run(run, spec.hub.key if spec.hub else None, stdin)


def new_run(run_id: str, **fields: Any) -> runs.Run:
    """Return a run on this machine, created now. `fields` sets what differs between runs that are created now."""
    place = runs.here()
    return runs.Run(
        id=run_id,
        host=place.host,
        boot_id=place.boot_id,
        pid_namespace=place.pid_namespace,
        created_at=time.time(),
        created_boot_s=time.clock_gettime(time.CLOCK_BOOTTIME),
        versions=versions(),
        **fields,
    )


def start_run(run: runs.Run, hub_key: str | None = None, stdin: int = subprocess.DEVNULL) -> runs.Run:
    """Create the folders of a run and start its supervisor; return once that is up.

    Args:
        run: The run.
        hub_key: The key that the hubs of the job share, if it was given.
        stdin: The descriptor of the command's standard input.

    Raises:
        DdpmonError: The run cannot be started; then no files of it are left.

    """
    runs.make_socket_dir(run.id)
    try:
        runs.create(run)
        if hub_key is not None:
            job_key.keep(run.id, hub_key)
        return supervise(run.id, cwd=run.cwd, stdin=stdin)
    except (OSError, NotStartedError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        shutil.rmtree(runs.run_dir(run.id), ignore_errors=True)
        runs.remove_sockets(run.id)
        raise DdpmonError(
            f"cannot start the run in {runs.home()}: {reason}; free some space there, or set DDPMON_HOME "
            "to another disk"
        ) from None
    except DdpmonError:
        runs.remove_sockets(run.id)
        raise


class NotStartedError(DdpmonError):
    """Says why a supervisor could not begin."""


def supervise(run_id: str, *options: str, cwd: str | None = None, stdin: int = subprocess.DEVNULL) -> runs.Run:
    """Start a run's supervisor, detached from this process, and wait until it has signed run.json.

    Args:
        run_id: The run.
        *options: Options for the supervisor.
        cwd: The folder in which it starts.
        stdin: The descriptor of its standard input.

    Raises:
        NotStartedError: Another supervisor is there, or run.json cannot be written.

    """
    log = runs.run_dir(run_id) / "logs" / "supervisor.log"
    package = "attach" if runs.load(run_id).attached else "launch"
    # -P: a file of the working directory must not replace a module of the standard library.
    command = [sys.executable, "-P", "-m", f"ddpmon.{package}.supervisor", run_id, *options]
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600), "ab") as output:
        first = subprocess.run(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
            cwd=cwd,
            check=False,
        )
    if first.returncode == 0:
        return runs.load(run_id)
    if reason := first.stdout.decode(errors="replace").strip():
        raise NotStartedError(reason)
    raise DdpmonError(f"the supervisor process of run {run_id} does not start; see {log}")


def versions() -> dict[str, str]:
    """Return the versions of Python, ddpmon and torch. They are read from metadata; nothing is imported."""
    versions = {"python": platform.python_version(), "ddpmon": ddpmon.__version__}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions["torch"] = importlib.metadata.version("torch")
    return versions
