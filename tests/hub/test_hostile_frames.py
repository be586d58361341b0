"""One frame of the same user ruins nothing: what cannot be is refused, counted and told once."""

import subprocess
import time

import msgspec
import pytest

from ddpmon.messages import STAGE_GROUP, STAGE_TRAINING, Bye, Failure, Welcome, encode
from ddpmon.recording.recorded import recorded_report, recorded_snapshot
from tests.hub.conftest import until
from tests.hub.thinned import recorded
from tests.worlds import own_times, records


@pytest.fixture
def told():
    """Forty steps of one rank."""
    return records(own_times(40, 1), first=1, start_us=time.monotonic_ns() // 1000 - 60_000_000)[0]


def refused(snapshot):
    return {(one.rank, one.what): one.count for one in snapshot.refused}


def with_fields(message, **changes):
    """A frame of a message in which fields hold what our own types would not let in."""
    values = {name: getattr(message, name) for name in message.__struct_fields__} | changes
    tag = message.__struct_config__.tag
    return msgspec.msgpack.encode([*([tag] if tag else []), *values.values()])


def test_a_goodbye_with_a_wild_number_does_not_end_the_hub(stage, told):
    hub = stage.hub()
    rank, other = stage.rank_process(0), stage.rank_process(1)
    rank.join()
    other.join()
    for seq, number in enumerate((1 << 47, 1 << 53, 1 << 63, (1 << 64) - 1), 1):
        rank.socket.send(with_fields(Bye(0, rank.pid, 0), dropped=number))
        rank.socket.send(with_fields(Bye(0, rank.pid, 0), seq=number))
        other.batch(told[10 * (seq - 1) : 10 * seq])
        other.acknowledged(seq)
        assert hub.poll() is None, number
        assert stage.viewer().get().records_lost == 0, number


def test_a_batch_with_a_wild_number_is_asked_for_again_and_no_other_is_taken_for_known(stage, told):
    stage.hub()
    for place, number in enumerate((100, 1 << 20, 1 << 40, (1 << 48) - 1)):
        rank = stage.rank_process(place)
        rank.join()
        rank.train(told[:10])
        rank.batch([], seq=number)
        assert rank.answer(Welcome).has_hello is False, number
        rank.hello()
        rank.train(told[10:20], seq=2)
    assert recorded(stage.run) == [(place, 20, 20) for place in range(4)]
    shot = stage.viewer().until(lambda s: [rank.steps for rank in s.ranks] == [20] * 4, "all steps")
    assert shot.records_lost == 0


def test_missing_batches_are_asked_for_and_lost_only_where_the_rank_has_them_no_more(stage, told):
    """A cut connection swallowed those of two ranks; a third said goodbye before its last one came."""
    stage.hub()
    ranks = remembers, forgot, leaves = [stage.rank_process(rank) for rank in range(3)]
    for rank in ranks:
        rank.join()
        rank.train(told[:10])
    remembers.batch(told[20:30], seq=3)
    forgot.batch(told[20:30], seq=3)
    leaves.bye(seq=2)
    for rank in ranks:
        assert rank.answer(Welcome).has_hello is False
        rank.hello()
    remembers.batch(told[10:20], seq=2)
    remembers.train(told[20:30], seq=3)
    forgot.train(told[20:30], seq=3)
    leaves.train(told[10:20], seq=2)
    assert recorded(stage.run) == [(0, 30, 30), (1, 20, 30), (2, 20, 20)]
    shot = stage.viewer().until(lambda s: [rank.steps for rank in s.ranks[:3]] == [30, 30, 20], "all steps")
    assert shot.records_lost == 10


def test_a_batch_with_an_invalid_record_is_refused_as_a_whole_and_its_rank_goes_on(stage, told):
    stage.hub()
    rank = stage.rank_process(0)
    rank.join()
    rank.batch(told[:10])
    rank.train([*told[10:19], msgspec.structs.replace(told[19], data_us=-1)], step=20)
    rank.train(told[20:30])
    snapshot = stage.viewer().until(lambda s: s.ranks[0].steps == 30 and s.refused, "all steps")
    assert [(rank, count) for (rank, _), count in refused(snapshot).items()] == [(0, 1)]
    assert snapshot.records_lost == 10
    assert recorded(stage.run) == [(0, 20, 30)]
    assert any("rank 0 sent an invalid value: the records of a batch" in event.text for event in snapshot.events)
    assert "ddpmon ignored 1 invalid value from ranks" in snapshot.notes
    rank.train(told[30:35], total_steps=-1)
    rank.bye()
    stage.viewer().until(lambda s: len(s.refused) == 2, "counted")
    stage.finish()
    what = "the records of a batch: Expected `int` >= 1 - at `$[12]`"
    assert refused(recorded_snapshot(stage.run))[0, what] == 1
    assert {"rank": 0, "what": what, "count": 1} in recorded_report(stage.run)["steps"]["refused"]


def test_a_process_can_only_speak_for_itself(stage, told):
    """It says that it is another one, by its pid and by a name, and speaks for it without a word of who it is."""
    stage.hub()
    rank, liar = stage.rank_process(0), stage.rank_process(0)
    rank.join()
    rank.train(told[:10])
    liar.pid = rank.pid
    liar.hello()
    liar.hello(host="elsewhere", rank=1)
    liar.batch(told[10:30], seq=2)
    liar.socket.send(encode(Failure(0, rank.pid, 5, "ValueError: not so")))
    liar.bye(seq=1)
    rank.train(told[10:12])
    snapshot = stage.viewer().until(lambda s: sum(one.count for one in s.refused) == 5, "counted")
    assert (snapshot.ranks[0].health, snapshot.ranks[0].steps, snapshot.ranks[0].pid) == ("ok", 12, rank.pid)
    assert all(one.rank is None for one in snapshot.refused)
    assert [finding.kind for finding in snapshot.findings] == []
    assert recorded(stage.run) == [(0, 12, 12)]


def test_who_says_that_it_is_a_later_attempt_unseats_nobody_who_lives(stage, told):
    stage.hub()
    ranks = [stage.rank_process(rank) for rank in (0, 1)]
    for rank in ranks:
        rank.join()
        rank.train(told[:10])
    liar = stage.rank_process(0)
    liar.hello(restart=10**9)
    liar.join(restart=7, world_size=1000, host="elsewhere")
    liar.train(told[:20])
    for rank in ranks:
        rank.train(told[10:20])
    snapshot = stage.viewer().until(lambda s: s.ranks[1].steps == 20, "their steps")
    assert [(view.pid, view.steps) for view in snapshot.ranks[:2]] == [(rank.pid, 20) for rank in ranks]
    assert len(snapshot.ranks) == 4
    for rank in ranks:
        rank.kill()
    new = stage.rank_process(0)
    new.join(restart=1)
    until(lambda: new.batch() and stage.viewer().get().ranks[0].pid == new.pid, "the next attempt")


def test_who_was_one_rank_and_says_that_it_is_another_leaves_that_one_its_place(stage, told):
    stage.hub()
    rank, liar = stage.rank_process(1), stage.rank_process(3)
    for each in (rank, liar):
        each.join()
    rank.train(told[:10])
    liar.hello(rank=1)
    liar.rank = 1
    liar.train(step=500)
    rank.leave()
    stage.finish()
    shot = recorded_snapshot(stage.run)
    assert (shot.ranks[1].pid, shot.ranks[1].steps, shot.ranks[1].health) == (rank.pid, 10, "left")
    assert (shot.ranks[3].health, shot.records_lost) == ("missing", 0)


def test_a_rank_that_was_launched_takes_its_seat_from_who_only_said_so(stage, told):
    stage.hub()
    early = stage.rank_process(0)
    early.join(stage=STAGE_TRAINING)
    early.train(told[:10])
    rank = stage.rank_process(0, environment={"DDPMON_RUN_ID": stage.run.id, "RANK": "0"})
    rank.join()
    rank.train(told[:5])
    early.train(told[10:12])
    snapshot = stage.viewer().until(lambda s: s.ranks[0].pid == rank.pid, "the rank")
    assert (snapshot.ranks[0].steps, snapshot.records_lost) == (5, 0)


def test_a_rank_in_a_pid_namespace_of_its_own_is_known_by_its_pid_there(stage, told):
    stage.hub()
    outside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*outside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespaces here")
    rank = stage.rank_process(0, before=outside)
    rank.pid = 1
    rank.join()
    rank.train(told[:10])
    assert stage.viewer().until(lambda s: s.ranks[0].steps == 10, "its steps").ranks[0].health == "ok"
    rank.kill()
    stage.viewer().until(lambda s: s.ranks[0].health == "dead", "the hub sees its process end")


def test_a_thousand_names_of_one_process_are_no_thousand_ranks(stage):
    hub = stage.hub()
    liar = stage.rank(0)
    for pid in range(1, 2500):
        liar.hello(pid=pid, rank=pid % 4, stage=STAGE_GROUP)
    rank = stage.rank_process(2)
    rank.hello()
    snapshot = stage.viewer().until(lambda s: sum(one.count for one in s.refused) > 1000, "refused")
    assert hub.poll() is None
    assert len(snapshot.ranks) == 4
