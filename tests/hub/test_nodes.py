"""Test what hubs of several machines report about one world, and what outlives the death of one of them."""

import contextlib
import signal
import time

import pytest

from ddpmon import runs
from ddpmon.cli.commands import publishing
from ddpmon.hub import curve_keys
from ddpmon.hub.rank_output import RankOutput
from ddpmon.messages import (
    Ask,
    Collective,
    Failure,
    Phase,
    PrintedLine,
    PrintedView,
    Stack,
    ViewRequest,
    Where,
    WireError,
    encode,
)
from ddpmon.messages.nodes import Bundle, End, ProcessEnd, decode_from_node
from ddpmon.recording.recorded import recorded_report
from ddpmon.recording.recording import Recording
from ddpmon.source.live import LiveSource
from tests.conftest import wait_for
from tests.hub.conftest import until
from tests.hub.machines import (
    HOUR_US,
    have_told,
    introduce,
    late_world,
    listening,
    machines,
    recorded_steps,
    seen_whole,
    tell,
    world,
)
from tests.namespaces import unshared
from tests.two_hosts import Root

__all__ = ["machines"]  # a fixture


@pytest.mark.parametrize("nnodes", [1, 2])  # 1: `ddpmon exec` does not know that there are others
def test_viewers_of_either_machine_see_the_world_although_pids_are_alike_and_clocks_are_hours_apart(machines, nnodes):
    for machine in machines:
        machine.save(nnodes=nnodes)
    ranks, told = world(machines, pid=4_000_100), late_world()
    for begin in range(1, 81, 20):
        tell(ranks, told, begin, begin + 20, later_us=5 * HOUR_US)
    for machine in machines:
        snapshot = machine.viewer().until(lambda s: s.state == "slow", "the late rank")
        assert "rank 3 is slow" in snapshot.verdict
        assert "data" in snapshot.verdict
        assert [rank.host for rank in snapshot.ranks] == ["box0", "box0", "box1", "box1"]
        assert "communication_bound" not in {found.kind for found in snapshot.findings}
        waits = [rank.phases_ms[Phase.WAIT] for rank in snapshot.ranks]
        assert waits[3] == pytest.approx(0, abs=0.5)
        assert waits[0] == pytest.approx(15, abs=1)


def test_the_root_moves_with_rank_0_and_nobody_of_the_world_before_is_left(machines):
    before, told = world(machines), late_world(40)
    tell(before, told, 1, 41)
    viewers = [machine.viewer() for machine in machines]
    for viewer in viewers:
        viewer.until(have_told(40), "the first world")
    one, two = machines
    ranks = [*two.ranks(0, 4_000_200, world="second"), *one.ranks(2, 4_000_200, world="second")]
    introduce(two, one, ranks[0], ranks[2])
    tell(ranks, late_world(80), 1, 81)
    for viewer in viewers:
        snapshot = viewer.until(have_told(80), "the second world")
        assert [rank.host for rank in snapshot.ranks] == ["box1", "box1", "box0", "box0"]
        assert {rank.pid for rank in snapshot.ranks} == {4_000_200, 4_000_201}
        assert [attempt.number for attempt in snapshot.run.attempts] == [1]
    assert "rank 3 is slow" in viewers[0].until(lambda s: s.state == "slow", "the late rank").verdict
    assert listening(one.hubs[-1].pid) == set(), "it is no root any more"
    moved = lambda: [event for event in recorded_events(one) if "rank 0 moved to another machine" in event]
    assert len(wait_for(moved)) == 1


def test_nodes_that_are_numbered_anew_keep_their_own_connections():
    keys = curve_keys.new_key_pair()
    for key, node in (("first", 1), ("second", 1), ("first", 2)):
        keys.admit(key, node)
    assert keys.admitted == {"first": 1, "second": 2}


def recorded_events(machine):
    with Recording(runs.load(machine.run.id)) as recording:
        return [event.text for event in recording.events(100)]


def test_what_a_node_said_while_the_root_was_dead_is_not_lost(machines):
    root, node = machines
    ranks, told = world(machines), late_world(100)
    tell(ranks, told, 1, 21)
    viewer = node.viewer()
    viewer.until(have_told(20), "the first steps")
    for rank in ranks[:2]:
        rank.acknowledged(1)
    root.kill_hub()
    tell(ranks[2:], told, 21, 41)
    alone = viewer.until(lambda s: any("no connection to" in note for note in s.notes), "that the root is away")
    assert alone.state != "slow" or "rank 3" in alone.verdict
    root.hub()
    for rank in ranks[:2]:
        rank.join(node_rank=0, local_rank=rank.rank)  # as a rank does whom a hub does not know
    tell(ranks[:2], told, 21, 41)
    tell(ranks, told, 41, 61)
    whole = viewer.until(lambda s: s.step == 60 and seen_whole(s), "the world again")
    assert whole.records_lost == 0
    assert not any("no connection to" in note for note in whole.notes)
    until(lambda: set(recorded_steps(root).values()) == {60}, "all steps in the root's recording")


