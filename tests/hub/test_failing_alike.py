"""One bug on several ranks is one fault wherever it is told; what an earlier attempt failed of is told as that."""

import math
import subprocess
import sys

import pytest

from ddpmon.analysis.processes.failures import first_failure
from ddpmon.export import markdown, report
from ddpmon.export.last_words import last_words
from ddpmon.messages import PROTOCOL, STAGE_TRAINING, Failure, Hello, encode
from ddpmon.recording.recorded import recorded_report
from ddpmon.store.clock import Clock
from ddpmon.store.endings import read_ending
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from tests.recordings import BEGAN
from tests.worlds import own_times, records


def fail(stage, ranks):
    """Ranks that finish five steps and raise."""
    told = records(own_times(5, stage.run.world_size), first=1)
    for rank in (stage.rank(number, pid=4_100_000 + number) for number in ranks):
        rank.join()
        rank.batch(told[rank.rank])
        error = f"ValueError: no such class on rank {rank.rank}"
        rank.socket.send(encode(Failure(rank.rank, rank.pid, 90 + rank.rank, error, "Traceback …")))


def test_one_exception_on_all_ranks_is_one_event_one_finding_and_one_sentence(stage):
    stage.save(world_size=3)
    stage.hub()
    fail(stage, range(3))
    told = "all 3 ranks failed in the same way: ValueError: no such class on rank 0"
    live = stage.viewer().until(lambda s: any(e.text == told for e in s.events), "the event")
    assert not [event for event in live.events if event.text.startswith("rank ")]
    assert live.verdict == told
    stage.finish(exit_code=1)
    made = recorded_report(stage.run)
    assert made["verdict"] == told
    (finding,) = [finding for finding in made["findings"] if finding["kind"] == "rank_failed"]
    assert (finding["text"], finding["ranks"]) == (told, [0, 1, 2])
    assert told in report.text(made)
    assert told in markdown.report(made)
    assert (made["run"]["restarts"], made["run"]["attempts"]) == (0, [])


def test_what_an_earlier_attempt_failed_of_is_told_and_is_no_fault_of_the_one_that_did_well(stage):
    stage.save(world_size=2)
    stage.hub()
    fail(stage, [1])
    stage.viewer().until(lambda s: s.findings, "the failure")
    told = records(own_times(30, 2), first=1)
    for rank in (stage.rank(number, pid=4_120_000 + number) for number in range(2)):
        rank.join(restart=1)
        rank.batch(told[rank.rank])
        rank.bye()
    live = stage.viewer().until(lambda s: s.step == 30, "the second attempt")
    assert [finding.kind for finding in live.findings if finding.kind == "rank_failed"] == []
    stage.finish()
    made = recorded_report(stage.run)
    assert made["verdict"].startswith("done: 30 steps")
    assert made["run"]["restarts"] == 1
    assert made["run"]["attempts"] == [
        {
            "number": 1,
            "world_size": 2,
            "steps": 5,
            "ranks": [1],
            "cause": "ValueError: no such class on rank 1",
            "exit": None,
        }
    ]
    sentence = "attempt 1 ended after 5 steps: rank 1 failed: ValueError: no such class on rank 1"
    assert ("Restart", sentence) in report.sentences(made)
    assert "1 restart" in report.title(made["run"])
    assert sentence in markdown.report(made)


def test_a_rank_heard_after_its_attempt_is_still_the_cause_of_its_end(stage):
    """A rank is killed before a busy hub has read what it sent, and the next attempt is read first."""
    stage.save(world_size=2)
    stage.hub()
    told = records(own_times(30, 2), first=1)
    stays, killed = (stage.rank(number, pid=4_180_000 + number) for number in range(2))
    stays.join(world="a")
    stays.batch(told[0][:5])
    lost = "RuntimeError: Read error [127.0.0.1]:15282: Connection reset by peer"
    stays.socket.send(encode(Failure(0, stays.pid, 90, lost, "Traceback …")))
    for rank in (stage.rank(number, pid=4_190_000 + number) for number in range(2)):
        rank.join(restart=1, world="b")
        rank.batch(told[rank.rank])
        rank.bye()
    stage.viewer().until(lambda s: s.step == 30, "the second attempt")
    killed.join(world="a")
    killed.train(told[1][:5])
    stage.finish()
    (attempt,) = recorded_report(stage.run)["run"]["attempts"]
    assert (attempt["ranks"], attempt["cause"]) == ([1], "it exited unexpectedly, as a killed process does")


