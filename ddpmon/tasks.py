"""Reads a process's rank and job size from the environment variables that its launcher sets.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One of several processes that a launcher started."""

    job: str
    """Id of the job, shared by all of its tasks and unique on this machine; "" if the launcher sets none."""
    rank: int
    size: int
    local_rank: int | None = None
    node: int | None = None


@dataclass(frozen=True)
class _Launcher:
    """Names of the environment variables that a launcher sets. Of several names, the first that is set counts.
    In each entry of `jobs`, the variables together identify a job.
    """

    rank: str
    size: str
    jobs: tuple[tuple[str, ...], ...]
    local_rank: tuple[str, ...] = ()
    node: tuple[str, ...] = ()


_LAUNCHERS = (
    # torchrun, programs that set the same variables (Accelerate, DeepSpeed, Ray Train), and shells
    _Launcher("RANK", "WORLD_SIZE", (("MASTER_ADDR", "MASTER_PORT"),), ("LOCAL_RANK",), ("GROUP_RANK", "NODE_RANK")),
    # srun; a batch script alone has no step id
    _Launcher(
        "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", (("SLURM_JOB_ID", "SLURM_STEP_ID"),),
        ("SLURM_LOCALID",), ("SLURM_NODEID",),
    ),
    # Open MPI's mpirun, from version 5 on and before
    _Launcher(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", (("PMIX_NAMESPACE",), ("OMPI_MCA_ess_base_jobid",)),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
    ),
    # MPICH and Intel MPI, which name no job: the tasks of one job have the same parent
    _Launcher("PMI_RANK", "PMI_SIZE", (), ("MPI_LOCALRANKID",)),
)  # fmt: skip


def task(environment: Mapping[str, str], parent: str = "") -> Task | None:
    """Return this process's place among the tasks of its job; None if no launcher's variables are set.

    Args:
        environment: The variables.
        parent: Identifies the parent process, for launchers that do not name their jobs.

    """
    for launcher in _LAUNCHERS:
        rank, size = (_number(environment, (name,)) for name in (launcher.rank, launcher.size))
        if rank is not None and size is not None and rank < size and size > 1:
            job = next((names for names in launcher.jobs if all(environment.get(name) for name in names)), None)
            words = [environment[name] for name in job] if job else [parent] if parent and not launcher.jobs else []
            return Task(
                " ".join([launcher.rank, *words]) if words else "",
                rank,
                size,
                _number(environment, launcher.local_rank),
                _number(environment, launcher.node),
            )
    return None


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    text = next((environment[name] for name in names if name in environment), "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
