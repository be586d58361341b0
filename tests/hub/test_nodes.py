"""Hubs of several nodes over loopback TCP: made-up ranks that tell them of each other, as the probe does."""

import contextlib
import signal
import socket
import time

import msgspec
import psutil
import pytest
import zmq

from ddpmon import runs
from ddpmon.hub import curve_keys
from ddpmon.hub.printed import Printed
from ddpmon.messages import (
    STAGE_TRAINING,
    Ask,
    Bye,
    Card,
    Failure,
    Meeting,
    Next,
    Phase,
    PrintedLine,
    PrintedView,
    PrintedWish,
    Where,
    WireError,
    Wish,
    encode,
)
from ddpmon.messages.nodes import LINK, Bundle, End, Item, Join, Output, decode_from_node
from ddpmon.recording.recorded import recorded_report
from ddpmon.recording.recording import Recording
from ddpmon.runs import job_key
from ddpmon.source.live import LiveSource
from tests.hub.conftest import Stage, until
from tests.namespaces import unshared
from tests.two_hosts import Root
from tests.worlds import own_times, records

HOUR_US = 3_600_000_000
KEY = "0123456789abcdef" * 4


class Machine(Stage):
    """A run of one machine of several, on this one. Its ranks live in containers: they have another host name."""

    def __init__(self, context, number):
        super().__init__(context)
        self.number = number
        self.save(nnodes=2, name=f"node{number}")

    def ranks(self, first, pid=None, **changes):
        """Two ranks. pid: the same on both machines, as in containers. changes: of their Hello."""
        ranks = [self.rank(first + local, pid=(pid or 4_000_000) + local, host=f"box{self.number}") for local in (0, 1)]
        for local, rank in enumerate(ranks):
            rank.join(node_rank=self.number, local_rank=local, **changes)
        return ranks

    towards = "127.0.0.1"

    def meet(self, rank, nodes=2, **known):
        """What the probe says of the process group's store; returns the hub's card for it."""
        rank.socket.send(encode(Meeting(rank.rank, rank.pid, int(rank.rank > 0), nodes, self.towards, **known)))
        return rank.answer(Card)


@pytest.fixture
def machines(home):
    context = zmq.Context()
    made = [Machine(context, number) for number in range(2)]
    yield made
    for machine in made:
        machine.close()
    context.term()
    assert not [machine.log() for machine in made if "Traceback" in machine.log()]


def introduce(root, node, first, second):
    """Let two hubs find each other; returns their cards."""
    card = node.meet(second)
    root.meet(first)
    admitting = root.meet(first, keys={1: card.key})
    node.meet(second, root=admitting)
    return admitting, card


def world(machines, pid=None, before=()):
    """Both hubs with two ranks each, introduced. before: see `Machine.hub`, of the second."""
    root, node = machines
    root.hub()
    node.hub(before=before)
    ranks = [*root.ranks(0, pid, world="first"), *node.ranks(2, pid, world="first")]
    introduce(root, node, ranks[0], ranks[2])
    return ranks


