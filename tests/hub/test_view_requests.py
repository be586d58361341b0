"""Test that the parts of one screen are built only for viewers that request them."""

import math
import os
import threading
import time
from functools import partial

import pytest
import zmq

from ddpmon import runs
from ddpmon.messages import (
    SERIES_MOST,
    Ask,
    Next,
    SeriesRequest,
    TimelineRequest,
    ViewRequest,
    WireError,
    decode_from_viewer,
    encode,
)
from ddpmon.messages.changes import apply_changes
from ddpmon.source import LiveSource, RecordedSource
from ddpmon.source.replay import ReplaySource
from tests.conftest import wait_for
from tests.recordings import BEGAN, record, story
from tests.worlds import own_times, records

HEAT = ViewRequest(heat=SeriesRequest(("own",), per_column=1, rows=10, columns=60))
LAST = ViewRequest(timeline=TimelineRequest(3, 2))


def train(stage, steps=50, late=1):
    own = own_times(steps, 2)
    own[:, late, 1] += 12.0
    told = records(own, first=1)
    for rank in stage.start():
        rank.train(told[rank.rank])


def asked(stage, view_request):
    viewer = stage.viewer()
    viewer.socket.send(encode(Next(view_request=view_request)))
    assert viewer.socket.poll(20_000)
    return apply_changes(None, viewer.socket.recv())


def test_each_viewer_gets_what_it_requests(stage):
    train(stage)
    stage.viewer().until(lambda s: s.window == (2, 50), "the steps")
    heat, last, plain = (asked(stage, view_request) for view_request in (HEAT, LAST, ViewRequest()))
    assert (heat.heat.last_step, heat.heat.columns, len(heat.heat.rows)) == (50, 50, 2)
    assert len(heat.heat.cells) == 100
    assert heat.timeline is None
    assert [step.step for step in last.timeline.steps] == [48, 49, 50]
    assert [row.rank for row in last.timeline.rows] == [1, 0]
    assert (plain.heat, plain.timeline) == (None, None)


def test_a_live_source_is_granted_a_new_request_and_goes_on_being_so_after_the_end(stage):
    train(stage)
    source = LiveSource(stage.run)
    try:
        wait_for(lambda: (s := source.snapshot()) and s.window == (2, 50))
        assert source.snapshot().heat is None
        source.request_view(HEAT)
        wait_for(lambda: source.snapshot().heat)
        source.request_view(LAST)
        wait_for(lambda: source.snapshot().timeline and not source.snapshot().heat)
        source.request_view(ViewRequest(cores=SeriesRequest()))
        assert len(wait_for(lambda: (view := source.snapshot().cores) and view.courses)) == os.cpu_count()
        stage.finish()
        wait_for(lambda: source.snapshot().state == "done")
        source.request_view(HEAT)
        assert wait_for(lambda: source.snapshot().heat).last_step == 50
        requesting = threading.Thread(
            target=lambda: [source.request_view(view_request) for view_request in [LAST, HEAT] * 500], daemon=True
        )
        requesting.start()
        requesting.join(20)
        assert not requesting.is_alive(), "a viewer that requests views again and again is held up"
    finally:
        source.close()
    recorded = RecordedSource(runs.load(stage.run.id))
    recorded.request_view(LAST)
    assert recorded.snapshot().timeline.steps[-1].step == 50


def test_a_recording_tells_what_devices_did_second_by_second(home):
    run = record(own_times(300, 2))
    view_request = ViewRequest(samples=SeriesRequest(("cpu", "rss"), per_column=1, columns=8, ranks=((0, 1),)))
    source = RecordedSource(run)
    source.request_view(view_request)
    view = source.snapshot().samples
    assert [(each.rank, each.name, each.high) for each in view.courses] == [
        (0, "cpu", 100.0), (1, "cpu", 100.0), (0, "rss", 1 << 30), (1, "rss", 1 << 30),
    ]  # fmt: skip
    assert all(cell for each in view.courses for cell in each.cells[-4:])


