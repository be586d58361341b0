"""Test what the root makes of ranks on a machine whose clock is hours ahead: charts, replay, steps without them."""

import pytest

from ddpmon.export import report
from ddpmon.messages import Phase, SeriesRequest, ViewRequest
from ddpmon.recording.player import Player
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.source import RecordedSource
from ddpmon.store.silences import Silence, Silences
from ddpmon.store.view import snapshot
from tests.two_hosts import AHEAD_US, BEGAN, FIRST_US, Root
from tests.worlds import own_times, records


@pytest.fixture
def root(home):
    made = Root()
    for rank in range(4):
        made.join(rank)
    return made


def told(steps=400, late=None, ms=15.0):
    own = own_times(steps, 4, noise=0.02)
    if late is not None:
        own[:, late, 0] += ms
    return records(own, transfer=2.0, first=1, start_us=FIRST_US)


def busy(rank):
    """Share of a core, in percent, of each rank: those of the other machine have more."""
    return 50.0 + 10 * rank


def highest_and_lowest(shown):
    return max(value for value in shown.high if value is not None), min(v for v in shown.low if v is not None)


def test_charts_over_the_whole_run_have_the_ranks_of_every_machine(root):
    root.train(told(), 1, 400, percent=busy)
    live = root.store.histories.view("cpu", None, None, 100)
    assert highest_and_lowest(live) == (80.0, 50.0)
    assert live.seconds[0] == pytest.approx(FIRST_US / 1e6, abs=2)
    assert live.seconds[-1] <= FIRST_US / 1e6 + 400 * 0.040
    source = RecordedSource(root.end())
    source.request_view(ViewRequest(series=SeriesRequest(("cpu",))))
    read = source.snapshot().series
    source.close()
    assert highest_and_lowest(read) == (80.0, 50.0)
    assert read.seconds[-1] - read.seconds[0] < 20


def test_what_was_sampled_after_the_last_checkpoint_is_read_at_its_time_too(root):
    steps = told()
    root.train(steps, 1, 200, percent=busy)
    root.turn(save=True)
    root.train(steps, 201, 400, percent=busy)
    root.recorder.close()
    source = RecordedSource(root.run)
    source.request_view(ViewRequest(series=SeriesRequest(("cpu",))))
    read = source.snapshot().series
    source.close()
    assert highest_and_lowest(read) == (80.0, 50.0)
    assert 8 < read.seconds[-1] - read.seconds[0] < 20


def test_a_replay_plays_the_ranks_of_every_machine_side_by_side(root):
    root.train(told(late=3), 1, 400)
    player = Player(root.end())
    assert player.end - player.begin < 60
    middle = player.snapshot_at(player.begin + FIRST_US / 1e6 + 8)
    player.close()
    assert {rank.steps for rank in middle.ranks} <= set(range(150, 260))
    assert len({rank.steps for rank in middle.ranks}) <= 2
    assert [rank.health for rank in middle.ranks] == ["ok"] * 4
    assert "rank 3 is slow" in middle.verdict


def test_steps_in_which_a_machine_was_not_heard_are_read_as_those_of_a_part(root):
    """Ranks 0 and 1 are blocked while the late rank, 3, is not heard: that is waiting, then and when it is read."""
    steps = told(500, late=3)
    root.train(steps, 1, 100)
    root.train(steps, 101, 500, ranks=(0, 1))
    assert root.store.world.ranks == (0, 1)
    root.store.judge(60.0, BEGAN + 60.0)
    live = root.store.summary.phases_ms
    assert live[:, Phase.TRANSFER].tolist() == [0, 0]
    run = root.end()
    for shot in (recorded_snapshot(run), _played(run)):
        part = {rank.rank: rank.phases_ms for rank in shot.ranks if rank.phases_ms}
        assert part[0][Phase.TRANSFER] == part[1][Phase.TRANSFER] == 0
        assert part[0][Phase.WAIT] == pytest.approx(17, abs=1.5)
        assert "communication_bound" not in {finding.kind for finding in shot.findings}


def _played(run):
    player = Player(run)
    shot = player.snapshot_at(player.end - 0.5)
    player.close()
    return shot


def test_steps_of_all_that_are_heard_are_whole_though_one_was_silent_before(root):
    """Records that were kept while the link was cut, and came too late for the live view, are read side by side."""
    steps = told(600, late=3)
    root.train(steps, 1, 100)
    root.train(steps, 101, 400, ranks=(0, 1))
    root.train(steps, 101, 400, ranks=(2, 3))
    root.train(steps, 401, 600)
    shot = recorded_snapshot(root.end())
    assert shot.ranks[0].phases_ms[Phase.TRANSFER] == pytest.approx(2, abs=0.5)
    assert "rank 3 is slow" in shot.verdict


def test_silences_join_and_part():
    silences = Silences()
    silences.add(0, 10, 19, [2, 3])
    silences.add(0, 20, 29, [2, 3])
    silences.add(0, 30, 39, [3])
    silences.add(0, 60, 69, [3])
    silences.add(1, 5, 9, [0])
    expected = [Silence(0, 10, 29, (2, 3)), Silence(0, 30, 39, (3,)), Silence(0, 60, 69, (3,)), Silence(1, 5, 9, (0,))]
    assert silences.take_changed() == expected
    assert silences.take_changed() == []
    again = Silences(expected)
    whole = again.steps_without_silence(0, range(1, 101), (0, 1)).tolist()
    assert [step for step, all_heard in enumerate(whole, 1) if not all_heard] == [*range(10, 40), *range(60, 70)]
    assert again.steps_without_silence(0, range(1, 101), (0, 1, 2, 3)).all()
    assert not again.steps_without_silence(1, range(5, 10), (1, 2, 3)).any()
    assert again.steps_without_silence(2, range(5, 10), (1,)).all()
    again.add(0, 12, 15, [1])  # played again
    assert again.take_changed() == []


def test_how_well_clocks_agree_is_in_the_snapshot_the_report_and_what_is_read_again(root):
    steps = told(300)
    root.train(steps, 1, 300)
    (live,) = snapshot(root.store, "e", 1, 20.0, BEGAN + 20.0).clocks
    assert (live.host, live.reference) == ("host1", "host0")
    assert live.offset_s == pytest.approx(-AHEAD_US / 1e6, abs=0.001)
    assert live.within_ms == 0.01
    assert 0.01 < live.surely_ms <= 2.5
    made = report.build(root.end())
    (clock,) = made["clocks"]
    assert (clock["host"], clock["within_ms"]) == ("host1", 0.01)
    (line,) = [line for line in report.facts(made) if "clocks" in line]
    assert line.startswith("clocks of 2 hosts agree within ±0.01 ms (surely ±")


def test_ranks_are_not_called_alike_while_the_steps_of_one_are_not_heard(root):
    steps = told(500)
    root.train(steps, 1, 100)
    root.store.judge(10.0, BEGAN + 10.0)
    assert root.store.verdict.text == "all ranks within 2% of the others"
    root.train(steps, 101, 500, losing=[2])
    root.store.judge(21.0, BEGAN + 21.0)
    assert root.store.verdict.text == "no steps arrive from rank 2: ddpmon cannot tell which rank holds the others back"
