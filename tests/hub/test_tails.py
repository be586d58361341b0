"""Test that the tails of ranks reach the recording, and that other files in their folder do no harm."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon import messages
from ddpmon.messages import PROTOCOL, STAGE_TRAINING, Batch, Bye, Hello
from ddpmon.messages.folder import TAILS, pack_tail, unpack_tail
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.unsent_files import Tails
from tests.hub.conftest import until
from tests.hub.thinned import recorded, rows
from tests.worlds import own_times, records

PID = 4_100_000


def left_by(run_id, rank, steps=(), *, first=1, pid=PID, world_size=2, host="elsewhere"):
    """The frames of a rank that ended unheard: `steps` in batches of five."""
    hello = Hello(PROTOCOL, run_id, rank, rank, world_size, 0, host, pid, STAGE_TRAINING)
    batches = [steps[i : i + 5] for i in range(0, len(steps), 5)]
    told = [
        Batch(rank, pid, first + i, time.monotonic_ns() // 1000, STAGE_TRAINING, batch[-1].step, 0, steps=list(batch))
        for i, batch in enumerate(batches)
    ]
    bye = Bye(rank, pid, first + len(batches) - 1)
    return [messages.encode(message) for message in (hello, *told, bye)]


def leave(folder, name, content):
    (folder / TAILS).mkdir(mode=0o700, exist_ok=True)
    draft = folder / TAILS / f"{name}.new"
    draft.write_bytes(content)
    draft.rename(folder / TAILS / name)


def test_what_ranks_left_before_there_was_a_hub_is_recorded_and_goes_away(stage):
    stage.save(world_size=2)
    told = records(own_times(60, 2), first=1)
    for rank in (0, 1):
        leave(stage.dir, f"{rank}-{PID + rank}", pack_tail(left_by(stage.run.id, rank, told[rank], pid=PID + rank)))
    stage.hub()
    shot = stage.viewer().until(lambda s: s.step == 60 and s.window == (2, 60), "all is there")
    assert (shot.records_lost, [view.health for view in shot.ranks]) == (0, ["left", "left"])
    stage.finish()
    assert recorded(stage.run) == [(0, 60, 60), (1, 60, 60)]
    assert not (stage.dir / TAILS).exists()
    assert recorded_snapshot(stage.run).records_lost == 0


def test_what_was_heard_already_is_not_recorded_twice(stage):
    stage.save(world_size=2)
    told = records(own_times(40, 2), first=1)
    stage.hub()
    rank = stage.rank(0)
    rank.join()
    for i in range(0, 20, 5):
        rank.batch(told[0][i : i + 5])
    rank.acknowledged(4)
    leave(stage.dir, f"0-{rank.pid}", pack_tail(left_by(stage.run.id, 0, told[0][10:], first=3, pid=rank.pid)))
    shot = stage.viewer().until(lambda s: s.ranks[0].health == "left", "its goodbye")
    assert (shot.ranks[0].steps, shot.records_lost) == (40, 0)
    stage.finish()
    assert recorded(stage.run) == [(0, 40, 40)]


def test_what_an_earlier_attempt_left_does_not_disturb_the_current_one(stage):
    """Rank 0 has a process in this attempt already, rank 1 does not have one yet."""
    stage.save(world_size=2)
    told = records(own_times(40, 2), first=1)
    stage.hub()
    old, new = stage.rank(0, pid=PID), stage.rank(0, pid=PID + 5)
    old.join()
    old.train(told[0][:5])
    new.join(restart=1)
    new.train(told[0][:30])
    leave(stage.dir, f"0-{PID}", pack_tail(left_by(stage.run.id, 0, told[0][5:15], first=2)))
    leave(stage.dir, f"1-{PID + 1}", pack_tail(left_by(stage.run.id, 1, told[1][:15], pid=PID + 1)))
    until(lambda: not list((stage.dir / TAILS).iterdir()), "they are taken in")
    second = stage.rank(1, pid=PID + 6)
    second.join(restart=1)
    assert stage.viewer().get().ranks[1].pid == PID + 6
    second.batch(told[1][:30])
    shot = stage.viewer().until(lambda s: s.window == (2, 30), "the new attempt's steps")
    assert [(view.pid, view.health) for view in shot.ranks] == [(PID + 5, "ok"), (PID + 6, "ok")]
    stage.finish()
    query = "SELECT pid, attempt, sum(count) FROM step_blocks JOIN processes ON id = process GROUP BY pid"
    assert rows(stage.run, query) == [(PID, 0, 15), (PID + 1, 0, 15), (PID + 5, 1, 30), (PID + 6, 1, 30)]


def test_a_hub_that_is_told_to_end_at_once_takes_them_first(stage):
    stage.save(world_size=1)
    hub = stage.hub()
    hub.send_signal(19)  # SIGSTOP: it cannot look before it is told to end
    told = records(own_times(30, 1), first=1)
    leave(stage.dir, f"0-{PID}", pack_tail(left_by(stage.run.id, 0, told[0], world_size=1)))
    stage.end()
    hub.send_signal(18)
    assert hub.wait(20) == 0
    assert recorded(stage.run) == [(0, 30, 30)]


def test_what_a_rank_left_before_the_machine_was_started_anew_is_not_of_the_future(stage):
    """Its clock had run for longer than this machine's has now."""
    stage.save(world_size=1)
    later = time.monotonic_ns() // 1000 + 10**12
    steps = records(own_times(10, 1), first=1, start_us=later)[0]
    hello = Hello(PROTOCOL, stage.run.id, 0, 0, 1, 0, stage.run.host, PID, STAGE_TRAINING)
    batch = Batch(0, PID, 1, steps[-1].end_us, STAGE_TRAINING, 10, 0, steps=steps)
    leave(stage.dir, f"0-{PID}", pack_tail([messages.encode(each) for each in (hello, batch, Bye(0, PID, 1))]))
    stage.hub()
    shot = stage.viewer().until(lambda s: s.ranks[0].health == "left", "what it left")
    assert (shot.ranks[0].steps, shot.records_lost, shot.refused) == (10, 0, [])
    stage.finish()
    assert recorded(stage.run) == [(0, 10, 10)]


