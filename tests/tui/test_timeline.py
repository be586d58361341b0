"""Timeline: the last steps as bars, the last to arrive marked, and the steps without the rank that is late."""

import numpy as np
import pytest

from ddpmon.messages import PHASES, ClockView, TimelineStep, TimelineView
from ddpmon.tui.widgets import laststeps
from ddpmon.tui.widgets.laststeps import IN_TIME, bar, what_if
from tests.tui import golden, snapshots, through_time
from tests.tui.driving import drive
from tests.worlds import own_times


async def tick(app, pilot):
    """Frames until what fits on the screen, now that every pane has its size, is asked for and shown."""
    for _ in range(20):
        app.tick()
        await pilot.pause()
        if app.playback.source.requested == app.view.view_request:
            break
    app.tick()


@golden.both_sizes
def test_slow(size):
    golden.check("timeline-slow", drive(through_time.slow(), "5", tick, tick, size=size)[1], size)


def test_many():
    source = through_time.slow(1024, late=813, steps=40, begin=30, per_host=8)
    _, text = drive(source, "5", tick, tick, size=golden.WIDE)
    golden.check("timeline-many", text, golden.WIDE)


def test_a_bar_tells_the_phases_in_their_order_and_to_scale_each_by_a_glyph():
    assert {name for name, _, _ in IN_TIME} == set(PHASES)
    assert len({glyph for _, glyph, _ in IN_TIME}) == len(PHASES)
    phases = dict(data=2, forward=3, backward=4, optimizer=1, other=1, wait=5, transfer=2)
    drawn = "".join(text for text, _ in bar(tuple(phases[name] for name in PHASES), 2.0, 40, last=False))
    assert drawn == "▒▒··░░░░──────━━━━━━━━╌╌╌╌╌╌╌╌╌╌════"
    marked = "".join(text for text, _ in bar((2, 3, 4, 1, 1, 0, 2), 2.0, 40, last=True))
    assert marked == "▒▒··░░░░──────━━━━━━━◆════"


def test_what_mending_gains_in_words():
    steps = [TimelineStep(1, 45.0, 2, 33.0), TimelineStep(2, 45.0, 2, 33.0)]
    assert what_if(TimelineView(steps, [], 4, 2)) == (
        "with rank 2 fixed, the 2 steps shown would take 66.0 ms instead of 90.0"
    )
    assert what_if(TimelineView(steps, [], 4, 2, [2, 3], "node1")).startswith("with node1 fixed, the 2 steps")
    assert what_if(TimelineView(steps, [], 4, 1, [1, 3])).startswith(
        "with ranks 1, 3 fixed, the 2 steps shown would take"
    )
    assert "fixing one gains nothing" in what_if(TimelineView(steps, [], 4, None))


def test_more_and_fewer_steps():
    def headings(*keys):
        shown = drive(through_time.slow(), "5", tick, *keys, tick, size=(160, 50))[1]
        return shown.splitlines()[4][:119].count(" ms")

    assert headings() == 3
    assert headings("w") == 6
    assert headings("w", "w") == 1
    assert headings("w", "w", "w") == 3


def test_the_cursor_reaches_every_rank_and_inspects_it():
    source = through_time.slow(64, late=5, per_host=8)
    app, _ = drive(source, "5", "G", "enter")
    last = int(np.argsort(source.store.world.last_steps(2).wait_ms.mean(axis=0), kind="stable")[-1])
    assert app.views["inspect"].main.rank == last
    source = through_time.slow(64, late=5, per_host=8)
    app, _ = drive(source, "5", "j", "j", "g", "enter", "escape")
    assert app.current_mode == "timeline"
    assert app.views["inspect"].main.rank == 5


def test_fewer_ranks_than_were_scrolled_past_are_shown_from_the_first():
    source = through_time.slow(64, late=5, per_host=8)

    def fewer(app, _):
        ranks = [snapshots.replace(rank, own_ms=99.0 if rank.rank < 2 else 1.0) for rank in source.plain.ranks]
        source.plain = snapshots.replace(source.plain, ranks=ranks)
        source.current = source.plain
        source.requested = None
        app.tick()
        app.tick()
        app.tick()

    _, text = drive(source, "5", "slash", *("o", "w", "n", "greater_than_sign", "9"), "enter", "G", fewer)
    assert "/ 2 of 64 ranks: own>9" in text
    assert len(source.current.timeline.rows) == 2