def test_attempts_that_failed_alike_are_told_while_the_next_one_runs(stage):
    stage.save(world_size=2)
    stage.hub()
    error = "IndexError: Target 7 is out of bounds."
    told = records(own_times(30, 2), first=1)
    for restart in range(3):
        steps = told if restart == 2 else {number: told[number][:5] for number in range(2)}
        for rank in (stage.rank(number, pid=4_150_000 + 10 * restart + number) for number in range(2)):
            rank.join(restart=restart)
            rank.batch(steps[rank.rank][:4] if restart == 2 else steps[rank.rank])
            if rank.rank and restart < 2:
                rank.socket.send(encode(Failure(1, rank.pid, 90, error, "Traceback …")))
        if restart < 2:
            stage.viewer().until(lambda s: s.findings and s.findings[0].kind == "rank_failed", "the failure")
    live = stage.viewer().until(lambda s: any(f.kind == "restart_loop" for f in s.findings), "the loop")
    assert live.findings[0].text == f"attempts 1-2 failed in the same way after 5 steps: rank 1 failed: {error}"


def test_an_earlier_attempt_whose_rank_could_not_speak_is_told_from_the_launchers_log(stage):
    stage.save(world_size=2)
    stage.hub()
    ranks = [stage.rank(number, pid=4_130_000 + number) for number in range(2)]
    again = [stage.rank(number, pid=4_140_000 + number) for number in range(2)]
    for rank in ranks:
        rank.join()
    for rank in again:
        rank.join(restart=1)
    line = "E1122 15:59:42 13162 api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 4130001) of binary: python\n"
    (stage.dir / "logs" / "launcher.log").write_text(line)
    stage.finish()
    (attempt,) = recorded_report(stage.run)["run"]["attempts"]
    assert (attempt["ranks"], attempt["cause"]) == ([1], "killed by SIGKILL")


def with_ranks(run, ranks):
    """A store with its ranks, to whom the test gives their steps."""
    store = Store(run, Registry(run.id, ranks, run.host), Clock(0, BEGAN), live=True)
    for rank in range(ranks):
        hello = Hello(PROTOCOL, run.id, rank, rank, ranks, 0, "elsewhere", 4_000_000 + rank, STAGE_TRAINING)
        store.registry.process_of_rank[rank] = RankProcess(rank + 1, 0, hello, stage=STAGE_TRAINING)
    return store


@pytest.mark.parametrize(("bad", "named"), [({0: 1, 1: 1, 2: 1}, [0, 1, 2]), ({0: 4, 1: 3, 2: 4}, [1])])
def test_who_is_heard_first_is_not_who_began_with_a_loss_that_is_no_number(stage, bad, named):
    store = with_ranks(stage.run, 3)
    loss = [[math.nan if step >= bad[rank] else 1.0 for rank in range(3)] for step in range(1, 31)]
    told = records(own_times(30, 3), first=1, loss=loss)
    for rank, process in store.registry.process_of_rank.items():
        assert not store.events
        store.add_steps(process, process.count_new_steps(told[rank]), 1.0)
        store.add_arrived()
        store.judge(1.0, BEGAN + 1)
        if rank < 2:
            assert store.findings == []
    (finding,) = [finding for finding in store.findings if finding.kind == "loss_not_finite"]
    assert finding.ranks == named
    assert [event.text for event in store.events if "loss" in event.text] == [finding.text]


