"""Failures of GPUs, NCCL and gloo as they were printed: their cause, the next step, and whose fault they are."""

from __future__ import annotations

import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.explanation import explain_words, is_consequence
from ddpmon.analysis.processes.failures import Gone, advice, events, first_failure, first_of_attempts, sentence
from ddpmon.analysis.processes.hangs import Standstill
from ddpmon.analysis.processes.launcher import Ended
from ddpmon.exception_text import MAX_EXCEPTION_CHARS, in_one_line
from ddpmon.messages import Attempt, Failure
from tests.analysis.test_hangs import REDUCE, stack

SAME_GPU = """torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93,\
 invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"""
REMOTE = """torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, remote process exited or there was\
 a network error, NCCL version 2.28.9
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
socketProgress: Connection closed by remote peer host1<40196>"""
PREAMBLE = (
    "[enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:455] op.preamble.length <="
    " op.nbytes. 32 vs 20"
)
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of 139.80 GiB"
    " of which 1.75 GiB is free. Process 619 has 1.12 GiB memory in use. Including non-PyTorch memory, this process has"
    " 16.9 GiB memory in use. Of the allocated memory 16.1 GiB is allocated by PyTorch."
)
ASSERTED = "torch.AcceleratorError: CUDA error: device-side assert triggered: `{}` is false, Loss.cu:245"
SAME_MODEL = "RuntimeError: DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has"
PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4021"


def failure(rank, message, at_us=100, **facts):
    text = f'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in main\n    step()\n{message}\n'
    return Failure(rank, 9, at_us, in_one_line(message.splitlines()), text, 0, facts)


@pytest.mark.parametrize(
    ("said", "cause", "says"),
    [
        (SAME_GPU, "ranks 0 and 1 use the same GPU, which NCCL refuses: duplicate GPU detected", "set_device"),
        (PREAMBLE, "a collective got 32 bytes from another rank and expected 20", "drop_last=True"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "torch.OutOf", "accumulation"),
        (
            OUT_OF_MEMORY,
            "CUDA out of memory: it tried to allocate 20.00 MiB, and 1.75 GiB of 139.80 GiB were free on GPU 3",
            "accumulation",
        ),
        (ASSERTED.format("t >= 0 && t < n_classes"), "torch.Acc", "ignore_index"),
        (ASSERTED.format("srcIndex < srcSelectDimSize"), "torch.Acc", "num_embeddings"),
        ("RuntimeError: CUDA error: device-side assert triggered", "RuntimeError", "CUDA_LAUNCH_BLOCKING"),
        ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime", "Runtime", "driver"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "Run", "get_arch_list"),
        ("DistBackendError: NCCL error\nncclUnhandledCudaError: Call to CUDA function failed.", "Dist", "NCCL_DEBUG"),
        ("DistBackendError: unhandled system error\nncclSystemError: System call failed", "Dist", "NCCL_SOCKET_IFNAME"),
        ("ncclSystemError: Error while creating shared memory segment /dev/shm/nccl-x (size 9)", "nccl", "--shm-size"),
        ("RuntimeError: received 0 items of ancdata", "RuntimeError", "file_system"),
        ("train.py: error: unrecognized arguments: --nproc 2", "train.py: error: ", "belongs to it"),
        ("train.py: error: argument --lr: invalid float value: 'x'", "train.py: error: ", "belongs to it"),
        ("killed by SIGSEGV", "killed by SIGSEGV", "PYTHONFAULTHANDLER"),
        (
            "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 1088 vs 982",
            "torch.save could not write",
            "df -h",
        ),
        ("killed by SIGKILL", "killed by SIGKILL", "dmesg"),
    ],
)
def test_what_a_rank_says_is_told_with_the_next_step_and_is_its_own_fault(said, cause, says):
    told = failure(1, said)
    assert not is_consequence(told)
    assert explain_words(told.error).cause.startswith(cause)
    assert says in advice(first_failure([], [told, failure(0, PEER, 50)], {}), {})


@pytest.mark.parametrize(
    "said",
    [
        REMOTE,
        "RuntimeError: NCCL communicator was aborted on rank 1.",
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9) ran for 600000 milliseconds before",
        "RuntimeError: DataLoader worker (pid 57) is killed by signal: Terminated. ",
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0/0",
        "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: Connection refused",
        "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown?",
    ],
)
def test_what_the_end_of_another_rank_causes_is_no_first_cause(said):
    assert is_consequence(failure(0, said))
    assert first_failure([], [failure(0, said, 50), failure(1, "ValueError: no", 100)], {}).rank == 1


@pytest.mark.parametrize(
    "said",
    [
        "ValueError: the duplicate GPU is not detected",
        "KeyError: 'n_classes'",
        "RuntimeError: the device ran out of memory cards",
        "AssertionError: expected 32 vs 20",
        "FileNotFoundError: [Errno 2] No such file or directory: 'nccl.conf'",
    ],
)
def test_what_only_looks_like_a_known_failure_is_left_as_it_is(said):
    told = failure(0, said)
    why = first_failure([], [told], {})
    assert (why.cause, why.advice) == (f"{said}, at train.py:9 main", None)
    assert not is_consequence(told)


