"""Test which rank failed first."""

import pytest

from ddpmon.analysis.processes.failures import (
    RUN_OPTIONS,
    advice,
    events,
    first_failure,
    headline,
    look_at_traceback,
    of_command,
    sentence,
)
from ddpmon.analysis.processes.launcher import Ended, read_falls, read_table
from ddpmon.cli.commands.launching import run
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


def failure(rank, time_us, error, line=None):
    trace = "" if line is None else f'Traceback:\n  File "train.py", line {line}, in main\n    train()\n{error}\n'
    return Failure(rank=rank, pid=5700 + rank, time_us=time_us, error=error, traceback=trace)


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


def test_a_rank_that_could_not_tell_is_quoted_from_its_stderr():
    cause = first_failure(read_table(TABLE.format(code=3)), [], {1: "ModuleNotFoundError: No module named 'foo'"})
    assert sentence(cause, 3).startswith("rank 1 failed first: ModuleNotFoundError: No module named 'foo', exit 3")


def test_an_unknown_exception_has_the_line_and_the_traceback_as_the_next_step():
    cause = first_failure((), [failure(1, 3, "KeyError: 51", line=8), failure(0, 5, PEER)], {})
    assert look_at_traceback(cause, 51, 2) == (
        "Look at train.py:8 main and the traceback, on World or with `ddpmon logs --rank 1`: rank 1 failed"
        " after 51 steps, and no other rank raised the exception."
    )
    cause = first_failure(read_table(TABLE.format(code=3)), [], {1: "ValueError: no such class"})
    assert look_at_traceback(cause, 0, 1).startswith("Look at the traceback, on World or with `ddpmon logs --rank 1`")
    assert not look_at_traceback(first_failure((), [failure(0, 5, PEER)], {}), 51, 2)


@pytest.mark.parametrize("words", ["", "no quota left"])
def test_a_plain_exit_code_says_where_the_ranks_last_output_is(words):
    cause = first_failure(read_table(TABLE.format(code=3)), [], {1: words} if words else {})
    assert "exit" in cause.cause
    assert "`ddpmon logs --rank 1`" in cause.advice


OWN_WORDS = [
    "ValueError: no such class on rank {0} (pid {1})",
    "RuntimeError: CUDA error: device-side assert on cuda:{0}",
    "RuntimeError: [rank{0}]: weights at 0x7f{1} are gone",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {1}.5 MiB. GPU {0} has 7{0}.11 GiB",
    "ConnectionError: 127.0.0.1:{1} says no to local_rank={0}",
]


@pytest.mark.parametrize("error", OWN_WORDS)
def test_one_bug_on_all_ranks_is_one_fault_although_each_names_itself(error):
    told = [failure(rank, 900 - rank, error.format(rank, 5700 + rank), line=7) for rank in range(4)]
    cause = first_failure((), told, {})
    assert (cause.rank, cause.ranks) == (3, (0, 1, 2, 3))
    assert (
        headline(cause.ranks, cause.cause, 4)
        == f"all 4 ranks failed in the same way: {told[3].error}, at train.py:7 main"
    )
    assert events(told, 4) == [("critical", f"all 4 ranks failed in the same way: {told[0].error}, at train.py:7 main")]


@pytest.mark.parametrize(
    "other",
    [
        failure(1, 2, "ValueError: class 8", line=7),  # another number of the data's
        failure(1, 2, "KeyError: class 7", line=7),
        failure(1, 2, "ValueError: class 7", line=9),
    ],
)
def test_another_message_another_type_or_another_place_is_another_fault(other):
    told = [failure(0, 1, "ValueError: class 7", line=7), other]
    assert first_failure((), told, {}).ranks == (0,)
    assert [text for _, text in events(told, 2)] == [
        "rank 0 failed: ValueError: class 7, at train.py:7 main",
        f"rank 1 failed: {other.error}, at train.py:{9 if 'line 9' in other.traceback else 7} main",
    ]