def test_names_of_files_that_are_no_utf8_end_no_hub(stage):
    """The script's name and a name in the folder of the tails are no UTF-8."""
    stage.save(world_size=1, script="tr\udce4in.py")
    leave(stage.dir, "0-\udcff", b"")
    stage.hub()
    shot = stage.viewer().until(lambda s: any(TAILS in event.text for event in s.events), "the file's name")
    assert shot.run.script == "tr?in.py"
    assert any(event.text.startswith(f"{TAILS}/0-? cannot be read") for event in shot.events)
    stage.finish(exit_code=None, error="no program tr\udce4in.py")
    last = recorded_snapshot(stage.run)
    assert (last.state, last.verdict) == ("failed", "no program tr?in.py")
    assert (stage.dir / "report.json").exists()


def test_damaged_and_foreign_files_are_said_once_and_left_alone(stage):
    stage.save(world_size=2)
    told = records(own_times(30, 2), first=1)
    whole = pack_tail(left_by(stage.run.id, 1, told[1], pid=PID + 1))
    leave(stage.dir, "notes.txt", b"mine")
    leave(stage.dir, f"0-{PID}", b"\x00" * 1000)
    leave(stage.dir, f"1-{PID + 1}", whole[:-30])
    leave(stage.dir, f"1-{PID + 2}", whole)
    (stage.dir / TAILS / f"0-{PID + 3}").mkdir()
    stage.hub()
    viewer = stage.viewer()
    shot = viewer.until(lambda s: s.ranks[1].steps == 25, "what could be read")
    said = [event.text for event in shot.events if TAILS in event.text]
    assert sorted(text.partition(" cannot be read: ")[2][:26] for text in said) == [
        "frame 1 of 8 belongs to an",
        "the file does not begin li",
        "the file does not come fro",
        "the file is damaged or inc",
        "this is not a regular file",
    ]
    leave(stage.dir, "more", b"")
    shot = viewer.until(lambda s: any("/more " in event.text for event in s.events), "the next one")
    assert len([event for event in shot.events if TAILS in event.text]) == 6
    stage.finish()
    assert (stage.dir / TAILS / "notes.txt").read_bytes() == b"mine"


frames = st.lists(st.binary(min_size=1, max_size=200), max_size=8)


@given(frames, st.data())
def test_a_file_that_is_cut_short_gives_its_first_frames(given_frames, data):
    content = pack_tail(given_frames)
    cut = data.draw(st.integers(0, len(content)))
    found, trouble = unpack_tail(content[:cut])
    assert found == given_frames[: len(found)]
    assert trouble or content[:cut] == pack_tail(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@given(
    content=st.binary(max_size=300) | frames.map(pack_tail),
    where=st.integers(0, 400),
    flip=st.binary(max_size=6),
)
def test_arbitrary_bytes_are_taken_or_refused_but_never_crash(folder, content, where, flip):
    real = pack_tail(left_by("run", 0, records(own_times(5, 1), first=1)[0]))
    for damaged in (content, real[:where] + flip + real[where + len(flip) :]):
        leave(folder, f"0-{PID}", damaged)
        took, said = [], []
        taken = Tails(folder, took.append, said.append).take_new()
        assert bool(taken) != bool(said)
        for _, frame in took:
            assert messages.decode_lenient(frame)[0].pid == PID
