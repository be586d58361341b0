"""A viewer asks ranks where they are: any rank, at any time, and no rank more often than it may be asked."""

import time

import pytest
import zmq
from msgspec import structs

from ddpmon.hub import stack_requests
from ddpmon.hub.viewers import Viewers
from ddpmon.messages import (
    PROTOCOL,
    STAGE_TRAINING,
    Ask,
    Hello,
    Next,
    RunView,
    SeriesRequest,
    Snapshot,
    Stack,
    StackView,
    ViewRequest,
    Where,
    WireError,
    decode_from_viewer,
    decode_to_rank,
    encode,
)
from ddpmon.messages.changes import apply_changes
from ddpmon.source import LiveSource
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from tests.conftest import wait_for
from tests.worlds import own_times, records

FRAMES = ["train.py:12 main", "train.py:20 <module>"]


def joined(stage, count=2):
    stage.save(world_size=count)
    ranks = [stage.rank(rank, world_size=count) for rank in range(count)]
    for rank in ranks:
        rank.join()
    return ranks


NOBODY = SeriesRequest()


def of_rank(rank, columns, per_column=1):
    return SeriesRequest((), ((rank, rank),), columns, per_column)


def tells(rank):
    """Return the answer of a probe."""
    now = time.monotonic_ns() // 1000
    rank.socket.send(encode(Stack(rank.rank, rank.pid, now, rank.step, now, 1, list(FRAMES), 0)))


def heard(rank, wait_ms=0):
    """Everything that the hub has told a rank and was not read yet."""
    found = []
    while rank.socket.poll(wait_ms):
        found.append(decode_to_rank(rank.socket.recv()))
    return found


def test_the_rank_that_is_asked_is_asked_and_its_answer_reaches_who_requested_it(stage):
    stage.hub()
    first, second = joined(stage)
    source, other = LiveSource(stage.run), LiveSource(stage.run)
    try:
        source.request_view(ViewRequest(inspect=of_rank(1, 10)))
        other.request_view(ViewRequest(stacks=True))
        assert wait_for(lambda: (s := source.snapshot()) and s.inspect).where.stack is None
        source.ask([1])
        assert second.answer(Where).brief
        assert wait_for(lambda: source.snapshot().inspect.where.asked)
        tells(second)
        told = wait_for(lambda: (w := source.snapshot().inspect.where).stack and w)
        assert (told.rank, told.stack.frames, told.asked, told.why) == (1, FRAMES, False, "")
        told = wait_for(lambda: (s := other.snapshot().stacks) and s[1].stack and s)
        assert [view.stack and view.stack.frames for view in told] == [None, FRAMES]
        assert all(rank.stack is None for rank in other.snapshot().ranks)  # they travel to who requested them
        assert not [message for message in heard(first) if isinstance(message, Where)]
        assert told[1].steps_since == 0
        second.batch(records(own_times(30, 2), first=1)[1])
        told = wait_for(lambda: (s := other.snapshot().stacks) and s[1].steps_since and s)
        assert told[1].steps_since == 30
    finally:
        source.close()
        other.close()


def test_all_ranks_are_asked_where_none_is_named(stage):
    stage.hub()
    ranks = joined(stage, 3)
    viewer = stage.viewer()
    viewer.socket.send(encode(Ask()))
    assert all(rank.answer(Where).brief for rank in ranks)


def test_however_many_ask_a_rank_is_not_asked_more_often_than_it_may_be(stage):
    stage.hub()
    (only,) = joined(stage, 1)
    viewers = [stage.viewer() for _ in range(4)]
    began = time.monotonic()
    for _ in range(50):
        for viewer in viewers:
            viewer.socket.send(encode(Ask([0, 0, 0])))
    for viewer in viewers:
        viewer.get()  # the hub has read everything before it
    asked = [message for message in heard(only, 50) if isinstance(message, Where)]
    assert 1 <= len(asked) <= 1 + (time.monotonic() - began) / stack_requests.EVERY_S


def test_a_question_to_nobody_is_no_error(stage):
    stage.hub()
    (only,) = joined(stage, 1)
    viewer = stage.viewer()
    viewer.socket.send(encode(Ask([7, 99_999])))
    viewer.socket.send(encode(Next(view_request=ViewRequest(inspect=of_rank(7, 10), stacks=True))))
    assert viewer.socket.poll(20_000)
    shown = apply_changes(None, viewer.socket.recv())
    assert shown.inspect.where.why == "rank 7 sends nothing to this machine"
    assert (shown.inspect.history.courses, len(shown.stacks)) == ([], 1)
    assert not [message for message in heard(only) if isinstance(message, Where)]