def tell(ranks, told, begin, end, later_us=0):
    """Have each rank send steps of its own. later_us: how far the clock of the second machine is ahead."""
    for rank in ranks:
        ahead = later_us if rank.rank > 1 else 0
        steps = [step for step in told[rank.rank] if begin <= step.step < end]
        steps = [msgspec.structs.replace(step, end_us=step.end_us + ahead) for step in steps]
        rank.batch(steps, now_us=time.monotonic_ns() // 1000 + ahead, stage=STAGE_TRAINING)


def late_world(steps=80):
    own = own_times(steps, 4, noise=0.02)
    own[:, 3, 0] += 15  # data
    return records(own, transfer=2.0, first=1, start_us=time.monotonic_ns() // 1000 - HOUR_US // 10)


def seen_whole(snapshot):
    return all(rank.health == "ok" for rank in snapshot.ranks) and len(snapshot.ranks) == 4


def have_told(steps):
    """Whether every rank of the world was heard, and has told of so many steps."""
    return lambda snapshot: seen_whole(snapshot) and all(rank.steps == steps for rank in snapshot.ranks)


@pytest.mark.parametrize("nnodes", [1, 2])  # 1: `ddpmon exec` does not know that there are others
def test_viewers_of_either_machine_see_the_world_although_pids_are_alike_and_clocks_are_hours_apart(machines, nnodes):
    for machine in machines:
        machine.save(nnodes=nnodes)
    ranks, told = world(machines, pid=4_000_100), late_world()
    for begin in range(1, 81, 20):
        tell(ranks, told, begin, begin + 20, later_us=5 * HOUR_US)
    for machine in machines:
        snapshot = machine.viewer(takes_changes=True).until(lambda s: s.state == "slow", "the late rank")
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
    (event,) = [event for event in recorded_events(one) if "rank 0 is on another machine" in event]
    assert event


def test_nodes_that_are_numbered_anew_keep_their_own_connections(machines):
    root, node = machines
    ranks = world(machines)
    first = node.meet(ranks[2])
    stranger = curve_keys.fresh()
    again = [*root.ranks(0, 4_000_300, world="second"), *node.ranks(2, 4_000_300, world="second")]
    admitting = root.meet(again[0], keys={1: stranger.public, 2: first.key}, nodes=3)
    assert admitting.admits == [1, 2]
    kept = curve_keys.kept(root.dir)
    assert kept.admitted == {first.key: 1, stranger.public: 2}


def recorded_events(machine):
    with Recording(runs.load(machine.run.id)) as recording:
        return [event.text for event in recording.events(100)]


def recorded_steps(machine):
    """{rank: how many of its steps are in the recording}"""
    with contextlib.suppress(Exception), Recording(runs.load(machine.run.id)) as recording:
        return {process.rank: process.records for process in recording.processes()}
    return {}


def test_what_a_node_said_while_the_root_was_dead_is_not_lost(machines):
    root, node = machines
    ranks, told = world(machines), late_world(100)
    tell(ranks, told, 1, 21)
    viewer = node.viewer()
    viewer.until(have_told(20), "the first steps")
    for rank in ranks[:2]:
        rank.acknowledged(1)
    root.hubs[-1].kill()
    root.hubs[-1].wait()
    tell(ranks[2:], told, 21, 41)
    alone = viewer.until(lambda s: any("is not reached" in note for note in s.notes), "that the root is away")
    assert alone.state != "slow" or "rank 3" in alone.verdict
    root.hub()
    for rank in ranks[:2]:
        rank.join(node_rank=0, local_rank=rank.rank)  # as a rank does whom a hub does not know
    tell(ranks[:2], told, 21, 41)
    tell(ranks, told, 41, 61)
    whole = viewer.until(lambda s: s.step == 60 and seen_whole(s), "the world again")
    assert whole.records_lost == 0
    assert not any("is not reached" in note for note in whole.notes)
    until(lambda: set(recorded_steps(root).values()) == {60}, "all steps in the root's recording")


def test_hubs_whose_keys_were_not_told_are_refused_and_counted(machines):
    root, _ = machines
    ranks = world(machines)
    card = root.meet(ranks[0])
    stranger = curve_keys.fresh()
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.LINGER, 0)
    peer.curve_publickey, peer.curve_secretkey = stranger.public.encode(), stranger.secret.encode()
    peer.curve_serverkey = card.key.encode()
    try:
        peer.connect(card.addresses[0])
        peer.send(encode(Join(LINK, "x", "impostor")))
        root.viewer().until(
            lambda s: any("not admitted" in r.what for r in s.refused) and seen_whole(s), "the refusal beside the world"
        )
        assert not peer.poll(200), "nothing is said to who was not let in"
        port = int(card.addresses[0].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(b"no ZeroMQ")
        counted = root.viewer().until(lambda s: len(s.refused) > 1, "that somebody was there and had no key")
        assert [(row.what, row.count) for row in counted.refused][1] == (
            "connection that ended before it proved a key",
            1,
        )
    finally:
        peer.close()
        context.term()


def test_connections_that_call_themselves_like_another_machine_s_hurt_nobody(machines):
    root, _ = machines
    world(machines)
    viewer = root.viewer()
    viewer.until(seen_whole, "the world")
    context = zmq.Context()
    peers = []
    try:
        for name in (b"N", b"Nx", b"N1", b"N1/x", b"N7/1"):
            for address, said in (
                (runs.ingest_address(root.run.id), Bye(0, 4_100_000, 1)),
                (runs.view_address(root.run.id), Next()),
            ):
                peers.append(context.socket(zmq.DEALER))
                peers[-1].setsockopt(zmq.LINGER, 0)
                peers[-1].setsockopt(zmq.ROUTING_ID, name)
                peers[-1].connect(address)
                peers[-1].send(encode(said))
        assert all(seen_whole(viewer.get()) for _ in range(3)), "the hub goes on"
    finally:
        for peer in peers:
            peer.close()
        context.term()
    assert root.hubs[-1].poll() is None


def test_a_hub_of_one_machine_listens_on_no_port(stage):
    stage.hub()
    stage.rank(0).join()
    assert not listening(stage.hubs[-1].pid)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_root_listens_on_the_interface_that_leads_to_the_others_only(machines, address):
    if address == "::1" and not has_ipv6():
        pytest.skip("no IPv6 on this machine's loopback")
    for machine in machines:
        machine.towards = address
    world(machines)
    machines[1].viewer().until(seen_whole, "the world")
    assert listening(machines[0].hubs[-1].pid) == {address}
    assert not listening(machines[1].hubs[-1].pid)


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def listening(pid):
    """Addresses at which a process listens."""
    return {at.laddr.ip for at in psutil.Process(pid).net_connections("inet") if at.status == psutil.CONN_LISTEN}


def test_a_node_whose_hub_is_silent_is_named_with_its_ranks(machines):
    root, node = machines
    ranks, told = world(machines), late_world()
    tell(ranks, told, 1, 21)
    viewer = root.viewer()
    viewer.until(have_told(20), "the steps")
    node.hubs[-1].kill()
    gone = until(lambda: [event for event in viewer.get().events if "ranks 2-3" in event.text], "its name")
    assert [event.severity for event in gone] == ["critical"]
    assert gone[0].text.endswith("is gone: ranks 2-3, last step 20")


def test_a_node_whose_hub_is_silent_while_the_others_step_on_is_not_called_gone(machines):
    root, node = machines
    ranks, told = world(machines), late_world(400)
    tell(ranks, told, 1, 21)
    viewer = root.viewer()
    viewer.until(have_told(20), "the steps")
    node.hubs[-1].kill()
    node.hubs[-1].wait()
    begin = 21

    def told_of():
        nonlocal begin
        tell(ranks[:2], told, begin, begin + 2)
        begin += 2
        time.sleep(0.1)  # no faster than ranks train: who is silent is told by the hub's clock, what is late by theirs
        return [event.text for event in viewer.get().events if "nothing is heard of" in event.text]

    (text,) = until(told_of, "that its hub is silent")
    assert "ranks 2-3, last step 20" in text
    for later in range(begin, 380, 20):
        tell(ranks[:2], told, later, later + 20)
    late = viewer.until(lambda s: s.step >= 380 and s.window and s.window[0] > 20, "steps of two ranks alone")
    assert not {found.kind for found in late.findings} & {"communication_bound", "slow_link"}
    assert [rank.phases_ms[Phase.TRANSFER] for rank in late.ranks[:2]] == [0, 0], late.window
    assert "ranks 2-3 are not heard here" in late.verdict
    node.hub()
    for rank in ranks[2:]:
        rank.join(node_rank=1, local_rank=rank.rank - 2)
    introduce(root, node, ranks[0], ranks[2])
    until(lambda: any("is back" in event.text for event in viewer.get().events), "that it is back")


def test_a_question_of_a_viewer_of_one_machine_reaches_a_rank_of_the_other(machines):
    root, node = machines
    ranks = world(machines)
    for machine, asked in ((root, 3), (node, 0)):
        viewer = machine.viewer()
        viewer.until(seen_whole, "the world")
        viewer.socket.send(encode(Ask([asked])))
        assert ranks[asked].answer(Where).brief


def test_what_a_rank_of_another_machine_prints_is_fetched_for_who_looks_at_it_as_it_grows(machines, cli):
    for machine in machines:
        machine.save(argv=["torchrun", f"--node-rank={machine.number}"])
    world(machines)
    root, node = machines
    write_logs(root, "", rank0="of rank 0\n")
    write_logs(node, "", rank1="of rank 3\n")
    for machine, rank in ((root, 3), (node, 0)):
        with contextlib.closing(LiveSource(machine.run)) as source:
            source.wish(Wish(printed=PrintedWish(rank)))
            log = source.logs()
            (line,) = until(lambda log=log, rank=rank: [e for e in log.poll() if rank in e.ranks], "its output")
            assert (line.text, line.stream, log.elsewhere) == (f"of rank {rank}", "err", {rank})
    with contextlib.closing(LiveSource(root.run)) as source:
        source.wish(Wish(printed=PrintedWish(3)))
        until(lambda: [e for e in source.logs().poll() if 3 in e.ranks], "what was printed before")
        with (node.dir / "logs" / "ranks" / "x" / "attempt_0" / "1" / "stderr.log").open("a") as more:
            more.write("and more\n")
        assert [line.text for line in until(source.logs().poll, "what came since")] == ["and more"]
    told = cli("logs", root.run.id, "--rank", "3")
    assert (told.stdout, told.returncode) == ("! of rank 3\n! and more\n", 0), told.stderr


def test_output_that_nobody_asked_for_is_not_taken(home):
    root = Root()
    for rank in range(4):
        root.join(rank)
    asked = []
    printed = Printed(root.run, root.store.registry, lambda node, rank: asked.append((node, rank)))
    view = PrintedView(3, 1, [PrintedLine("out", "x")])
    assert not printed.came(view, 1), "nobody asked"
    assert printed.view(3, 10.0).why == "its machine is asked for it"
    assert not printed.came(view, 2), "another node's"
    assert printed.came(view, 1)
    assert printed.view(3, 10.1) == view
    assert asked == [(1, 3)], "not more often than its logs are read"
    with pytest.raises(WireError):
        decode_from_node(encode(Output(PrintedView(3, 1, [PrintedLine("out", "x"), PrintedLine("out", "y")]))))


def test_a_stop_on_one_machine_stops_the_others(machines):
    root, node = machines
    world(machines)
    node.viewer().until(seen_whole, "the world")
    node.save(stopping=True, stopping_at=time.time())
    assert root.supervisor.wait(30) == -signal.SIGTERM, "what ddpmon stop sends"


def test_the_end_is_told_to_the_viewers_of_every_machine_and_all_is_recorded(machines):
    root, node = machines
    ranks, told = world(machines), late_world()
    viewer = node.viewer(takes_changes=True)
    viewer.until(seen_whole, "the world")
    tell(ranks, told, 1, 81)
    for rank in ranks:
        rank.bye()
    root.end()
    node.end()
    assert viewer.until(lambda s: s.state == "done", "the end").step == 80
    for machine in machines:
        assert machine.hubs[-1].wait(30) == 0
    assert recorded_steps(root) == dict.fromkeys(range(4), 80)
    assert recorded_steps(node) == {2: 80, 3: 80}


@pytest.fixture
def hours_ahead():
    """What to put before a command line, so that its monotonic clock is five hours ahead."""
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
    """What torchrun and the local ranks of a machine wrote."""
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
        decode_from_node(encode(Bundle(1, 1, 0, items=[Item(77, b"", end=end)])))
    assert decode_from_node(encode(Bundle(1, 1, 0, items=[Item(77, b"", end=End(-9, "x" * 1000))]))).items[0].end


def given(machines, *keys):
    """Have the machines meet at a port of the first, each with a key of the job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    for machine, key in zip(machines, keys, strict=True):
        machine.save(hub_at=place, hub_is_here=machine is machines[0])
        job_key.keep(machine.run.id, key)
        machine.hub()
    return place


def test_hubs_that_were_given_where_to_meet_do_so_before_any_rank_and_keep_their_numbers(machines):
    root, node = machines
    given(machines, KEY, KEY)
    viewer = root.viewer()
    viewer.until(lambda s: any("its hub has joined" in event.text for event in s.events), "the other hub")
    (first,) = node.ranks(2)[:1]
    early = viewer.until(lambda s: "not started: 0-1" in s.verdict, "who has come, before there is a group")
    assert [rank.host for rank in early.ranks if rank.pid] == ["box1", "box1"]
    ranks, told = [*root.ranks(0), *machines[1].peers[-2:]], late_world()
    first.socket.send(encode(Meeting(2, first.pid, 1, 2, "192.0.2.1", root=Card("x" * 40, "", ["tcp://192.0.2.1:1"]))))
    root.hubs[-1].kill()
    root.hubs[-1].wait()
    before = curve_keys.kept(root.dir).admitted
    root.hub()
    for rank in ranks[:2]:
        rank.join(node_rank=0, local_rank=rank.rank)
    for begin in range(1, 81, 20):
        tell(ranks, told, begin, begin + 20)
    for machine in machines:
        assert "rank 3 is slow" in machine.viewer().until(lambda s: s.state == "slow", "the late rank").verdict
    assert curve_keys.kept(root.dir).admitted == before
    assert list(before.values()) == [1]


def test_a_hub_with_another_key_is_refused_and_counted_and_says_so_itself(machines):
    root, node = machines
    place = given(machines, KEY, KEY[::-1])
    node.ranks(2)
    alone = node.viewer().until(lambda s: any("another key" in note for note in s.notes), "why it is alone")
    assert (
        f"the hub at {place} answers with another key than this machine was given: this machine's ranks only"
        in alone.notes
    )
    assert len([rank for rank in alone.ranks if rank.pid]) == 2
    root.viewer().until(lambda s: any("before it proved a key" in r.what for r in s.refused), "the refusal")


def test_a_hub_that_is_not_there_is_named_and_a_port_that_is_taken_hurts_no_rank(machines):
    root, node = machines
    node.save(hub_at="127.0.0.1:1", hub_is_here=False)
    job_key.keep(node.run.id, KEY)
    node.hub()
    node.ranks(2)
    node.viewer().until(lambda s: any("the hub at 127.0.0.1:1 is not reached" in note for note in s.notes), "its place")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        root.save(hub_at=f"127.0.0.1:{taken.getsockname()[1]}", hub_is_here=True)
        job_key.keep(root.run.id, KEY)
        root.hub()
        root.ranks(0)
        root.viewer().until(
            lambda s: any("Address already in use" in event.text for event in s.events), "why nobody can come"
        )