def test_models_that_differ_are_told_by_the_names_that_only_one_rank_trains():
    told = [
        failure(0, f"{SAME_MODEL.format(0, 4, 1)} inconsistent 2 params.", model="a (4, 4)\nhead.weight (4, 4)"),
        failure(1, f"{SAME_MODEL.format(1, 2, 0)} inconsistent 4 params.", model="a (4, 4)", frozen="`head.weight`"),
    ]
    said = "the ranks' models differ: rank 0 trains `head.weight (4, 4)`, rank 1 does not, at train.py:9 main"
    assert events(told, 2) == [("critical", f"both ranks failed in the same way: {said}")]
    assert first_failure([], told, {}, world_size=2).cause == said
    alone = first_failure([], told[1:], {}, world_size=2).cause
    assert alone.startswith(
        "the ranks' models differ: rank 1 trains 2 parameters and rank 0 4; frozen on rank 1: `head"
    )


def test_a_worker_that_was_killed_comes_before_the_connection_that_broke_with_it():
    broken = "ConnectionResetError: [Errno 104] Connection reset by peer"
    facts = {"worker": "57", "worker_signal": "SIGBUS", "shared_memory": "64.0 of its 64.0 MiB are in use now"}
    why = first_failure([], [failure(0, PEER, 50), failure(1, broken, 100, **facts)], {})
    assert (why.rank, why.lost_peers) == (1, 1)
    assert why.cause.startswith("DataLoader worker 57 was killed by SIGBUS, as when /dev/shm is full (64.0 of its 64.0")
    killed = first_failure([], [failure(1, broken, 100, worker="57", worker_signal="SIGKILL")], {}, "cgroup")
    assert killed.cause == "DataLoader worker 57 was killed by SIGKILL, at train.py:9 main, out of memory"


def test_a_rank_that_a_cpp_exception_aborts_is_told_by_what_it_says():
    why = first_failure([Ended(0, 0, 9, -6, root=True)], [], {0: PREAMBLE})
    assert why.cause.startswith("killed by SIGABRT; a collective got 32 bytes from another rank and expected 20")
    assert "drop_last=True" in why.advice


def test_attempts_that_only_lost_connections_are_told_with_what_the_one_before_failed_of():
    lost = first_failure([], [failure(0, PEER)], {})
    cause = "IndexError: Target 7 is out of bounds., at train.py:33 main"
    target = Attempt(1, 2, 80, [1], cause)
    one = first_of_attempts(lost, [target, Attempt(2, 2, 0, [0], PEER)])
    assert sentence(one, 2).startswith(f"rank 1 failed first: {cause}, in attempt 1 after 80 steps;")
    assert one.cause.endswith("; attempt 3 only lost connections")
    assert "A label is not one of" in one.advice
    assert one.only_lost_peer
    assert first_of_attempts(lost, [Attempt(1, 2, 0, [0], PEER)]) == lost
    own = first_failure([], [failure(0, "ValueError: no")], {})
    assert first_of_attempts(own, [target]) == own


def test_a_rank_that_left_the_loop_is_told_with_how_all_may_leave_it():
    why = first_failure([Ended(0, 0, 9, 1, root=True)], [failure(0, PEER)], {}, gone=[Gone(3, 240, 500, left=True)])
    assert sentence(why, 4).startswith("rank 3 failed first: it exited after 240 steps without an exception")
    assert "all-reduce the decision to stop" in why.advice


def test_a_long_message_is_told_in_whole_sentences_and_with_its_last_line():
    lines = ["ValueError: It is wrong.", *[f"Sentence {number} says more of it." for number in range(40)], "Look here"]
    told = in_one_line(lines)
    assert told.startswith("ValueError: It is wrong. Sentence 0")
    assert told.endswith("says more of it. … Look here")
    assert len(told) <= MAX_EXCEPTION_CHARS
    assert in_one_line(lines[:2]) == "ValueError: It is wrong. Sentence 0 says more of it."


@pytest.mark.parametrize(
    ("told", "missing", "kinds"),
    [
        ([failure(0, PEER, 50), failure(1, "ValueError: no")], None, ["rank_failed"]),
        ([failure(0, PEER, 50), failure(1, "ValueError: no")], 2, ["rank_failed", "hang"]),
        ([failure(0, PEER, 50)], None, ["rank_failed", "hang"]),
    ],
)
def test_ranks_that_wait_for_a_failed_one_do_not_hang_as_well(told, missing, kinds):
    stacks = {rank: stack(rank, blocked=REDUCE) for rank in range(3)}
    if missing is not None:
        stacks[missing] = stack(missing, "train.py:5 read", issued=99)
    standing = Standstill(12.0, stacks, world_size=3)
    made = all_findings(None, Evidence(failed=first_failure([], told, {}), standstill=standing, world_size=3))
    assert [finding.kind for finding in made] == kinds