LAUNCHER = """W1122 16:03:15.044000 14173 torch/distributed/run.py:874] Setting OMP_NUM_THREADS
usage: train.py [-h] [--lr LR]
train.py: error: unrecognized arguments: --foo
usage: train.py [-h] [--lr LR]
train.py: error: unrecognized arguments: --foo
W1122 16:03:17.106000 14173 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 14183 closing signal
E1122 16:03:17.122000 14173 api.py:1002] failed (exitcode: 2) local_rank: 1 (pid: 14184) of binary: python3
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : 2 (pid: 14183)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 2 (pid: 14184)
"""


def test_a_usage_error_is_told_where_a_launcher_of_the_users_keeps_no_ranks_output_apart(stage):
    stage.save(world_size=2)
    stage.hub()
    (stage.dir / "logs" / "launcher.log").write_text(LAUNCHER)
    stage.finish(exit_code=1)
    said = "both ranks failed in the same way: exit 2: train.py: error: unrecognized arguments: --foo"
    assert recorded_report(stage.run)["verdict"] == said


def stderr_of_rank_0(stage):
    folder = stage.dir / "logs" / "ranks" / "exec" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    return folder / "stderr.log"


CRASHES = """
import ctypes, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
def reads_past_the_end():
    ctypes.string_at(0)
print("loading", file=sys.stderr)
reads_past_the_end()
"""


def test_the_line_in_which_compiled_code_crashed_is_told(stage, tmp_path):
    """The output of faulthandler, which the probe enables in every rank, has that line."""
    script = tmp_path / "crashes.py"
    script.write_text(f"import sys{CRASHES}")
    with stderr_of_rank_0(stage).open("w") as stderr:
        ended = subprocess.run([sys.executable, "-X", "faulthandler", script], stderr=stderr, check=False)
    table = f"Failures:\n[0]:\n  rank : 0 (local_rank: 0)\n  exitcode : {ended.returncode} (pid: 9)\n"
    (stage.dir / "logs" / "launcher.log").write_text(table)
    stage.save(world_size=1)
    ending = read_ending(stage.run)
    assert ending.last_lines == {0: "loading"}
    why = first_failure(ending.rows, [], ending.last_lines)
    assert why.cause == "killed by SIGSEGV, at crashes.py:5 reads_past_the_end"
    assert why.advice.startswith("A library crashed in a call from crashes.py:5 reads_past_the_end.")


RAISES = """
def read():
    return {}["epochs"]
try:
    read()
except KeyError as error:
    {last}
"""


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ("raise RuntimeError('no config') from error", "RuntimeError: no config, at raises.py:7 <module>"),
        ("raise", "KeyError: 'epochs', at raises.py:3 read"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module', at raises.py:7 <module>"),
        ("sys.exit('ValueError: from no traceback')", "ValueError: from no traceback"),
    ],
)
def test_an_exception_before_torch_is_imported_is_told_with_its_line(stage, tmp_path, last, cause):
    """No probe has reported this exception: the rank's stderr has its traceback, and so has the command's output."""
    script = tmp_path / "raises.py"
    script.write_text(f"import sys{RAISES.replace('{last}', last)}")
    with stderr_of_rank_0(stage).open("w") as stderr:
        subprocess.run([sys.executable, script], stderr=stderr, check=False)
    (stage.dir / "logs" / "launcher.log").write_text(
        "Failures:\n[0]:\n  rank : 0 (local_rank: 0)\n  exitcode : 1 (pid: 9)\n"
    )
    ending = read_ending(stage.run)
    why = first_failure(ending.rows, [], ending.last_lines)
    assert (why.cause, why.exit) == (cause, "exit 1")
    assert (why.advice or "").startswith("Install the module" if "no_such_module" in last else "")
    (stage.dir / "logs" / "launcher.log").write_bytes(
        (stage.dir / "logs/ranks/exec/attempt_0/0/stderr.log").read_bytes()
    )
    assert read_ending(stage.run).launcher_line == cause


