"""Test other processes on a rank's GPU and errors of GPUs; and silence where nothing is wrong."""

import pytest

from ddpmon.analysis.evidence import Memory
from ddpmon.messages import GpuUser
from tests.findings import of_kinds

GIB = 1 << 30
HALF = GIB // 2


def shared(users, memory=(), gpus=("a", "b", "c", "d")):
    found = of_kinds("gpu_shared", gpu_users=users, memory=memory, world_size=4, gpus=dict(enumerate(gpus)))
    assert all(len(one.text) <= 76 and one.advice for one in found)
    return found


def ranks_there(*ranks, each=HALF):
    return [GpuUser(100 + rank, "python", each, of_run=True, rank=rank) for rank in ranks]


def test_contexts_of_other_ranks_on_the_first_gpu_are_told_with_what_they_hold():
    (told,) = shared({0: ranks_there(1, 2, 3)})
    assert (told.severity, told.ranks) == ("info", [0])
    assert told.text == "ranks 1-3 also hold 1.5 GiB on rank 0's GPU"
    assert "set_device" in told.advice
    assert shared({0: ranks_there(3)})[0].text == "rank 3 also holds 512 MiB on rank 0's GPU"


def test_ranks_that_train_on_one_gpu_are_told_as_that():
    (told,) = shared({0: ranks_there(1, each=9 * GIB), 1: ranks_there(0, each=9 * GIB)}, gpus="aa")
    assert (told.text, told.ranks) == ("ranks 0-1 use the same GPU as another rank", [0, 1])


def test_a_rank_that_has_not_reported_its_gpus_users_yet_is_told_with_the_rank_that_has() -> None:
    (told,) = shared({2: ranks_there(0)}, gpus="abac")
    assert (told.text, told.ranks) == ("ranks 0, 2 use the same GPU as another rank", [0, 2])


def test_a_rank_whose_own_gpu_is_not_known_yet_is_not_told_to_be_on_another_ranks():
    assert shared({0: ranks_there(1)}, gpus="a") == shared({0: ranks_there(1)}, gpus="") == []


def test_what_a_program_holds_on_a_gpu_of_several_ranks_counts_once():
    user = GpuUser(4711, "vllm", 19 * GIB)
    (told,) = shared({0: [user], 1: [user]}, gpus="aa")
    assert told.text == "pid 4711 (vllm) holds 19.0 GiB on the GPU of ranks 0-1"
    (told,) = shared({0: [user], 1: [user], 2: [user]}, gpus="aab")
    assert told.text == "pid 4711 (vllm) holds 38.0 GiB on the GPUs of ranks 0-2"


@pytest.mark.parametrize(
    ("more", "text", "advice"),
    [
        ({}, "pid 4711 (vllm) holds 38.0 GiB on the GPUs of ranks 2-3; 1 more hold 512 MiB", "ps -fp 4711"),
        ({"left_over": True}, "pid 4711 (vllm) of an ended run holds 38.0 GiB on the GPUs of ranks 2-3", "kill 4711"),
        ({"of_run": True}, "pid 4711 (vllm) of this run holds 38.0 GiB on the GPUs of ranks 2-3", "DataLoader worker"),
    ],
)
def test_other_programs_are_told_with_pid_name_and_memory(more, text, advice):
    user = GpuUser(4711, "vllm", 19 * GIB, **more)
    (told,) = [one for one in shared({2: [user, GpuUser(12, "Xorg", HALF)], 3: [user]}) if "vllm" in one.text]
    assert told.text == text
    assert advice in told.advice
    assert told.severity == "info"


def test_others_are_a_reason_to_act_where_they_leave_no_room():
    memory = [Memory(2, gpu_used_bytes=79 * GIB, gpu_total_bytes=80 * GIB)]
    (told,) = shared({2: [GpuUser(4711, "", 38 * GIB)]}, memory)
    assert (told.severity, told.text) == ("warn", "pid 4711 holds 38.0 GiB on rank 2's GPU")


def test_a_gpu_that_nobody_else_uses_is_well():
    assert shared({}) == shared({0: []}) == []


def test_critical_errors_are_told_by_rank_with_their_meaning_and_errors_of_programs_are_not():
    errors = {3: ["Xid 43", "Xid 79"], 1: ["Xid 31"]}
    (grave,) = of_kinds("gpu_error", gpu_errors=errors, world_size=4)
    assert (grave.severity, grave.ranks) == ("warn", [3])
    assert grave.text == "the GPU of rank 3 had a critical error: Xid 79 (the GPU has fallen off the bus)"
    assert of_kinds("gpu_error", world_size=4) == []