def test_who_only_lost_its_peers_is_told_beside_those_who_failed_alike():
    told = [failure(0, 5, PEER), *(failure(rank, 9, "ValueError: no") for rank in (1, 2)), failure(3, 7, PEER)]
    assert (
        sentence(first_failure((), told, {}), 4)
        == "ranks 1-2 failed in the same way: ValueError: no; 2 others only lost their peers"
    )
    assert (
        sentence(first_failure((), told[:3], {}), 4)
        == "ranks 1-2 failed in the same way: ValueError: no; 2 others then stopped"
    )
    assert events(told, 4) == [
        ("critical", "ranks 1-2 failed in the same way: ValueError: no"),
        ("warn", "ranks 0, 3 lost their peers and failed too"),
    ]


def test_a_rank_that_torchrun_asked_to_end_after_its_exception_did_not_fail_of_the_signal():
    rows = read_table(TABLE.format(code=1))
    told = [failure(0, 5, "ValueError: no such class"), failure(1, 9, "EOFError: no more")]
    assert (
        sentence(first_failure(rows, told, {}), 3)
        == "rank 0 failed first: ValueError: no such class; 2 others then stopped"
    )


def test_a_rank_that_was_ended_while_it_told_of_the_same_failed_alike():
    """torchrun ends the others at once: what one could not tell is in its stderr, with torch's mark."""
    text = TABLE.format(code=1)
    lines = {0: "ValueError: no such class on rank 0", 2: "a warning"}
    cause = first_failure(read_table(text), [failure(1, 5, "ValueError: no such class on rank 1", line=3)], lines)
    assert sentence(cause, 3) == (
        "ranks 0-1 failed in the same way: ValueError: no such class on rank 1, at train.py:3 main, exit "
        "1; 1 other then stopped"
    )


@pytest.mark.parametrize(("code", "ranks"), [(-11, (0, 1)), (-9, (1,))])
def test_a_crash_of_several_ranks_is_one_fault_but_a_kill_may_be_the_launchers(code, ranks):
    text = TABLE.format(code=code).replace("-15 (pid: 5700)  (SIGTERM)", f"{code} (pid: 5700)")
    assert first_failure(read_table(text), [], {}).ranks == ranks


def test_a_usage_error_is_told_with_its_exit_code():
    text = TABLE.format(code=2).replace("-15 (pid: 5700)  (SIGTERM)", "2 (pid: 5700)")
    said = "train.py: error: unrecognized arguments: --foo"
    cause = first_failure(read_table(text), [], dict.fromkeys(range(3), said))
    assert sentence(cause, 3) == f"all 3 ranks failed in the same way: exit 2: {said}"
    common = first_failure(read_table(text), [], {}, common_line=said)
    assert sentence(common, 3) == f"ranks 0-1 failed in the same way: exit 2: {said}; 1 other then stopped"
    assert first_failure(read_table(text), [], {}).cause == "exited with 2, without an exception"


def test_an_option_of_ddpmon_behind_a_script_that_exits_with_2_is_named():
    """click says it in words of its own. With another exit code, or after a step, the arguments are no cause."""
    said = dict.fromkeys(range(3), "Error: No such option '--nproc'.")
    text = TABLE.format(code=2).replace("-15 (pid: 5700)  (SIGTERM)", "2 (pid: 5700)")
    misplaced = first_failure(read_table(text), [], said, script_args=["--lr", "0.1", "--nproc=4"])
    assert misplaced.advice.startswith("The script got --nproc, as all that follows the script belongs to it.")
    assert first_failure(read_table(text), [], said, script_args=["--lr", "0.1"]).advice is None
    assert first_failure(read_table(text), [], said).advice is None
    other = TABLE.format(code=1)
    assert first_failure(read_table(other), [], said, script_args=["--nproc", "4"]).advice is None


def test_the_options_that_are_looked_for_behind_a_script_are_those_of_ddpmon_run():
    names = {name for option in run.params for name in option.opts if name.startswith("--")}
    assert names == RUN_OPTIONS