def wait_in_a_collective(ranks):
    """Have ranks say that they live and wait for the others, as they do twice a second while a run stands still."""
    for rank in ranks:
        now_us = time.monotonic_ns() // 1000
        rank.batch(now_us=now_us)
        waits = Stack(rank.rank, rank.pid, now_us, 20, now_us, 4, ["train.py:9 main"], 0, Collective("barrier"), True)
        rank.socket.send(encode(waits))


def test_either_side_of_a_cut_says_who_is_not_heard_and_a_root_that_goes_on_refuses_no_honest_node(machines):
    root, node = machines
    ranks, told = world(machines), late_world()
    tell(ranks, told, 1, 21)
    viewer, other = root.viewer(), node.viewer()
    viewer.until(have_told(20), "the steps")

    def says(viewer, ranks, expected):
        """Wait until ranks that stand still have their viewer say something."""

        last = []

        def said():
            wait_in_a_collective(ranks)
            last[:] = [viewer.get().verdict]
            return expected in last[0]

        until(said, last)

    # The root neither reads nor answers, and the node connects anew and gives up again.
    root.hubs[-1].send_signal(signal.SIGSTOP)
    says(other, ranks[2:], "ranks 0-1 send nothing to this machine; ranks 2-3 wait in barrier")
    root.hubs[-1].send_signal(signal.SIGCONT)
    says(other, ranks, "all ranks wait in barrier and none is missing")
    node.hubs[-1].kill()
    says(viewer, ranks[:2], "box1 sends nothing (ranks 2-3); ranks 0-1 wait in barrier")
    last = viewer.get()
    gone = [event for event in last.events if "is gone" in event.text]
    assert {event.severity for event in gone} == {"critical"}  # on a busy machine it may have been missed before
    assert gone[-1].text.endswith("is gone: ranks 2-3, last step 20")
    assert last.refused == []


def test_a_viewer_of_one_machine_reaches_the_ranks_of_the_other_and_one_machine_publishes(machines, cli):
    for machine in machines:
        machine.save(argv=["torchrun", f"--node-rank={machine.number}"])
    ranks = world(machines)
    a_question_reaches_the_rank(machines, ranks)
    what_a_rank_prints_is_fetched_for_who_looks_at_it_as_it_grows(machines, cli)
    tell(ranks, late_world(), 1, 80)
    only_the_machine_of_rank_0_publishes(machines)


def a_question_reaches_the_rank(machines, ranks):
    for machine, asked in zip(machines, (3, 0), strict=True):
        viewer = machine.viewer()
        viewer.until(seen_whole, "the world")
        viewer.socket.send(encode(Ask([asked])))
        assert ranks[asked].answer(Where).brief


def what_a_rank_prints_is_fetched_for_who_looks_at_it_as_it_grows(machines, cli):
    root, node = machines
    write_logs(root, "", rank0="of rank 0\n")
    write_logs(node, "", rank1="of rank 3\n")
    for machine, rank in ((root, 3), (node, 0)):
        with contextlib.closing(LiveSource(machine.run)) as source:
            source.request_view(ViewRequest(printed=rank))
            log = source.logs()
            (line,) = until(lambda log=log, rank=rank: [e for e in log.poll() if rank in e.ranks], "its output")
            assert (line.text, line.stream, log.elsewhere) == (f"of rank {rank}", "err", {rank})
    with contextlib.closing(LiveSource(root.run)) as source:
        source.request_view(ViewRequest(printed=3))
        until(lambda: [e for e in source.logs().poll() if 3 in e.ranks], "what was printed before")
        with (node.dir / "logs" / "ranks" / "x" / "attempt_0" / "1" / "stderr.log").open("a") as more:
            more.write("and more\n")
        assert [line.text for line in until(source.logs().poll, "what came since")] == ["and more"]
    told = cli("logs", root.run.id, "--rank", "3")
    assert (told.stdout, told.returncode) == ("! of rank 3\n! and more\n", 0), told.stderr


class BeginsError(Exception):
    """A machine begins to publish."""


def only_the_machine_of_rank_0_publishes(machines):
    def begin():
        raise BeginsError

    root, node = machines
    assert publishing._follow(node.run, begin, 1.0) is None
    with pytest.raises(BeginsError):
        publishing._follow(root.run, begin, 1.0)


