"""Inspect: one rank beside its peers, through time; where it is when it is asked; what is most wanted first."""

from textual import events

from ddpmon.messages import Course, SeriesRequest
from ddpmon.tui.widgets.inspection import inspection
from ddpmon.tui.widgets.lanes import level_glyph
from ddpmon.tui.widgets.peers import strip
from tests.tui import golden, inspected, snapshots
from tests.tui.driving import drive, until
from tests.tui.tape import replaying


def of(rank):
    """Inspect a rank."""

    def go(app, _):
        app.views["inspect"].main.open(rank)
        return app.action_go("inspect")

    return go


async def settled(app, pilot):
    """Wait until the screen has its size and shows what it requested."""
    pane = app.views["inspect"].main
    for _ in range(10):
        view = app.playback.shown.inspect if app.playback.shown else None
        if not isinstance(app.playback.source, inspected.Inspected) or app.size.width < 60 or app.size.height < 12:
            return
        if view is not None and pane.size.width and app.playback.source.requested.inspect == pane.view_request.inspect:
            app.show()
            return
        app.tick()
        await pilot.pause()
    raise AssertionError("the screen never was shown what it requested")


def seen(source, *keys, rank=2, size=(80, 24), **options):
    return drive(source, of(rank), settled, *keys, size=size, **options)


@golden.of_states(
    {"late": golden.SIZES, "late_gpu": [golden.WIDE], "standing": [golden.NARROW], "dead": [golden.NARROW]}
)
def test_each_state(state, size):
    golden.check(f"inspect-{state}", seen(inspected.MADE[state](), size=size)[1], size)


@golden.both_sizes
def test_the_stack_that_was_asked_for_is_on_top_with_its_age(size):
    source = inspected.late()
    _, text = seen(source, "p", size=size)
    assert source.asks == [[2]]
    assert "its Python stack, just now" in text.splitlines()[4]
    assert "› model.py:88 Block.forward" in text.splitlines()[6]


def test_it_says_how_old_the_answer_is_and_can_be_asked_again():
    source = inspected.late()

    def later(app, _):
        source.renew(41.0)
        app.tick()

    assert "its Python stack, 41s ago" in seen(source, "p", later)[1]
    assert "its Python stack, just now" in seen(source, "p", later, "p")[1]
    assert source.asks == [[2]] * 3


def test_a_stack_from_steps_ago_is_not_shown_as_where_the_rank_is():
    source = inspected.late()

    def goes_on(app, _):
        process = source.store.registry.process_of_rank[2]
        process.steps = process.stack.step + 1280
        source.renew(5.0)
        app.tick()

    assert "its Python stack, 5s ago, 1,280 steps before this one" in seen(source, "p", goes_on)[1]
    assert "its Python stack" not in seen(source)[1]


def test_while_a_rank_has_not_answered_it_says_so_and_then_why_not():
    source = inspected.late()
    source.answers.clear()
    assert "its Python stack, asking…" in seen(source, "p")[1]

    def gives_up(app, _):
        process = source.store.registry.process_of_rank[2]
        process.asked_at, process.unanswered = None, True
        source.renew(6.0)
        app.tick()

    _, text = seen(source, "p", gives_up)
    assert "▲ rank 2 is alive but did not answer" in text
    assert "asking…" not in text


def test_a_rank_that_has_ended_is_told_to_have_ended():
    _, text = seen(inspected.dead(), "p")
    assert "▲ rank 2 has ended" in text


def test_another_rank_is_not_shown_the_stack_of_the_one_before():
    source = inspected.late()
    _, text = seen(source, "p", "right_square_bracket")
    assert "─rank 3 ·" in text
    assert "its Python stack" not in text


def test_nobody_is_asked_where_the_screen_is_held_or_a_recording_plays():
    source = inspected.late()
    assert "frozen: press space, then p" in seen(source, "space", "p")[1]
    assert source.asks == []
    source = replaying(snapshots.slow())
    _, text = seen(source, "p")
    assert "a replay shows only stacks that ddpmon recorded" in text
    assert "none was recorded" in text
    assert "asking" not in text
    assert source.asks == []


def test_the_wheel_scrolls_it_as_the_keys_do():
    def wheel(app, _):
        pane = app.view.main
        pane.on_mouse_scroll_down(events.MouseScrollDown(pane, 5, 5, 0, 1, 0, False, False, False))

    assert seen(inspected.late(), wheel)[1] == seen(inspected.late(), "j", "j", "j")[1] != seen(inspected.late())[1]


