"""A rank says where it is when it is asked, at once and as cheaply as the question allows."""

import contextlib
import gc
import threading
import time
import traceback
import weakref
from types import SimpleNamespace

import msgspec
import pytest

from ddpmon.messages import decode_from_rank, encode
from ddpmon.probe import collectives, stack_report


@contextlib.contextmanager
def standing(run):
    """Run a function in a thread, up to where it calls `stand()`, for as long as this is entered; the thread."""
    let_go, there = threading.Event(), threading.Event()

    def stand():
        there.set()
        let_go.wait(60)

    thread = threading.Thread(target=run, args=(stand,))
    thread.start()
    assert there.wait(30)
    try:
        yield thread
    finally:
        let_go.set()
        thread.join()


def stands_still(stand):
    stand()


@pytest.fixture
def made(monkeypatch):
    """(The reporter of a thread that stands still, how often the Flight Recorder was asked)."""
    dumps = []
    monkeypatch.setattr(collectives, "unfinished_or_last", lambda: dumps.append(1) or (None, False))
    with standing(stands_still) as thread:
        part = SimpleNamespace(start=0, marks=[])
        clock = SimpleNamespace(part=part, step=7, phase=1, finished=[])
        listener = SimpleNamespace(
            thread=thread.ident, clock=clock, identity=SimpleNamespace(facts=SimpleNamespace(rank=3, world_size=4))
        )
        yield stack_report.StackReporter(listener), dumps


def test_what_python_does_to_import_a_module_is_no_place_where_a_script_stands(tmp_path, monkeypatch):
    (tmp_path / "imported.py").write_text("import sys\nframe = sys._getframe()\n")
    monkeypatch.syspath_prepend(tmp_path)
    stack_report._place.cache_clear()
    import imported

    lines = [(frame.f_code, number) for frame, number in traceback.walk_stack(imported.frame)]
    frames, own = stack_report.place_frames(stack_report.without_probe(lines))
    assert frames[:1] == ["imported.py:2 <module>"]
    assert own[0] == 0
    assert not [frame for frame in frames if "importlib" in frame]
    assert "test_what_python_does_to_import" in frames[1]


def test_nobody_who_is_not_asked_says_anything(made):
    where, _ = made
    where._listener.clock.part.start = 1 << 62  # its step has only just begun
    assert not where.is_due(1000.0)
    where.request(brief=True)
    assert where.is_due(1000.0)
    told = where.capture(1000.0)
    assert decode_from_rank(encode(told)) == told
    assert (told.rank, told.step, told.phase) == (3, 7, 1)
    assert any("stands_still" in frame for frame in told.frames)
    assert not where.is_due(1000.0)


def test_for_a_viewer_the_flight_recorder_is_left_alone_however_often_it_asks(made):
    where, dumps = made
    for _ in range(5):
        where.request(brief=True)
        where.capture(1000.0)
    assert not dumps
    for _ in range(5):
        where.request(brief=False)
        where.capture(1000.0)
    assert len(dumps) == 1  # once for a thread that stands still


def test_a_file_whose_name_is_no_utf_8_can_be_sent(made):
    where, _ = made
    code = compile("stand()", "/home/somebody/tr\udcffin.py", "exec")
    with standing(lambda stand: exec(code, {"stand": stand})) as thread:
        where._listener.thread = thread.ident
        taken = where.capture(1000.0)
    assert "/home/somebody/tr?in.py:1 <module>" in msgspec.msgpack.decode(encode(taken))[7]


def test_reading_the_stack_keeps_nothing_of_the_script_alive(made):
    """Without a collection: an optimizer that lived on was taken for one of the next loop's."""
    where, _ = made
    left = []

    def trains(stand):
        optimizer = threading.Event()  # any object that can be referred to weakly
        left.append(weakref.ref(optimizer))
        stand()

    gc.disable()
    try:
        with standing(trains) as thread:
            where._listener.thread = thread.ident
            where.has_moved()
            where.capture(1000.0)
        assert left[0]() is None
    finally:
        gc.enable()


def test_being_asked_does_not_put_off_what_it_would_say_by_itself(made):
    where, _ = made
    assert where.is_due(1000.0)  # its step takes far too long
    where.capture(1000.0)
    where.request(brief=True)
    where.capture(1001.5)
    assert where.is_due(1000.0 + stack_report.OVERDUE_INTERVAL_S)


def test_a_rank_in_its_backward_waits_if_it_has_peers_and_the_run_does_not_make_progress(made):
    where, _ = made
    assert where._collective(["_engine_run_backward"], brief=False)[1]
    assert where._collective(["_engine_run_backward"], brief=True)[1], "its step is overdue"
    where._listener.clock.part.start = time.monotonic_ns()
    assert where._collective(["_engine_run_backward"], brief=True) == (None, False)
    assert where._collective(["_sync_buffers"], brief=True)[1]
    where._listener.identity.facts.world_size = 1
    assert where._collective(["_engine_run_backward"], brief=False) == (None, False)
