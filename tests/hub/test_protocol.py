"""Test the messages between ranks and the hub."""

import random

import pytest

from ddpmon.messages import STAGE_CONNECTED, Failure, Sample, Scalar, Welcome, encode
from tests.hub.conftest import until
from tests.hub.thinned import rows
from tests.worlds import own_times, records


def test_records_arrive_are_acknowledged_and_on_disk_by_then(stage):
    stage.hub()
    told = records(own_times(30, 4), first=1)
    ranks = [stage.rank(rank) for rank in range(4)]
    for rank in ranks:
        rank.join()
        rank.batch(told[rank.rank], samples=[Sample(time_us=5, cpu_percent=50.0)], scalars=[Scalar(3, "accuracy", 0.5)])
    for rank in ranks:
        rank.acknowledged(1)
    assert rows(stage.run, "SELECT process, sum(count) FROM step_blocks GROUP BY process") == [
        (i, 30) for i in (1, 2, 3, 4)
    ]
    assert rows(stage.run, "SELECT count(*), max(cpu_percent) FROM samples") == [(4, 50.0)]
    assert rows(stage.run, "SELECT DISTINCT name, value FROM scalars") == [("accuracy", 0.5)]
    snapshot = stage.viewer().until(lambda s: s.window == (2, 30), "all steps analysed")
    assert [view.health for view in snapshot.ranks] == ["ok"] * 4
    assert snapshot.step == 30
    assert snapshot.records_lost == 0
    assert snapshot.ranks[0].sample.cpu_percent == 50.0


def test_a_batch_that_comes_twice_counts_once_and_is_acknowledged_again(stage):
    stage.hub()
    told = records(own_times(10, 1), first=1)[0]
    rank = stage.rank(0, world_size=4)
    rank.join()
    batch = rank.batch(told)
    rank.acknowledged(1)
    rank.socket.send(encode(batch))
    rank.acknowledged(1)
    rank.bye()
    rank.acknowledged(1)
    assert rows(stage.run, "SELECT coalesce(sum(count), 0) FROM step_blocks") == [(10,)]
    assert rows(stage.run, "SELECT records, last_step FROM processes") == [(10, 10)]


def test_a_hole_counts_as_lost_once_even_over_a_restart_of_the_hub(stage):
    hub = stage.hub()
    told = records(own_times(30, 1), first=1)[0]
    rank = stage.rank(0)
    rank.join()
    rank.batch(told[:10])
    rank.batch(told[15:20], dropped=5)
    rank.acknowledged(2)
    hub.kill()
    hub.wait()
    stage.hub()
    rank.join()
    rank.batch(told[20:], dropped=5)
    rank.acknowledged(3)
    snapshot = stage.viewer().until(lambda s: s.step == 30, "all steps")
    assert snapshot.records_lost == 5
    assert [finding.kind for finding in snapshot.findings] == ["telemetry_lost"]


def test_frames_that_are_no_messages_are_counted_and_dropped(stage):
    stage.hub()
    rank = stage.rank(0)
    rank.join()
    noise = random.Random(0)
    for size in range(60):
        rank.socket.send(noise.randbytes(size))
    rank.socket.send_multipart([b"", b"two frames"])
    rank.socket.send_multipart([b""] * 50)
    rank.batch(step=7)
    rank.acknowledged(1)
    snapshot = stage.viewer().until(lambda s: any("the hub dropped" in note for note in s.notes), "counted")
    assert "the hub dropped 62 frames that were no messages of ddpmon" in snapshot.notes
    assert snapshot.ranks[0].health == "ok"


@pytest.mark.parametrize(
    "forged",
    [
        dict(run_id="another-run"),
        dict(rank=900, world_size=1000, pid=3_999_999),
        dict(rank=5, world_size=6, pid=3_999_999),
        dict(rank=1, pid=4_000_000),
    ],
    ids=["another run", "impossible rank", "another world size", "another rank's pid"],
)
def test_who_cannot_be_a_rank_of_this_run_is_ignored_and_counted(stage, forged):
    stage.hub()
    honest = stage.rank(0)
    honest.join()
    honest.batch(records(own_times(3, 1), first=1)[0])
    honest.acknowledged(1)
    liar = stage.rank(0)
    liar.hello(**forged)
    snapshot = stage.viewer().until(lambda s: any("ignored" in note for note in s.notes), "counted")
    assert len(snapshot.ranks) == 4
    assert [view.health for view in snapshot.ranks] == ["ok", "missing", "missing", "missing"]


def test_a_rank_that_reconnects_goes_on_where_it_was(stage):
    stage.hub()
    told = records(own_times(20, 1), first=1)[0]
    rank = stage.rank(0)
    rank.join()
    rank.batch(told[:10])
    rank.acknowledged(1)
    again = stage.rank(0)
    again.batch(told[10:], seq=2)
    again.acknowledged(2)


def test_goodbye_is_answered_once_all_is_recorded(stage):
    stage.hub()
    rank = stage.rank(0)
    rank.join()
    rank.batch(records(own_times(500, 1), first=1)[0])
    rank.bye()
    rank.acknowledged(1)
    assert rows(stage.run, "SELECT coalesce(sum(count), 0) FROM step_blocks") == [(500,)]
    assert stage.viewer().until(lambda s: s.ranks[0].health == "left", "it left").ranks[0].stage == "ended"