def test_it_requests_what_fits_and_other_screens_for_nothing():
    source = inspected.late()
    seen(source, requesting(source, SeriesRequest((), ((2, 2),), 54, 8)), size=(100, 30))
    wider = requesting(source, SeriesRequest((), ((3, 3),), 33, 64))
    there = requesting(source, SeriesRequest((), ((2, 2),), 33, 8))
    seen(source, there, "w", "right_square_bracket", wider, size=(160, 50))
    seen(source, "1", requesting(source, None))


def requesting(source, wanted):
    """Wait until a source was asked for this of a rank."""

    return until(lambda _: source.requested.inspect == wanted)


def test_steps_in_a_column_go_round_and_begin_fine_for_a_young_run():
    assert "10 steps/column" not in seen(inspected.late())[1]
    assert "8 steps/column" in seen(inspected.late())[1]
    assert "512 steps/column" in seen(inspected.late(), "w", "w")[1]
    assert "steps/column" not in seen(inspected.late(), "w", "w", "w")[1]
    source = inspected.late(steps=40, begin=30)
    header = next(row for row in seen(source)[1].splitlines() if "this rank" in row)
    assert "steps/column" not in header
    assert header.split()[-3:] == ["24", "step", "40"]


def test_where_no_course_is_there_it_says_so_and_the_numbers_stay():
    assert "coming…" in seen(snapshots.slow(), rank=13)[1]
    source = inspected.late()
    _, text = seen(source, "space", "right_square_bracket")
    assert "no longer in memory; space resumes" in text
    assert "backward" in text


def test_the_output_of_other_ranks_is_not_there():
    _, text = seen(inspected.late(), rank=1, size=(160, 50))
    assert "UserWarning" not in text
    assert "epoch 4" in text


def test_a_column_is_marked_where_the_rank_takes_longer_and_nowhere_else():
    row = Course(2, "data", 0.0, 25.3, bytes([0, 20, 21, 120, 255, 254]), bytes([0, 20, 20, 20, 20, 0]))
    mine, peers, marked = strip(row, 5.0, 8)
    assert marked
    assert mine == [("  ", "text"), (" ▁▁", "compute"), ("▄", "warn"), ("✖", "bad"), ("█", "compute")]
    assert peers == [("   ▁▁▁▁ ", "muted")]
    assert not strip(row, None, 8)[2]
    assert strip(row, 5.0, 2)[1] == [("▁ ", "muted")]
    assert [level_glyph(value) for value in (1, 32, 33, 254)] == ["▁", "▁", "▂", "█"]


def test_what_the_script_named_stands_under_the_phases_and_an_excess_is_marked():
    shot = snapshots.slow()
    ranks = [snapshots.replace(rank, named_ms={"augment": 41.9 if rank.rank == 13 else 0.5}) for rank in shot.ranks]
    for rank, words in ((13, "in augment 41.9 0.5 0.5–0.5 ▲ +41.4"), (5, "in augment 0.5 0.5 0.5–41.9")):
        lines = [
            "".join(text for text, _ in line)
            for line in inspection(snapshots.replace(shot, ranks=ranks), ranks[rank], 80)
        ]
        assert [" ".join(line.split()) for line in lines if line.startswith(" in augment ")] == [words]


def test_a_stack_that_changes_is_seen_without_a_key(monkeypatch):
    """After the key, frames come in quick succession until the rank has answered."""
    source = inspected.late()
    source.answers.clear()

    def answer(*_):
        process = source.store.registry.process_of_rank[2]
        process.take_stack(inspected.stack(2, int(source.now * 1e6)), source.now)
        source.renew()

    answered = until(lambda app: "model.py:88" in str(app.views["inspect"].main._rows))
    assert "model.py:88" in seen(source, "p", answer, answered)[1]


def test_what_its_device_does_through_time_stands_below_where_all_else_fits():
    lanes = "through time, the last"
    assert lanes in seen(inspected.late(), size=(160, 50))[1]
    assert lanes not in seen(inspected.late(), size=(160, 30))[1]
    assert lanes not in seen(inspected.late(), size=(100, 50))[1]


def test_it_has_the_whole_screen_where_nothing_is_measured_of_a_device():
    source = inspected.late()
    for process in source.store.registry.process_of_rank.values():
        process.samples.clear()
    source.renew()
    app, text = seen(source, size=(160, 50))
    assert "through time" not in text
    assert app.views["inspect"].main.box.height == 46
