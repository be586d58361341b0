"""Failures that torch, Python and the system really report: the cause and the next step that people read of them."""

from __future__ import annotations

import json

import pytest

from ddpmon.analysis.processes.explanation import explain_failure, is_consequence, script_line
from ddpmon.messages import Failure
from tests.probe.conftest import SCRIPTS, forked


@pytest.fixture(scope="module")
def failed():
    """Return, by the name of each way to fail, the failure as a rank reports it."""
    done = forked(None, SCRIPTS / "failing.py", address=None)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(rows) == 21, done.stdout + done.stderr
    return {name: Failure(0, 1, 1, line, text, 0, facts) for name, line, text, facts in rows}


@pytest.mark.parametrize(
    ("name", "cause", "advice"),
    [
        ("unused_parameters", "`boxes.weight` and `boxes.bias` got no gradient in the step before", "every parameter"),
        ("ready_twice", "the gradient of `layer.bias` was ready twice in one backward", "use_reentrant=False"),
        (
            "different_models",
            "the ranks' models differ: rank 0 trains 2 parameters and rank 1 4; frozen on rank 0: `bo",
            "all ranks",
        ),
        ("inplace", "RuntimeError: one of the variables needed for gradient", "broadcast_buffers=False"),
        ("port_in_use", "port {port} is held by process {pid} (", "--standalone"),
        ("port_freed", "torch.distributed.DistNetworkError: The server socket has failed to listen", "ss -ltnp"),
        ("nobody_came", "torch.distributed.DistStoreError: Timed out after", "--rdzv-endpoint"),
        ("SIGBUS", "DataLoader worker {worker} was killed by SIGBUS, as when /dev/shm is full (", "--shm-size"),
        ("SIGKILL", "DataLoader worker {worker} was killed by SIGKILL", "dmesg"),
        ("SIGSEGV", "DataLoader worker {worker} was killed by SIGSEGV", "num_workers=0"),
        ("not_picklable", "AttributeError: Can't pickle local object", "top level"),
        ("disk_full", "OSError: [Errno 28] No space left on device", "df -h"),
        ("open_files", "too many open files: the limit of this process is 64", "ulimit -n"),
        ("made_meanwhile", "{path} already exists, and was created after this rank had started", "if rank == 0"),
        ("incomplete_archive", "EOFError: Compressed file ended before", "incomplete"),
        ("incomplete_checkpoint", "RuntimeError: PytorchStreamReader failed reading zip archive", "incomplete"),
        ("label", "IndexError: Target 7 is out of bounds.", "ignore_index"),
        ("token", "IndexError: index out of range in self", "num_embeddings"),
    ],
)
def test_a_known_failure_is_told_with_its_cause_and_the_next_step(failed, name, cause, advice):
    failure = failed[name]
    why = explain_failure(failure, world_size=2)
    pid = failure.facts.get("holder", "  ").split()[1:2]
    assert why.cause.startswith(cause.format(**failure.facts, pid=pid[0] if pid else ""))
    assert advice in (why.advice or "")
    assert script_line(failure.traceback).startswith("failing.py:")
    assert is_consequence(failure) == (name == "nobody_came")


@pytest.mark.parametrize("name", ["worker_raises", "made_before"])
def test_what_only_looks_like_a_known_failure_keeps_its_own_words(failed, name):
    why = explain_failure(failed[name], world_size=2)
    assert (failed[name].facts, why.cause, why.advice) == ({}, failed[name].error, None)


@pytest.mark.parametrize(
    ("alike", "says"), [(1, "Only some ranks fail with this error"), (2, "Install the module for the Python")]
)
def test_a_module_that_only_some_ranks_lack_is_a_matter_of_their_environments(failed, alike, says):
    why = explain_failure(failed["no_module"], alike=alike, world_size=2)
    assert why.cause == "ModuleNotFoundError: No module named 'no_such_module'"
    assert why.advice.startswith(says)
    assert "python" in why.advice.lower()


def test_a_path_that_exists_is_no_race_where_there_is_one_rank(failed):
    assert explain_failure(failed["made_meanwhile"], world_size=1).advice is None
