"""A viewer asks ranks where they are: any rank, at any time, and no rank more often than it may be asked."""

import time

from ddpmon.hub import stack_requests
from ddpmon.messages import (
    PROTOCOL,
    STAGE_TRAINING,
    Ask,
    Hello,
    Next,
    SeriesRequest,
    Stack,
    ViewRequest,
    Where,
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
    first, second = stage.start()
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
        source.ask([])  # nobody is named
        assert all(rank.answer(Where).brief for rank in (first, second))
    finally:
        source.close()
        other.close()


def test_however_many_ask_a_rank_is_not_asked_more_often_than_it_may_be(stage):
    (only,) = stage.start(1)
    viewers = [stage.viewer() for _ in range(4)]
    began = time.monotonic()
    for _ in range(50):
        for viewer in viewers:
            viewer.socket.send(encode(Ask([0, 0, 0])))
    for viewer in viewers:
        viewer.get()  # the hub has read everything before it
    asked = [message for message in heard(only, 50) if isinstance(message, Where)]
    assert 1 <= len(asked) <= 1 + (time.monotonic() - began) / stack_requests.STACK_INTERVAL_S


def test_a_question_to_nobody_and_a_damaged_one_do_no_harm(stage):
    (only,) = stage.start(1)
    viewer = stage.viewer()
    for frame in (b"", b"\x92\xa3ask", encode(["ask", "all"]), encode(["ask", [None]]), encode(["lunch"])):
        viewer.socket.send(frame)
    viewer.socket.send(encode(Ask([7, 99_999])))
    viewer.socket.send(encode(Next(view_request=ViewRequest(inspect=of_rank(7, 10), stacks=True))))
    assert viewer.socket.poll(20_000)
    shown = apply_changes(None, viewer.socket.recv())
    assert shown.inspect.where.why == "rank 7 sends nothing to this machine"
    assert (shown.inspect.history.courses, len(shown.stacks)) == ([], 1)
    assert not [message for message in heard(only) if isinstance(message, Where)]


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
    assert made.asking.is_unheard(silent, 10.0 + stack_requests.ASK_BY_SIGNAL_S)
    assert not made.asking.is_unheard(speaks, 10.0 + stack_requests.ASK_BY_SIGNAL_S)


def test_nobody_waits_forever_and_a_late_answer_still_counts():
    made = Asked(1)
    (process,) = made.registry.process_of_rank.values()
    made.asking.request_stacks([0], 10.0)
    assert not made.asking.drop_overdue(10.0 + stack_requests.NO_ANSWER_S - 0.1)
    assert made.asking.drop_overdue(10.0 + stack_requests.NO_ANSWER_S)
    assert (process.asked_at, process.unanswered) == (None, True)
    process.take_stack(Stack(0, 4_000_000, 0, 1, 0, 1, FRAMES), 17.0)
    assert not process.unanswered


def test_those_that_are_gone_are_not_asked():
    made = Asked(3)
    made.registry.process_of_rank[1].left = True
    made.registry.process_of_rank[2].greeted = False
    made.asking.request_stacks([0, 1, 2, 7], 10.0)
    assert made.asked == [0]
