"""Starts a run: creates its folder and its socket folder, and starts the supervisor, which starts everything else."""

from __future__ import annotations

import contextlib
import dataclasses
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
from ddpmon.launch.given_hub import GivenHub, check_free
from ddpmon.runs import job_key


def new_run(run_id: str, **fields: Any) -> runs.Run:
    """Return a run on this machine that has not started. `fields` sets the other fields of `Run`."""
    place = runs.here()
    return runs.Run(
        id=run_id,
        host=place.host,
        boot_id=place.boot_id,
        pid_namespace=place.pid_namespace,
        created_at=time.time(),
        created_boot_s=time.clock_gettime(time.CLOCK_BOOTTIME),
        versions=installed_versions(),
        **fields,
    )


def start_run(run: runs.Run, hub: GivenHub | None = None, stdin: int = subprocess.DEVNULL) -> runs.Run:
    """Create the folders of a run and start its supervisor. Return once the supervisor is running.

    Args:
        run: The run, as `new_run` makes it.
        hub: Address and key of the job's root hub; None if the hubs of several machines find each other by themselves.
        stdin: Descriptor for the command's standard input; DEVNULL for none.

    Raises:
        DdpmonError: A folder is unsafe, DDPMON_LOGS is not a size, the hub's port is taken, or the supervisor does not
            come up; then no files of the run are left.

    """
    bound_bytes(os.environ)
    run = dataclasses.replace(run, created_at=time.time(), created_boot_s=time.clock_gettime(time.CLOCK_BOOTTIME))
    if hub is not None:
        run = dataclasses.replace(run, hub_at=hub.endpoint, hub_is_here=hub.is_here)
        if hub.is_here:
            check_free(hub.endpoint)
    runs.make_socket_dir(run.id)
    try:
        runs.create(run)
        if hub is not None:
            job_key.keep(run.id, hub.key)
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
        NotStartedError: The run already has a supervisor, or run.json cannot be written.

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


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, ddpmon and torch. They are read from metadata; nothing is imported."""
    versions = {"python": platform.python_version(), "ddpmon": ddpmon.__version__}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions["torch"] = importlib.metadata.version("torch")
    return versions