def test_a_killed_rank_is_not_told_with_the_line_of_an_exception_that_it_only_printed(stage):
    stderr_of_rank_0(stage).write_text(
        'Traceback (most recent call last):\n  File "train.py", line 9, in main\n    step()\nValueError: skipped\n'
    )
    (stage.dir / "logs" / "launcher.log").write_text(
        "Failures:\n[0]:\n  rank : 0 (local_rank: 0)\n  exitcode : -9 (pid: 9)\n"
    )
    ending = read_ending(stage.run)
    assert first_failure(ending.rows, [], ending.last_lines).cause == "killed by SIGKILL"


SAME_GPU = """[rank0]: Traceback …
[rank0]: DistBackendError: NCCL error, invalid usage
[rank0]: Last error:
[rank0]: Duplicate GPU detected : rank 0
[rank0]:[W1126 13:21:40.19 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not called
"""
MARKED = "[rank0]: Traceback …\n[rank0]: ValueError: no, password=hunter2\n[W1122 16:03] a warning\n"
CPP = """terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)
Exception raised from checkTimeout at ProcessGroupNCCL.cpp
frame #0: c10::Error::Error + 0x96
"""
HARMLESS = """bad config
2026-11-26 13:00:00,123 - train - WARNING - slow
Exception ignored in: <function _Iterator.__del__ at 0x1>
Traceback (most recent call last):
  File "loader.py", line 3
AssertionError: can only test a child process
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SAME_GPU, "DistBackendError: NCCL error, invalid usage; Last error: Duplicate GPU detected : rank 0"),
        ("ValueError: no\nclosing the database", "ValueError: no"),
        (HARMLESS, "bad config"),
        (MARKED, "ValueError: no, password=…"),
        (CPP, "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)"),
    ],
)
def test_an_exceptions_whole_message_is_told_and_no_harmless_line_after_it(stage, text, told):
    stderr_of_rank_0(stage).write_text(text)
    assert read_ending(stage.run).last_lines == {0: told}
    assert "hunter2" not in "".join(last_words(stage.run, 0).lines)


def test_a_failed_assertion_on_a_gpu_is_told_with_its_condition(stage):
    stderr = stderr_of_rank_0(stage)
    said = "/pytorch/cuda/Loss.cu:245: nll_loss_forward: block: [0,0,0], thread: [{},0,0] Assertion `t >= 0` failed."
    error = "CUDA error: device-side assert triggered"
    watchdog = f"[Rank 0] Process group watchdog thread terminated with exception: {error}"
    cpp = ["terminate called after throwing an instance of 'c10::DistBackendError'", f"  what():  {watchdog}"]
    cpp += ["Exception raised from query at CUDAEvent.h:111 (most recent call first):"]
    cpp += [f"frame #{n}: c10d::ProcessGroupNCCL::WorkNCCL::isCompleted() + 0x68 (0x7f)" for n in range(30)]
    assertions = [said.format(n) for n in range(90)]
    raised = f"torch.AcceleratorError: {error}"
    for python, told in ((["[rank0]: Traceback …", f"[rank0]: {raised}"], raised), ([], watchdog)):
        stderr.write_text("\n".join([*assertions, *python, *cpp, ""]))
        assert read_ending(stage.run).last_lines == {0: f"{told}: `t >= 0` is false, Loss.cu:245"}
    assert first_failure(
        [], [Failure(0, 1, 0, raised)], {0: f"{raised}: `t >= 0` is false, Loss.cu:245"}
    ).cause.endswith("245")


def test_the_banner_that_torchrun_prints_at_every_start_is_not_why_a_rank_ended(stage):
    banner = ["*" * 41, "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default", "*" * 41]
    quiet = [line.replace("exitcode  : 2", "exitcode  : 3") for line in LAUNCHER.splitlines() if "train.py" not in line]
    (stage.dir / "logs" / "launcher.log").write_text("\n".join(["", *banner, *quiet, ""]))
    ending = read_ending(stage.run)
    assert ending.rows
    assert ending.common_line == ""
