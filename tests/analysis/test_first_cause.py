"""The order of causes: who ended by itself, whose exception it was, and who only lost a peer."""

from __future__ import annotations

import pytest

from ddpmon.analysis.processes.failures import Gone, first_failure, sentence
from ddpmon.analysis.processes.launcher import Ended, read_spawned, read_table
from ddpmon.messages import MAX_US, Failure

PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4021"
ROW = "[{seen}]:\n  time : now\n  rank : {rank} (local_rank: {rank})\n  exitcode : {code} (pid: 9)\n"


def table(*ends):
    """Rank and exit code in the order in which torchrun saw them; the root cause, which it tells last, is rank 0."""
    rows = [ROW.format(seen=seen, rank=rank, code=code) for seen, (rank, code) in enumerate(ends)]
    rows.sort(key=lambda row: "rank : 0" in row)
    return read_table("Failures:\n" + "".join(rows[:-1]) + "Root Cause (first observed failure):\n" + rows[-1])


def lost_peer(*ranks):
    """The connection errors of ranks, earlier than anything else."""
    return [Failure(rank, 9, 10 + rank, PEER) for rank in ranks]


def error(rank, text="ValueError: no such class", trace=""):
    return Failure(rank, 9, 900, text, trace)


def left(rank, at_us=500, steps=60):
    return Gone(rank, steps, at_us, left=True)


def died(rank, at_us=500, steps=60):
    return Gone(rank, steps, at_us, left=False)


TERM, SEGV, KILL, HUP, ABRT = -15, -11, -9, -1, -6
NCCL = "ProcessGroupNCCL: timed out"
LATE = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation"
WRAPPED = (
    f"Traceback:\n{PEER}\n\nDuring handling of the above exception, another one\n\nTraceback:\nTrainingError: no\n"
)


@pytest.mark.parametrize(
    ("ended", "told", "lines", "gone", "said"),
    [
        ([(1, 3), (0, TERM), (2, TERM)], lost_peer(0, 2), {}, [left(1)], "1: exited with 3, without an exception"),
        ([(1, 1), (0, TERM)], lost_peer(0, 2), {1: "bad config"}, [left(1)], "1: exit 1: bad config"),
        ([(0, 1), (1, 3)], lost_peer(0, 2), {0: PEER}, [left(1)], "1: exited with 3, without an exception"),
        ([(0, 1), (2, 1)], lost_peer(0, 2), {}, [left(1)], "1: it exited after 60"),
        ([(1, HUP), (0, TERM), (2, TERM)], lost_peer(0), {}, [died(1), died(2)], "1: killed by SIGHUP"),
        ([(1, TERM), (0, TERM), (2, TERM)], lost_peer(0), {}, [died(1), died(2)], "1: killed by SIGTERM"),
        ([(0, 1), (1, SEGV), (2, TERM)], lost_peer(0), {}, [died(1), died(2)], "1: killed by SIGSEGV"),
        ([(0, 1), (2, TERM)], [*lost_peer(0), error(1)], {}, [died(2)], "1: ValueError: no"),
        # rank 0 makes a report once the others have trained to the end
        ([(0, 1)], [error(0)], {}, [left(1), left(2)], "0: ValueError: no"),
        ([(0, KILL)], [], {}, [died(0), left(1), left(2)], "0: killed by SIGKILL"),
        # an exception that a script raises because of the connection's
        ([(1, 3), (0, 1)], [error(0, "TrainingError: no", WRAPPED)], {}, [], "1: exited with 3, without an exception"),
        ([], [error(0, "TrainingError: no", WRAPPED)], {}, [left(1)], "1: it exited after"),
        # NCCL's watchdog aborts who waits; its reason is on stderr alone
        ([(0, ABRT), (2, ABRT)], [], {0: NCCL, 2: NCCL}, [left(1)], "1: it exited"),
        ([(0, ABRT)], [], {0: "free(): invalid pointer"}, [left(1)], "0: killed by SIGABRT"),
        ([(1, ABRT), (0, TERM)], [], {1: NCCL}, [died(0), died(1)], f"1: killed by SIGABRT; its last line: {NCCL}"),
        # no launcher tells: a process group of the script's own
        ([], lost_peer(0, 2), {}, [died(1, 500), left(2, 900)], "1: it exited unexpectedly"),
        ([], lost_peer(0), {}, [left(1), left(2)], "1 2: it exited after 60"),
        ([], lost_peer(0), {}, [died(2, MAX_US), left(1, 800)], "1: it exited after 60"),
        ([], [], {}, [died(1), left(0)], "1: it exited unexpectedly"),
        # a wait that timed out, after which the launcher ended who was waited for; and one for a rank that had ended
        ([], [error(1, LATE)], {}, [died(0, 901)], "1: it waited 30 s"),
        ([], [error(1, LATE), Failure(2, 9, 902, PEER)], {}, [left(0, MAX_US)], "1: it waited 30 s"),
        ([], [error(1, "TrainingError: no", WRAPPED.replace(PEER, LATE))], {}, [died(0, 901)], "1: TrainingError"),
        ([], [error(1, LATE)], {}, [died(0, 500)], "0: it exited unexpectedly"),
        ([], [*lost_peer(2), error(1, LATE)], {}, [died(0, MAX_US)], "0: it exited unexpectedly"),
    ],
)  # fmt: skip
def test_the_rank_that_harmed_the_others_is_named(ended, told, lines, gone, said):
    cause = first_failure(table(*ended) if ended else [], told, lines, gone=gone)
    assert f"{' '.join(map(str, cause.ranks))}: {cause.cause}".startswith(said), sentence(cause, 3)


@pytest.mark.parametrize("gone", [[], [left(0), left(1)]])
def test_ranks_that_leave_in_order_are_no_failure(gone):
    """A launcher may end with an error of its own, long after they have trained to the end."""
    assert first_failure([], [], {}, gone=gone) is None


def test_ranks_that_torchrun_asked_to_end_are_no_cause():
    assert first_failure(table((2, 0), (0, TERM), (1, TERM)), [], {}, gone=[died(0), died(1)]) is None


@pytest.mark.parametrize(
    ("said", "exitcode"),
    [
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL", -9),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 3", 3),
    ],
)
def test_torch_multiprocessing_names_the_process_that_ended(said, exitcode):
    assert read_spawned(f"Traceback:\n  more\n{said}\n") == [Ended(1, 1, 0, exitcode, root=True)]


@pytest.mark.parametrize(
    "said", ["", "process 1 terminated with the following error:", "process 0 terminated with exit code 0"]
)
def test_an_exception_in_a_spawned_process_is_its_ranks_own_to_report(said):
    assert read_spawned(said) == []
