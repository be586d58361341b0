"""Ranks where they are few: own time through time in each row, and more of the rank under the cursor below."""

from ddpmon.analysis.over_time.rank_history import own_courses
from ddpmon.messages import SeriesRequest
from ddpmon.store import parts
from ddpmon.tui.frame import Frame
from ddpmon.tui.widgets.devicelanes import DeviceLanes
from tests.tui import golden, inspected, snapshots
from tests.tui.driving import drive, until

THERE = until(lambda app: app.playback.source.current.inspect is not None)
NEXT_FRAME = lambda app, _: app.tick()


@golden.both_sizes
def test_few_ranks(size):
    source = inspected.late()
    lanes = until(lambda app: source.current.samples is not None or not app.view.body[2].display)
    _, text = drive(source, "2", THERE, lanes, NEXT_FRAME, NEXT_FRAME, size=size)
    golden.check("ranks-few", text, size)


def test_on_a_tall_screen_the_devices_of_few_ranks_stand_below_the_detail():
    source = inspected.at_work(4)
    _, text = drive(
        source, "2", THERE, until(lambda _: source.current.samples is not None), NEXT_FRAME, NEXT_FRAME, size=(240, 70)
    )
    assert text.index("─rank 2 · node00 · cuda:2") < text.index("─through time, the last 104 s")
    drive(source, "2", until(lambda _: source.requested.samples is None), size=(120, 40))


def test_the_devices_stand_below_all_of_the_detail_where_every_rank_has_a_line():
    def lines(ranks, width, height):
        needs = DeviceLanes(whole_width=True).needs(Frame(snapshots.running(ranks)), width, height)
        return None if needs is None else needs.least_height

    assert lines(4, 160, 46) == 7
    assert lines(8, 160, 46) is None, "not for some of the ranks"
    assert lines(4, 120, 46) is None, "a narrow detail is longer"
    assert lines(8, 240, 66) == 7


def test_the_detail_follows_the_cursor():
    source = inspected.late()
    follows = until(lambda _: source.requested.inspect is not None and source.requested.inspect.listed == [0])
    _, text = drive(source, "2", THERE, "G", "k", "j", "up", follows, NEXT_FRAME, size=(120, 40))
    assert "─rank 0 · node00 · cpu" in text
    assert "the others wait for it" not in text


def test_it_requests_the_ranks_in_sight_and_the_one_under_the_cursor():
    source = inspected.late(ranks=6)
    strips = SeriesRequest((), ((0, 5),), 38, 8)
    drive(source, "2", until(lambda _: source.requested.strips == strips), size=(160, 50))
    assert source.requested.inspect == SeriesRequest(ranks=((2, 2),), per_column=8, columns=33)
    source = inspected.late(ranks=6)
    drive(source, "2", THERE, size=(100, 40))
    assert source.requested.strips is None


def test_where_the_table_fills_the_screen_there_is_no_detail_unless_beside_it():
    assert "show all" not in drive(snapshots.slow(), "2", size=(120, 40))[1]
    beside = drive(snapshots.slow(), "2", size=(240, 70))[1]
    assert "show all" in beside.splitlines()[3]


def test_a_rank_whose_own_time_is_not_known_says_so(monkeypatch):
    source = inspected.late()
    monkeypatch.setattr(
        parts, "own_courses", lambda heat, ranks, *more: own_courses(heat, [rank for rank in ranks if rank != 3], *more)
    )
    _, text = drive(source, "2", until(lambda _: source.current.strips is not None), "j", size=(160, 50))
    row = next(row for row in text.splitlines() if row.split()[:1] == ["3"])
    assert row.rstrip().endswith("–")