@pytest.mark.parametrize("bad", [
    Ask([-1]), Ask([1 << 40]),
    Next(view_request=ViewRequest(inspect=of_rank(-1, 10))),
    Next(view_request=ViewRequest(inspect=of_rank(0, 10, 3))),
    Next(view_request=ViewRequest(inspect=of_rank(0, 0))),
    Next(view_request=ViewRequest(inspect=of_rank(0, 513))),
    Next(view_request=ViewRequest(inspect=NOBODY)),
])  # fmt: skip
def test_questions_that_cannot_be_are_refused(bad):
    with pytest.raises(WireError):
        decode_from_viewer(encode(bad))


def test_a_damaged_question_does_no_harm(stage):
    stage.hub()
    viewer = stage.viewer()
    for frame in (b"", b"\x92\xa3ask", encode(["ask", "all"]), encode(["ask", [None]]), encode(["lunch"])):
        viewer.socket.send(frame)
    assert viewer.get().state == "waiting"


class Asked:
    """Ranks without a hub."""

    def __init__(self, ranks=2):
        self.registry = Registry("r", ranks, "here")
        self.asked = []
        for rank in range(ranks):
            hello = Hello(PROTOCOL, "r", rank, rank, ranks, 0, "here", 4_000_000 + rank, STAGE_TRAINING)
            self.registry.process_of_rank[rank] = RankProcess(rank + 1, 0, hello, greeted=True, heard_at=10.0)
        self.asking = stack_requests.StackRequests(self.registry, lambda process, _: self.asked.append(process.rank))


def test_a_rank_that_says_nothing_at_all_is_to_be_asked_otherwise_and_one_that_speaks_is_not():
    made = Asked()
    made.asking.request_stacks([], 10.0)
    silent, speaks = made.registry.process_of_rank.values()
    silent.heard_at, speaks.heard_at = 9.9, 10.4
    assert not made.asking.is_unheard(silent, 11.0)
    assert made.asking.is_unheard(silent, 10.0 + stack_requests.UNHEARD_S)
    assert not made.asking.is_unheard(speaks, 10.0 + stack_requests.UNHEARD_S)


def test_nobody_waits_forever_and_a_late_answer_still_counts():
    made = Asked(1)
    (process,) = made.registry.process_of_rank.values()
    made.asking.request_stacks([0], 10.0)
    assert not made.asking.drop_overdue(10.0 + stack_requests.GIVE_UP_S - 0.1)
    assert made.asking.drop_overdue(10.0 + stack_requests.GIVE_UP_S)
    assert (process.asked_at, process.unanswered) == (None, True)
    process.take_stack(Stack(0, 4_000_000, 0, 1, 0, 1, FRAMES), 17.0)
    assert not process.unanswered


def test_those_that_are_gone_are_not_asked():
    made = Asked(3)
    made.registry.process_of_rank[1].left = True
    made.registry.process_of_rank[2].greeted = False
    made.asking.request_stacks([0, 1, 2, 7], 10.0)
    assert made.asked == [0]


def test_what_only_a_part_tells_is_sent_though_nothing_else_has_changed():
    context = zmq.Context()
    hub, viewer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    told, asked = [], []
    shot = Snapshot("e", 0, 5.0, RunView("r", "n", 0), "running", "all is well")

    def parts(shot, _):
        return structs.replace(shot, stacks=[StackView(0, why=str(len(told)))])

    try:
        hub.bind("inproc://view")
        viewer.connect("inproc://view")
        viewers = Viewers(hub, lambda version: structs.replace(shot, version=version), parts, asked.append, "e")
        viewer.send(encode(Next(view_request=ViewRequest(stacks=True))))
        viewer.send(encode(Ask([4])))
        viewers.process_requests(10.0)
        viewers.answer_due(10.0)
        assert (asked, apply_changes(None, viewer.recv(zmq.NOBLOCK)).version) == ([Ask([4])], 1)
        told.append("an answer")
        viewer.send(encode(Next(1, "e", ViewRequest(stacks=True))))
        viewers.process_requests(10.6)
        viewers.answer_due(10.6)
        assert not viewer.poll(0)  # nothing else has changed
        viewers.expect_news()
        viewers.answer_due(10.8)
        again = apply_changes(None, viewer.recv(zmq.NOBLOCK))
        assert (again.version, again.stacks[0].why) == (2, "1")
    finally:
        context.destroy(linger=0)
