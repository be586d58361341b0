"""Who failed first."""

import pytest

from ddpmon.analysis.failures import advice, first, of_command, read_table, sentence
from ddpmon.messages import Failure

TABLE = """
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
train.py FAILED
------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_22:56:34
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 5700)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 5700
[2]:
  time      : 2026-11-20_22:56:34
  host      : localhost
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 5702)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_22:56:34
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 5701)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 5701
======================================================
"""
PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4021"


def failure(rank, time_us, error):
    return Failure(rank=rank, pid=5700 + rank, time_us=time_us, error=error)


def test_the_table_tells_each_ranks_exit():
    rows = {row.rank: row for row in read_table(TABLE.format(code=-9))}
    assert (rows[0].code, rows[0].signal, rows[0].root) == (None, "SIGTERM", False)
    assert (rows[1].code, rows[1].signal, rows[1].root) == (None, "SIGKILL", True)
    assert (rows[2].code, rows[2].signal, rows[2].pid) == (1, None, 5702)


def test_a_table_of_one_failure_has_only_a_root_cause():
    text = "Failures:\n  <NO_OTHER_FAILURES>\n" + TABLE[TABLE.index("Root Cause") :].format(code=1)
    (row,) = read_table(text)
    assert (row.rank, row.code, row.root) == (1, 1, True)


@pytest.mark.parametrize("text", ["", "Failures:", "Root Cause", "rank : x (local_rank: y)", "Failures:\n" * 1000])
def test_whatever_is_no_table_has_no_rows(text):
    assert read_table(text) == []


def test_the_earliest_exception_is_the_cause_with_its_exit_code():
    told = [failure(0, 900, "KeyError: 'b'"), failure(2, 500, "ValueError: no such class")]
    cause = first(read_table(TABLE.format(code=1)), told, {})
    assert sentence(cause, 4) == "rank 2 failed first: ValueError: no such class, exit 1; 3 others then stopped"


def test_a_lost_connection_to_a_peer_is_no_cause_while_there_is_another():
    told = [failure(0, 100, PEER), failure(2, 500, "ValueError: no such class")]
    assert first((), told, {}).rank == 2


def test_a_killed_rank_comes_before_those_who_noticed():
    told = [failure(0, 100, PEER), failure(2, 110, PEER)]
    cause = first(read_table(TABLE.format(code=-9)), told, {})
    assert sentence(cause, 3) == "rank 1 failed first: killed by SIGKILL; 2 others then stopped"


def test_a_rank_that_could_not_tell_is_quoted_from_its_stderr():
    cause = first(read_table(TABLE.format(code=3)), [], {1: "ModuleNotFoundError: No module named 'foo'"})
    assert sentence(cause, 3).startswith("rank 1 failed first: ModuleNotFoundError: No module named 'foo', exit 3")


def test_ranks_that_all_failed_alike_are_not_told_apart():
    text = TABLE.format(code=1).replace("-15 (pid: 5700)  (SIGTERM)", "1 (pid: 5700)")
    cause = first(read_table(text), [], dict.fromkeys(range(3), "ModuleNotFoundError: No module named 'foo'"))
    assert sentence(cause, 3) == "every rank failed: ModuleNotFoundError: No module named 'foo', exit 1"


def test_ranks_that_were_only_told_to_end_are_no_cause():
    only = [row for row in read_table(TABLE.format(code=-9)) if row.signal == "SIGTERM"]
    assert first(only, [], {}) is None


@pytest.mark.parametrize(
    ("memory_kills", "words"),
    [
        ("cgroup", "killed by SIGKILL, out of memory"),
        ("host", "killed by SIGKILL, its host ran out of memory"),
        ("", "killed by SIGKILL"),
    ],
)
def test_a_kill_is_told_as_one_for_want_of_memory_where_the_kernel_did_that(memory_kills, words):
    assert first(read_table(TABLE.format(code=-9)), [], {}, memory_kills).cause == words
    assert first(read_table(TABLE.format(code=-11)), [], {}, memory_kills).cause == "killed by SIGSEGV"


def test_a_worker_that_was_killed_for_want_of_memory_is_told_as_that():
    worker = "RuntimeError: DataLoader worker (pid 5720) is killed by signal: Killed. "
    assert first((), [failure(1, 5, worker)], {}, "cgroup").cause.endswith("signal: Killed, out of memory")
    assert first((), [failure(1, 5, worker)], {}).cause == worker
    assert first((), [failure(1, 5, "ValueError: no")], {}, "cgroup").cause == "ValueError: no"


@pytest.mark.parametrize(
    ("code", "memory_kills", "words"),
    [
        (2, "", "exit 2: it said nothing"),
        (2, "cgroup", "exit 2: it said nothing"),
        (137, "", "exit 137 (SIGKILL): it said nothing"),
        (137, "cgroup", "exit 137 (SIGKILL, out of memory): it said nothing"),
        (139, "cgroup", "exit 139 (SIGSEGV): it said nothing"),
        (255, "", "exit 255: it said nothing"),
        (128, "", "exit 128: it said nothing"),
    ],
)
def test_a_command_that_a_signal_ended_is_told_with_it(code, memory_kills, words):
    assert of_command(code, "", memory_kills) == f"the command ended with {words}"


def test_a_child_of_torch_multiprocessing_that_was_killed_for_want_of_memory_is_told_as_that():
    said = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"
    assert of_command(1, said, "cgroup") == f"the command ended with exit 1: {said}, out of memory"
    assert of_command(1, said, "") == f"the command ended with exit 1: {said}"


def test_advice_for_memory_says_how_much_the_rank_held():
    said = advice(1, "killed by SIGKILL, out of memory", {0: 1 << 30, 1: 3 << 30})
    assert said.startswith("Rank 1 last held 3.0 GiB, the others 1.0 at most;")
    assert advice(1, "killed by SIGKILL, out of memory", {}).startswith("Fewer ranks")
    assert "gradient accumulation" in advice(0, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", {})
    assert advice(1, "killed by SIGKILL", {1: 3 << 30}) is None