def steps_shown(text):
    return [word for word in text.splitlines()[4].split() if word.isdigit()]


@pytest.mark.parametrize(("calm_s", "stays"), [(60.0, True), (0.0, False)])
def test_bars_of_a_running_run_stay_long_enough_to_be_read(monkeypatch, calm_s, stays):
    monkeypatch.setattr(laststeps, "CALM_S", calm_s)
    monkeypatch.setattr(laststeps, "CALM_MANY_S", calm_s)
    source = through_time.slow()

    def later(app, _):
        """Steps that come when nothing has been asked for long."""
        shown = app.views["timeline"].main
        shown._last_request = -1000.0, shown._last_request[1]
        app.tick()
        steps = [snapshots.replace(step, step=step.step + 7) for step in source.current.timeline.steps]
        source.current = snapshots.replace(
            source.current, timeline=snapshots.replace(source.current.timeline, steps=steps)
        )
        app.tick()

    _, before = drive(through_time.slow(), "5", tick, size=(160, 50))
    _, after = drive(source, "5", tick, later, size=(160, 50))
    assert (steps_shown(after) == steps_shown(before)) is stays
    _, asked = drive(source, "5", tick, later, "w", "w", size=(160, 50))
    assert steps_shown(asked) != steps_shown(before)


def few(size, *steps):
    """Four ranks, of whose steps two take much longer, because of rank 1's data and rank 3's backward."""
    own = own_times(120, 4)
    own[40, 1, 0] += 50.0
    own[90, 3, 2] += 80.0
    source = through_time.GrantingSource(snapshots.four_on_cpu(), through_time.store_of(own))
    return source, drive(source, "5", tick, *steps, tick, tick, size=size)[1]


def test_steps_of_few_ranks_stand_below_one_another_and_what_was_long_in_them_is_told():
    _, text = few(golden.WIDE)
    golden.check("timeline-few", text, golden.WIDE)


def test_v_goes_through_the_longest_steps_of_the_run_and_back_to_the_last():
    source, text = few((160, 50), "v")
    assert "step 91, one of the longest" in text
    assert [step.step for step in source.current.timeline.steps] == [91]
    assert source.current.timeline.mended == 3
    assert "step 41, one of the longest" in few((160, 50), "v", tick, "v")[1]
    assert "the last 21 steps" in few((160, 50), "v", tick, "V")[1]


def test_the_mean_step_stands_beside_the_rank_under_the_cursor():
    source = through_time.slow(4, late=1, extra_ms=12.0)
    _, text = drive(source, "5", tick, size=(160, 50))
    rows = {row[119:].split()[1]: row[119:].split() for row in text.splitlines()[5:12]}
    shot = source.current
    chosen = next(rank for rank in shot.ranks if rank.rank == source.current.timeline.rows[0].rank)
    for name in PHASES:
        assert float(rows[name][3]) == pytest.approx(chosen.phase_ms(name), abs=0.06)
        usual = sum(rank.phase_ms(name) for rank in shot.ranks) / len(shot.ranks)
        assert float(rows[name][2]) == pytest.approx(usual, abs=0.06)


def test_how_well_the_clocks_of_hosts_agree_stands_under_their_bars():
    one, other = ClockView("b", "a", 18_000.0, 3.0, 0.31, 6.2), ClockView("c", "a", -4.0, 0.0, 0.12, 7.0)
    text = " the hosts' clocks agree within ±0.31 ms"
    assert laststeps.clocks(snapshots.replace(snapshots.slow(), clocks=[one, other])) == f"{text}, surely within ±7.00"
    unsure = ClockView("c", "a", -4.0, 0.0, 0.12, None)
    assert laststeps.clocks(snapshots.replace(snapshots.slow(), clocks=[one, unsure])) == text
    assert laststeps.clocks(snapshots.slow()) == ""
    source = through_time.slow()
    source.plain = snapshots.replace(source.plain, clocks=[one])
    assert f"{text}, surely within ±6.20" in drive(source, "5", size=golden.SIZES[0])[1]
    assert text in drive(source, "5", size=golden.SIZES[1])[1]  # in one line with what mending gains
