"""Test that the tails which no hub came for are part of every view of their run, and that reading leaves them."""

import hashlib
import signal
import sqlite3
import time

from ddpmon.export import report
from ddpmon.export.steps import pieces
from ddpmon.messages import decode_from_rank, encode
from ddpmon.messages.folder import TAILS, pack_tail
from ddpmon.recording.database import PAGE_BYTES
from ddpmon.recording.player import Player
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recording import Recording, recording_path
from tests.hub.conftest import until
from tests.hub.test_tails import PID, leave, left_by
from tests.hub.thinned import recorded
from tests.worlds import own_times, records


def exported(run):
    """Return how many steps of each rank are exported."""
    with Recording(run) as recording:
        return [sum(len(piece.records) for piece in pieces(recording)), recording.is_damaged]


def contents(folder):
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".db-shm", ".db-wal") and "logs" not in path.parts
    }


def killed_hub(stage, told, *, here=False):
    """A hub that recorded 100 steps and was killed, with its supervisor; the ranks left the other 600.

    here: the ranks are processes of this machine, which live on. Returns the ranks.
    """
    stage.save(world_size=2)
    hub = stage.hub()
    ranks = [stage.rank_process(rank) if here else stage.rank(rank, pid=PID + rank) for rank in range(2)]
    for rank in ranks:
        rank.join()
        for i in range(0, 100, 5):
            rank.batch(told[rank.rank][i : i + 5])
    for rank in ranks:
        rank.acknowledged(20)
    hub.send_signal(signal.SIGKILL)
    hub.wait()
    for rank in ranks:
        rest = left_by(stage.run.id, rank.rank, told[rank.rank][95:], first=20, pid=rank.pid, host=rank.host)
        leave(stage.dir, f"{rank.rank}-{rank.pid}", pack_tail(rest))
    stage.supervisor.kill()
    stage.supervisor.wait()
    return ranks


def test_every_reader_takes_in_what_was_left_when_the_hub_was_killed(stage):
    told = records(own_times(700, 2), first=1)
    killed_hub(stage, told)
    before = contents(stage.dir)
    made = report.build(stage.run)
    assert [rank["steps"] for rank in made["ranks"]] == [700, 700]
    assert (made["steps"]["records_lost"], made["steps"]["window"]) == (0, [2, 700])
    shot = recorded_snapshot(stage.run)
    assert (shot.step, shot.records_lost) == (700, 0)
    assert exported(stage.run) == [700, False]
    player = Player(stage.run)
    assert player.snapshot_at(player.end).step == 700
    player.close()
    assert contents(stage.dir) == before, "reading changed something"
    stage.hub()
    stage.hubs[-1].terminate()
    assert stage.hubs[-1].wait(20) == 0, stage.log()
    assert recorded(stage.run) == [(0, 700, 700), (1, 700, 700)]
    assert not list(stage.dir.glob(f"{TAILS}/*"))
    assert report.build(stage.run)["steps"] == made["steps"]


def test_what_was_left_is_read_though_nothing_was_recorded_at_all(stage):
    stage.save(world_size=2)
    told = records(own_times(60, 2), first=1, start_us=time.monotonic_ns() // 1000 - 60_000_000)
    for rank in (0, 1):
        leave(stage.dir, f"{rank}-{PID + rank}", pack_tail(left_by(stage.run.id, rank, told[rank], pid=PID + rank)))
    stage.save(ended_at=time.time(), exit_code=0)
    made = report.build(stage.run)
    assert [rank["steps"] for rank in made["ranks"]] == [60, 60]
    assert (made["run"]["state"], made["steps"]["records_lost"]) == ("done", 0)
    assert exported(stage.run) == [60, False]
    assert not recording_path(stage.run.id).exists()


def test_a_pid_that_was_given_to_another_process_since_makes_no_other_rank(stage):
    """The processes that have the pids of the ranks began at another moment than the ranks did."""
    told = records(own_times(700, 2), first=1)
    others = [rank.pid for rank in killed_hub(stage, told, here=True)]
    with sqlite3.connect(recording_path(stage.run.id)) as db:
        db.execute("UPDATE processes SET start_ticks = 1")
    db.close()

    def processes():
        with Recording(stage.run) as recording:
            return [(each.attempt, each.hello.pid, each.last_step) for each in recording.processes()]

    assert processes() == [(0, others[0], 700), (0, others[1], 700)]
    stage.hub()
    until(lambda: not list((stage.dir / TAILS).iterdir()), "they are taken in")
    stage.kill_hub()
    assert processes() == [(0, others[0], 700), (0, others[1], 700)]


def test_damage_of_the_recording_and_of_what_was_left_is_noted_and_all_the_rest_is_read(stage):
    told = records(own_times(700, 2), first=1)
    one, other = killed_hub(stage, told)
    a_file_is_cut_and_in_another_is_a_value_that_cannot_be(stage, told, one, other)
    sqlite_refuses_the_recording(recording_path(stage.run.id))
    shot = recorded_snapshot(stage.run)
    assert [view.steps for view in shot.ranks] == [700, 700]
    assert shot.records_lost == 5, "those of the batch with the value"
    assert any("is damaged" in note for note in shot.notes)


def a_file_is_cut_and_in_another_is_a_value_that_cannot_be(stage, told, one, other):
    path = stage.dir / TAILS / f"1-{other.pid}"
    path.write_bytes(path.read_bytes()[:-5])
    *frames, last, bye = left_by(stage.run.id, 0, told[0][95:], first=20, pid=one.pid)
    batch = decode_from_rank(last)
    batch.total_steps = -1
    leave(stage.dir, f"0-{one.pid}", pack_tail([*frames, encode(batch), bye]))
    shot = recorded_snapshot(stage.run)
    said = f"{TAILS}/1-{other.pid} cannot be read: the file is damaged or incomplete"
    assert any(said in note for note in shot.notes)
    assert [view.steps for view in shot.ranks] == [700, 700]
    assert [(row.rank, row.count) for row in shot.refused] == [(0, 1)]


def sqlite_refuses_the_recording(path):
    """A page is gone; its other pages and the files of the ranks make up the run."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
    db.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