def test_a_restart_of_the_ranks_begins_at_step_1_again(stage):
    stage.hub()
    stage.save(world_size=2)
    told = records(own_times(30, 2), first=1)
    for rank in (stage.rank(0, world_size=2), stage.rank(1, world_size=2)):
        rank.join()
        rank.batch(told[rank.rank])
        rank.acknowledged(1)
    stage.viewer().until(lambda s: s.window == (2, 30), "the first attempt")
    for rank in (0, 1):
        new = stage.rank(rank, world_size=2, pid=4_100_000 + rank)
        new.join(restart=1)
        new.batch(told[rank][:25])
        new.acknowledged(1)
    snapshot = stage.viewer().until(lambda s: s.window == (2, 25), "the second attempt")
    assert snapshot.step == 25
    assert snapshot.records_lost == 0
    assert any("attempt 2" in event.text for event in snapshot.events)


def test_what_was_found_of_ranks_is_over_with_them(stage):
    stage.hub()
    stage.save(world_size=2)
    late = own_times(80, 2, noise=0.02)
    late[:, 1, 0] += 15  # data
    for begin, own, restart in ((0, late, 0), (1, own_times(800, 2, noise=0.02), 1)):
        told = records(own, first=1)
        ranks = [stage.rank(rank, world_size=2, pid=4_100_000 + 2 * begin + rank) for rank in (0, 1)]
        for rank in ranks:
            rank.join(restart=restart)
        for first in range(0, len(own), 20):
            for rank in ranks:
                rank.batch(told[rank.rank][first : first + 20])
            if first == 60:
                stage.viewer().until(lambda s: s.step >= 80, "its steps")
                want = "running" if begin else "slow"
                stage.viewer().until(lambda s, want=want: s.state == want and s.step >= 80, want)
    stage.viewer().until(lambda s: s.step == 800, "its last step")
    again = stage.viewer().until(lambda s: s.state == "running" and s.window, "that nobody is late")
    assert not [finding for finding in again.findings if finding.ranks == [1]]
    viewer = stage.viewer()
    for _ in range(4):  # judgements: what would be told of it is told by then
        again = viewer.get(again)
    texts = [event.text for event in again.events]
    assert any("rank 1 is slow" in text for text in texts)
    assert not any("has recovered" in text for text in texts), "it is another process now"


def test_a_process_that_inherited_a_ranks_environment_does_not_take_its_place(stage):
    stage.hub()
    rank = stage.rank(0)
    rank.join()
    child = stage.rank(0, pid=4_150_000)
    child.join(stage=STAGE_CONNECTED)
    rank.batch(records(own_times(3, 1), first=1)[0])
    rank.acknowledged(1)
    assert stage.viewer().until(lambda s: s.step or s.ranks[0].steps, "steps").ranks[0].pid == rank.pid


def test_a_dead_process_of_this_machine_is_noticed_within_two_seconds(stage):
    stage.hub()
    rank = stage.rank_process(0)
    rank.join()
    rank.batch(records(own_times(3, 1), first=1)[0])
    rank.acknowledged(1)
    rank.kill()
    snapshot = stage.viewer().until(lambda s: s.ranks[0].health == "dead", "it is dead")
    assert any("rank 0" in event.text and "exited unexpectedly" in event.text for event in snapshot.events)
    assert snapshot.verdict == "rank 0 failed: it exited unexpectedly, as a killed process does"


def test_a_rank_that_says_nothing_more_is_silent(stage):
    stage.hub()
    rank = stage.rank(0)
    rank.join()
    stage.viewer().until(lambda s: s.ranks[0].health == "silent", "silence")
    rank.batch()
    stage.viewer().until(lambda s: s.ranks[0].health == "ok", "heard again")


def test_an_exception_is_told_at_once_and_its_consequences_as_such(stage):
    stage.hub()
    ranks = [stage.rank(0), stage.rank(2)]
    for rank in ranks:
        rank.join()
    peer = Failure(0, ranks[0].pid, 90, "RuntimeError: Connection closed by peer")
    cause = Failure(2, ranks[1].pid, 100, "ValueError: no such class", "Traceback …")
    ranks[0].socket.send(encode(peer))
    ranks[1].socket.send(encode(cause))
    ranks[1].socket.send(encode(cause))
    snapshot = stage.viewer().until(lambda s: len(s.findings) == 1 and len(s.events) >= 2, "told")
    assert snapshot.verdict == "rank 2 failed: ValueError: no such class"
    assert snapshot.severity == "critical"
    texts = [event.text for event in snapshot.events]
    assert texts.count("rank 2 failed: ValueError: no such class") == 1
    assert "rank 0 lost its peers and failed too" in texts
    assert snapshot.ranks[2].exit.traceback == "Traceback …"


def test_the_hub_says_hello_to_a_late_rank_that_came_before_it(stage):
    rank = stage.rank(0)
    rank.hello()
    stage.hub()
    assert until(lambda: rank.answer(Welcome).has_hello, "a welcome")
