"""Test the place that launchers give a process, from variables as they set them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.tasks import Task, task

SRUN = {
    "SLURM_JOB_ID": "41877", "SLURM_STEP_ID": "2", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
}  # fmt: skip
BY_HAND = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
TORCHRUN = BY_HAND | {"LOCAL_RANK": "1", "GROUP_RANK": "0"}
RAY = BY_HAND | {"LOCAL_RANK": "0", "NODE_RANK": "1"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        (SRUN, Task("SLURM_PROCID 41877 2", 5, 8, 1, 1)),
        (BY_HAND, Task("RANK 127.0.0.1 29500", 1, 2)),
        (BY_HAND | SRUN, Task("RANK 127.0.0.1 29500", 1, 2)),
        (TORCHRUN, Task("RANK 127.0.0.1 29500", 1, 2, 1, 0)),
        (RAY, Task("RANK 127.0.0.1 29500", 1, 2, 0, 1)),
        (OPEN_MPI | {"PMIX_NAMESPACE": "prterun-a-1@1"}, Task("OMPI_COMM_WORLD_RANK prterun-a-1@1", 3, 4, 1)),
        (OPEN_MPI | {"OMPI_MCA_ess_base_jobid": "77"}, Task("OMPI_COMM_WORLD_RANK 77", 3, 4, 1)),
        (OPEN_MPI, Task("", 3, 4, 1)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, Task("PMI_RANK 812 99", 0, 2, 0)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, Task("", 0, 2)),
    ],
)
def test_each_launcher_tells_rank_size_and_job(variables, place):
    assert task(variables, "812 99") == place


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {name: SRUN[name] for name in SRUN if name != "SLURM_STEP_NUM_TASKS"},  # a batch script
        SRUN | {"SLURM_STEP_NUM_TASKS": "1"},
        BY_HAND | {"RANK": "2"},
        BY_HAND | {"WORLD_SIZE": "many"},
    ],
    ids=str,
)
def test_a_process_alone_or_with_variables_that_cannot_be_has_no_place(variables):
    assert task(variables) is None


@given(st.dictionaries(st.sampled_from([*SRUN, *RAY, *OPEN_MPI, "PMI_RANK", "PMI_SIZE"]), st.text(max_size=12)))
def test_whatever_is_in_the_variables_ranks_are_below_their_size(variables):
    place = task(variables, "1 1")
    assert place is None or 0 <= place.rank < place.size
