"""Test the messages between ranks and the hub."""

import random

from ddpmon.messages import STAGE_CONNECTED, Failure, Sample, Scalar, Welcome, encode
from tests.hub.conftest import until
from tests.hub.machines import listening
from tests.hub.thinned import rows
from tests.worlds import own_times, records


def test_records_arrive_are_acknowledged_and_on_disk_by_then(stage):
    """The hub of one machine listens on no port for that."""
    ranks = stage.start(4)
    told = records(own_times(30, 4), first=1)
    for rank in ranks:
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
    assert not listening(stage.hubs[-1].pid)


def test_a_batch_that_comes_twice_counts_once_also_when_its_rank_connects_again(stage):
    stage.hub()
    told = records(own_times(500, 1), first=1)[0]
    rank = stage.rank(0)
    rank.join()
    batch = rank.batch(told[:10])
    rank.acknowledged(1)
    again = stage.rank(0)
    again.socket.send(encode(batch))
    again.acknowledged(1)
    again.train(told[10:], seq=2)
    again.leave()
    assert rows(stage.run, "SELECT coalesce(sum(count), 0) FROM step_blocks") == [(500,)]
    assert rows(stage.run, "SELECT records, last_step FROM processes") == [(500, 500)]
    assert stage.viewer().until(lambda s: s.ranks[0].health == "left", "it left").ranks[0].stage == "ended"


def test_a_hole_counts_as_lost_once_even_over_a_restart_of_the_hub(stage):
    stage.hub()
    told = records(own_times(30, 1), first=1)[0]
    rank = stage.rank(0)
    rank.join()
    rank.batch(told[:10])
    rank.train(told[15:20], dropped=5)
    stage.kill_hub()
    stage.hub()
    rank.join()
    rank.train(told[20:], dropped=5)
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
    rank.train(step=7)
    snapshot = stage.viewer().until(lambda s: any("the hub dropped" in note for note in s.notes), "counted")
    assert "the hub dropped 62 frames that were no messages of ddpmon" in snapshot.notes
    assert snapshot.ranks[0].health == "ok"


def test_who_cannot_be_a_rank_of_this_run_is_ignored_and_counted(stage):
    """Such a process names another run, an impossible rank, another world size, or the pid of another rank."""
    stage.hub()
    honest = stage.rank(0)
    honest.join()
    honest.train(records(own_times(3, 1), first=1)[0])
    for forged in (
        dict(run_id="another-run"),
        dict(rank=900, world_size=1000, pid=3_999_999),
        dict(rank=5, world_size=6, pid=3_999_999),
        dict(rank=1, pid=4_000_000),
    ):
        stage.rank(0).hello(**forged)
    snapshot = stage.viewer().until(lambda s: any("4 messages were ignored" in note for note in s.notes), "counted")
    assert len(snapshot.ranks) == 4
    assert [view.health for view in snapshot.ranks] == ["ok", "missing", "missing", "missing"]


def test_what_was_found_of_ranks_is_over_with_them_and_their_steps_begin_at_1_again(stage):
    stage.save(world_size=2)
    stage.hub()
    late = own_times(80, 2, noise=0.02)
    late[:, 1, 0] += 15  # data
    for restart, own in enumerate((late, own_times(800, 2, noise=0.02))):
        told = records(own, first=1)
        ranks = [stage.rank(rank, pid=4_100_000 + 2 * restart + rank) for rank in (0, 1)]
        for rank in ranks:
            rank.join(restart=restart)
            rank.train(told[rank.rank][:20])
        for first in range(20, len(own), 20):
            for rank in ranks:
                rank.batch(told[rank.rank][first : first + 20])
            if first == 60:
                want = "running" if restart else "slow"
                stage.viewer().until(lambda s, want=want: s.state == want and s.step >= 80, want)
    stage.viewer().until(lambda s: s.step == 800, "its last step")
    again = stage.viewer().until(lambda s: s.state == "running" and s.window, "that nobody is late")
    assert not [finding for finding in again.findings if finding.ranks == [1]]
    assert (again.window[1], again.records_lost) == (800, 0)
    viewer = stage.viewer()
    for _ in range(4):  # judgements: what would be told of it is told by then
        again = viewer.get(again)
    texts = [event.text for event in again.events]
    assert any("attempt 2" in text for text in texts)
    assert any("rank 1 is slow" in text for text in texts)
    assert not any("has recovered" in text for text in texts), "it is another process now"


def test_a_process_that_inherited_a_ranks_environment_does_not_take_its_place(stage):
    stage.hub()
    rank = stage.rank(0)
    rank.join()
    child = stage.rank(0, pid=4_150_000)
    child.join(stage=STAGE_CONNECTED)
    rank.train(records(own_times(3, 1), first=1)[0])
    assert stage.viewer().until(lambda s: s.step or s.ranks[0].steps, "steps").ranks[0].pid == rank.pid


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