def test_output_that_nobody_asked_for_is_not_taken(home):
    root = Root()
    for rank in range(4):
        root.join(rank)
    asked = []
    printed = RankOutput(root.run, root.store.registry, lambda node, rank: asked.append((node, rank)))
    view = PrintedView(3, 1, [PrintedLine("out", "x")])
    assert not printed.store_output(view, 1), "nobody asked"
    assert printed.view(3, 10.0).why == "waiting for the rank's machine"
    assert not printed.store_output(view, 2), "another node's"
    assert printed.store_output(view, 1)
    assert printed.view(3, 10.1) == view
    assert asked == [(1, 3)], "not more often than its logs are read"
    with pytest.raises(WireError):
        PrintedView(3, 1, [PrintedLine("out", "x"), PrintedLine("out", "y")])


@pytest.fixture
def hours_ahead():
    """Return the words before a command line that put its monotonic clock five hours ahead."""
    return unshared("time", "--time", "--monotonic", str(5 * HOUR_US // 1_000_000), "--fork", "--kill-child")


def test_who_failed_first_is_known_although_its_clock_is_hours_ahead(machines, hours_ahead):
    root, _ = machines
    ranks, told = world(machines, before=hours_ahead), late_world()
    tell(ranks, told, 1, 41, later_us=5 * HOUR_US)
    viewer = root.viewer()
    viewer.until(have_told(40), "the steps")
    first_us = time.monotonic_ns() // 1000
    ranks[0].socket.send(encode(Failure(0, ranks[0].pid, first_us + 500_000, "RuntimeError: closed by peer")))
    ranks[2].socket.send(encode(Failure(2, ranks[2].pid, first_us + 5 * HOUR_US, "ValueError: of rank 2")))
    viewer.until(lambda s: sum(rank.exit is not None for rank in s.ranks) == 2, "both failures")
    root.end(1)
    last = viewer.until(lambda s: s.state == "failed", "the end")
    assert last.verdict.startswith("rank 2")
    assert "of rank 2" in last.verdict


TABLE = """E1122 15:59:42.000 13162 api.py:1002] failed (exitcode: -11) local_rank: 1 (pid: {pid}) of binary: python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  rank      : 3 (local_rank: 1)
  exitcode  : -11 (pid: {pid})
"""


def write_logs(machine, launcher, **stderr):
    """Write the logs of torchrun and of the local ranks of a machine."""
    logs = machine.dir / "logs"
    (logs / "launcher.log").write_text(launcher)
    for local, text in stderr.items():
        folder = logs / "ranks" / "x" / "attempt_0" / local.removeprefix("rank")
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(text)


def test_the_root_s_report_says_how_ranks_of_other_machines_ended(machines):
    """The root's command ends first, because of connections that the dead rank closed: it waits for the node's word."""
    root, node = machines
    ranks, told = world(machines), late_world()
    tell(ranks, told, 1, 41)
    viewer = root.viewer()
    viewer.until(have_told(40), "the steps")
    write_logs(node, TABLE.format(pid=ranks[3].pid), rank0="RuntimeError: closed by peer\n", rank1="sqrt of -1\n")
    write_logs(root, "", rank0="warning: slow\n")
    ranks[0].socket.send(encode(Failure(0, ranks[0].pid, 1, "RuntimeError: Connection closed by peer")))
    viewer.until(lambda s: s.ranks[0].exit is not None, "the failure of rank 0")
    root.end(1)
    node.finish(1)
    last = viewer.until(lambda s: s.state == "failed", "the end")
    assert root.hubs[-1].wait(30) == 0
    made = recorded_report(runs.load(root.run.id))
    for verdict in (last.verdict, made["verdict"], recorded_report(runs.load(node.run.id))["verdict"]):
        assert verdict.startswith("rank 3 failed first: killed by SIGSEGV"), verdict
    assert made["ranks"][3]["exit"] == {"code": None, "signal": "SIGSEGV", "error": None}
    with Recording(runs.load(root.run.id)) as recording:
        ends = {process.rank: process.end for process in recording.processes()}
    assert ends == {0: None, 1: None, 2: End(None, "RuntimeError: closed by peer"), 3: End(-11, "sqrt of -1", True)}


@pytest.mark.parametrize("end", [End(-65), End(256), End(0, "x" * 1001)])
def test_an_end_that_cannot_be_is_refused(end):
    with pytest.raises(WireError):
        decode_from_node(encode(Bundle(1, 1, 0, items=[ProcessEnd(77, left=False, end=end, steps=0)])))
    possible = Bundle(1, 1, 0, items=[ProcessEnd(77, left=False, end=End(-9, "x" * 1000), steps=0)])
    assert decode_from_node(encode(possible)) == possible