def test_a_replay_shows_the_heat_of_the_moment(home):
    source = ReplaySource(record(story(700, 3, begin=200, end=500), events=[(20.0, "late")]))
    try:
        source.toggle()
        source.request_view(HEAT)
        source.jump(1)
        shown = wait_for(lambda: (s := source.snapshot()) and s.at == BEGAN + 20 and s.heat and s)
        assert shown.heat.last_step == shown.step
        assert shown.heat.rows[2].hot_share > 0.5
        source.request_view(ViewRequest())
        wait_for(lambda: source.snapshot().heat is None)
    finally:
        source.close()


def test_nothing_to_show_yet_is_no_error(stage):
    stage.hub()
    shown = asked(stage, ViewRequest(SeriesRequest(), TimelineRequest()))
    assert (shown.heat, shown.timeline) == (None, None)
    assert time.time() - shown.at < 60


series, timeline = partial(partial, SeriesRequest), partial(partial, TimelineRequest)
"""Make requests that are only created in the test, because impossible ones cannot be."""


def made(kind, parts):
    return kind(**{name: part() if callable(part) else part for name, part in parts.items()})


OF_DEVICES = [
    series(("loss",)), series(per_column=2), series(columns=0), series(columns=513),
    series(ranks=((3, 2),)), series(ranks=((0, 512),)),
]  # fmt: skip
OF_SERIES = [
    dict(span_s=0.0), dict(span_s=-1.0), dict(span_s=math.nan), dict(span_s=math.inf), dict(end_s=-0.1),
    dict(end_s=math.nan), dict(columns=0), dict(columns=SERIES_MOST + 1),
]  # fmt: skip
OF_RANKS = [((3, 2),), ((-1, 2),), ((0, 4), (4, 6)), ((5, 6), (1, 2)), ((0, 1 << 30),)]
IMPOSSIBLE = [
    *({part: request} for part in ("samples", "cores") for request in OF_DEVICES),
    *({"series": series(("loss",), **fields)} for fields in OF_SERIES),
    *({"heat": series(ranks=ranks)} for ranks in OF_RANKS),
    *({"timeline": timeline(ranks=ranks)} for ranks in OF_RANKS),
    *({"inspect": series((), ((rank, rank),), columns, per_column)}
      for rank, columns, per_column in ((-1, 10, 1), (0, 10, 3), (0, 0, 1), (0, 513, 1))),
    {"inspect": series()},
    {"cost": "forever"},
    {"heat": series(("lunch",))}, {"heat": series(per_column=3)}, {"heat": series(rows=0)},
    {"heat": series(columns=513)}, {"heat": series(columns=10_000)},
    {"series": series()}, {"series": series(("x" * 300,))},
    {"timeline": timeline(steps=0)}, {"timeline": timeline(rows=10_000)},
    {"timeline": timeline(first=-1)},
]  # fmt: skip


@pytest.mark.parametrize("parts", IMPOSSIBLE)
def test_view_requests_that_cannot_be_are_refused(parts):
    with pytest.raises(WireError):
        decode_from_viewer(encode(Next(view_request=made(ViewRequest, parts))))


@pytest.mark.parametrize("rank", [-1, 1 << 40])
def test_questions_to_ranks_that_cannot_be_are_refused(rank):
    with pytest.raises(WireError):
        decode_from_viewer(encode(Ask([rank])))


def test_a_new_view_request_does_not_wait_for_the_answer_to_the_last_request(stage, monkeypatch):
    monkeypatch.setattr("ddpmon.source.live.ASK_AGAIN_S", 1e6)
    runs.make_socket_dir(stage.run.id)
    hub = stage.context.socket(zmq.ROUTER)
    hub.bind(runs.view_address(stage.run.id))
    source = LiveSource(stage.run)
    try:
        for view_request in (ViewRequest(), HEAT, LAST):
            source.request_view(view_request)
            assert hub.poll(20_000), "it waits for an answer"
            assert decode_from_viewer(hub.recv_multipart()[1]).view_request == view_request
    finally:
        source.close()
        hub.close(linger=0)