def test_whom_torchrun_saw_fail_in_each_attempt_is_known_by_its_pid():
    text = "E1122 15:59:42 13162 api.py:1002] failed (exitcode: {}) local_rank: 1 (pid: {}) of binary: python\n"
    falls = read_falls(text.format(1, 100) + text.format(-9, 200))
    assert [(pid, row.code, row.signal, row.rank) for pid, row in falls.items()] == [
        (100, 1, None, 1),
        (200, None, "SIGKILL", 1),
    ]


@pytest.mark.parametrize(
    ("memory_kills", "words"),
    [
        ("cgroup", "killed by SIGKILL, out of memory"),
        ("host", "killed by SIGKILL, its host ran out of memory"),
        ("", "killed by SIGKILL"),
    ],
)
def test_a_kill_is_told_as_one_for_want_of_memory_where_the_kernel_did_that(memory_kills, words):
    assert first_failure(read_table(TABLE.format(code=-9)), [], {}, memory_kills).cause == words
    assert first_failure(read_table(TABLE.format(code=-11)), [], {}, memory_kills).cause == "killed by SIGSEGV"


def test_a_worker_that_was_killed_for_want_of_memory_is_told_as_that():
    worker = "RuntimeError: DataLoader worker (pid 5720) is killed by signal: Killed. "
    assert first_failure((), [failure(1, 5, worker)], {}, "cgroup").cause.endswith("signal: Killed, out of memory")
    assert first_failure((), [failure(1, 5, worker)], {}).cause == worker
    assert first_failure((), [failure(1, 5, "ValueError: no")], {}, "cgroup").cause == "ValueError: no"


@pytest.mark.parametrize(
    ("code", "memory_kills", "words"),
    [
        (2, "", "ended with exit 2: no output"),
        (2, "cgroup", "ended with exit 2: no output"),
        (137, "", "was ended by SIGKILL (exit 137)"),
        (137, "cgroup", "was ended by SIGKILL, out of memory (exit 137)"),
        (129, "cgroup", "was ended by SIGHUP (exit 129)"),
        (139, "cgroup", "ended with exit 139 (SIGSEGV): no output"),
        (255, "", "ended with exit 255: no output"),
        (128, "", "ended with exit 128: no output"),
    ],
)
def test_a_command_that_a_signal_ended_is_told_with_it(code, memory_kills, words):
    assert of_command("the command", code, "", memory_kills) == f"the command {words}"


def test_a_child_of_torch_multiprocessing_that_was_killed_for_want_of_memory_is_told_as_that():
    said = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"
    assert of_command("spawn", 1, said, "cgroup") == f"the command ended with exit 1: {said}, out of memory"
    assert of_command("spawn", 1, said, "") == f"the command ended with exit 1: {said}"


def test_what_a_command_said_before_somebody_killed_it_is_no_cause():
    said = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default"
    assert of_command("torchrun", 137, said, "") == "torchrun was ended by SIGKILL (exit 137)"


def killed_for_memory(rank):
    return first_failure([Ended(rank, rank, 100, -9, root=True)], [], {}, "cgroup")


def test_advice_for_memory_says_how_much_the_rank_held():
    said = advice(killed_for_memory(1), {0: (1 << 30, None), 1: (3 << 30, 2 << 30)})
    assert said.startswith(
        "Rank 1 last used 3.0 GiB, the others 1.0 GiB at most; its DataLoader workers used 2.0 GiB more."
    )
    assert "workers used" not in advice(killed_for_memory(1), {1: (3 << 30, None)})
    assert advice(killed_for_memory(1), {}).startswith("Use fewer ranks")
    assert advice(first_failure([], [failure(1, 10, "ValueError: no")], {}), {1: (3 << 30, None)}) is None


@pytest.mark.parametrize(
    ("error", "kills", "says"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "", "gradient accumulation"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.", "cgroup", "Use fewer ranks"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.", "", None),
        ("ValueError: out of memory", "host", None),
    ],
)
def test_whose_memory_a_rank_ran_out_of_is_known_where_it_is_told(error, kills, says):
    said = advice(first_failure([], [failure(1, 10, error)], {}, kills), {})
    assert said is None if says is None else says in said
