"""What each key does."""

import pytest

from ddpmon.errors import UsageError
from ddpmon.tui import keys
from ddpmon.tui.frame import Frame
from ddpmon.tui.watched import Outcome
from tests.fake_source import FakeSource
from tests.tui import snapshots
from tests.tui.driving import drive, seen


def ranks_shown(text: str) -> list[int]:
    """The ranks in the rank table, in their order."""
    rows = text.split("─ranks,", maxsplit=1)[1].splitlines()[2:-1]
    return [int(row[2:].split()[0]) for row in rows if row[2:].split()]


@pytest.mark.parametrize(("key", "owns_run"), [("q", True), ("ctrl+c", False)])
def test_q_leaves_the_run_running_and_so_does_ctrl_c_in_a_mere_viewer(key, owns_run):
    source = FakeSource(snapshots.slow())
    app, _ = drive(source, key, owns_run=owns_run)
    assert not app.is_running
    assert (app.watched.outcome, source.stops) == (Outcome.DETACHED, [])


@pytest.mark.parametrize("answer", [("s",), ("y",), ("down", "enter"), ("tab", "space")])
def test_stop_stops_and_a_second_one_kills(answer):
    source = FakeSource(snapshots.slow())
    app, text = drive(source, "x", *answer)
    assert source.stops == [False]
    assert app.watched.outcome is Outcome.STOPPING
    assert "stopping" in text
    app, _ = drive(source, "x", *answer, "x", "k", "q")
    assert source.stops == [False, False, True]


def test_a_stop_that_somebody_else_asked_for_shows_what_is_left_of_the_grace_and_x_asks_to_kill():
    shot = snapshots.slow()
    source = FakeSource(snapshots.replace(shot, run=snapshots.replace(shot.run, kill_at=shot.at + 12.0)))
    _app, text = drive(source)
    assert "stopping… 12 s left" in text
    _app, text = drive(source, "x")
    assert "Kill now?" in text
    assert source.stops == []


def test_a_stop_that_cannot_be_asked_for_says_why():
    class Unreachable(FakeSource):
        def stop(self, now=False):
            raise UsageError("the run is on another machine; stop it there")

    app, text = drive(Unreachable(snapshots.slow()), "x", "s")
    assert "stop it there" in text.splitlines()[-1]
    assert app.watched.outcome is Outcome.DETACHED


@pytest.mark.parametrize("away", ["escape", "c", "n", "enter"])
def test_a_dialog_can_be_left_without_an_answer_and_cancel_is_focused(away):
    source = FakeSource(snapshots.slow())
    app, text = drive(source, "x", away)
    assert (app.watched.outcome, source.stops) == (Outcome.DETACHED, [])
    assert "Stop the run?" not in text


def test_ctrl_c_asks_which():
    source = FakeSource(snapshots.slow())
    assert "Detach: the run goes on" in drive(source, "ctrl+c", owns_run=True)[1]
    assert drive(source, "ctrl+c", "d", owns_run=True)[0].watched.outcome is Outcome.DETACHED
    assert drive(source, "ctrl+c", "ctrl+c", owns_run=True)[0].watched.outcome is Outcome.DETACHED
    assert source.stops == []
    assert drive(source, "ctrl+c", "s", owns_run=True)[0].watched.outcome is Outcome.STOPPING
    assert source.stops == [False]


@pytest.mark.parametrize(("source", "options"), [
    (FakeSource(snapshots.slow()), {"readonly": True}),
    (FakeSource(snapshots.slow(), stoppable=False), {}),
    (FakeSource(snapshots.done()), {}),
])  # fmt: skip
def test_where_nothing_can_be_stopped_the_key_is_not_shown_and_says_why(source, options):
    assert "x stop" not in drive(source, **options)[1]
    _, text = drive(source, "x", **options)
    assert "stop" in text.splitlines()[-1] or "already ended" in text.splitlines()[-1]
    assert source.stops == []


def test_space_freezes_and_says_how_far_behind():
    source = FakeSource(snapshots.slow())

    def later(app, _):
        source.current = snapshots.replace(source.current, at=source.current.at + 42, step=99_999)
        app.tick()

    _, text = drive(source, "space", later, size=(160, 50))
    assert "FROZEN 42s" in text
    assert "99,999" not in text
    _, text = drive(source, "space", later, "space", size=(160, 50))
    assert "99,999" in text


def test_sort_cycles_and_comes_back():
    calm = snapshots.slow()
    _, slowest = drive(calm, size=(80, 40))
    assert ranks_shown(slowest)[0] == 13
    _, by_rank = drive(calm, "s", size=(80, 40))
    assert ranks_shown(by_rank)[:3] == [0, 1, 2]
    _, by_wait = drive(calm, "s", "s", size=(80, 40))
    assert ranks_shown(by_wait)[0] == 13
    _, by_loss = drive(calm, "s", "s", "s", size=(80, 40))
    assert "highest loss first" in by_loss
    assert drive(calm, *"ssss", size=(80, 40))[1] == slowest


def test_not_finite_losses_sort_first():
    broken = snapshots.running(8, 8)
    broken = snapshots.replace(
        broken,
        ranks=[snapshots.replace(rank, loss=float("nan") if rank.rank == 5 else rank.loss) for rank in broken.ranks],
    )
    assert ranks_shown(drive(broken, *"sss", size=(80, 40))[1])[0] == 5


def test_the_cursor_moves_scrolls_and_stays_on_its_rank():
    calm = snapshots.slow()
    app, _ = drive(calm, "j")
    assert app.views["world"].table.chosen == 13
    app, text = drive(calm, "s", "G")
    assert app.views["world"].table.chosen == 63
    assert ranks_shown(text)[-1] == 63
    app, text = drive(calm, "s", "G", "k", "up", "pageup", "g", "down", "pagedown", "j")
    assert app.views["world"].table.chosen in ranks_shown(text)
    app, _ = drive(calm, "s", "G", "s")
    assert app.views["world"].table.chosen == 63


@pytest.mark.parametrize("view", ["world", "ranks", "comm", "devices", "inspect", "logs", "runs"])
def test_help_lists_every_key_of_the_screen_and_no_other(view):
    opening = ["enter"] if view == "inspect" else [key.keys for key in keys.SCREEN_KEYS if key.opens == view]
    _, text = drive(snapshots.slow(), *opening, "question_mark", size=(140, 60))
    shown = keys.available(Frame(can_stop=True, view=view))
    for key in shown:
        assert f" {key.shown} " in text
        assert key.help.split(";", maxsplit=1)[0] in text
    listed = {(key.shown, key.help) for key in shown}  # some keys do the same on screens of their own
    for key in keys.SCREEN_KEYS:
        assert (key.shown, key.help) in listed or f" {key.shown:<10} {key.help}\n" not in text


def test_help_can_be_left_and_does_not_promise_to_stop_what_cannot_be():
    assert "─keys" not in drive(snapshots.slow(), "question_mark", "escape")[1]
    _, readonly = drive(snapshots.slow(), "question_mark", size=(100, 60), readonly=True)
    assert "stop the run (asks" not in readonly


def test_a_click_chooses_a_rank_and_presses_a_key():
    async def click(app, pilot):
        await pilot.click(app.views["world"].table, offset=(20, 3))
        await pilot.click(app.views["world"].keys, offset=(len(" q detach  "), 0))

    app, text = drive(snapshots.slow(), click)
    assert app.views["world"].table.chosen is not None
    assert "Stop the run?" in text


@pytest.mark.parametrize(
    ("screen", "key", "said"),
    [
        ("2", "z", "z does nothing on Ranks; it is a key of World"),
        ("1", "p", "p does nothing on World; it is a key of Inspect"),
        ("9", "m", "m does nothing on Findings; it is a key of World, Chart, Heat"),
        ("9", "escape", "esc does nothing on Findings"),
        ("1", "full_stop", ". works only in replays"),
        ("1", "u", "u does nothing; ? shows the keys"),
        ("1", "f5", "f5 does nothing; ? shows the keys"),
        ("1", "escape", "no filter is set: the screen lists all ranks"),
    ],
)
def test_a_key_that_does_nothing_says_so(screen, key, said):
    assert drive(snapshots.slow(), screen, key)[1].splitlines()[-1].strip() == said


def test_a_letter_in_a_dialog_is_no_key_of_the_screen_behind():
    assert "does nothing" not in drive(snapshots.slow(), "x", "u", "escape")[1]


def test_a_list_is_narrowed_by_typing_and_left_as_it_was():
    texts = []
    source = FakeSource(snapshots.replace(snapshots.slow(), quantities=["loss", "step", "own", "wait", "data"]))
    app, _ = drive(
        source, "m", seen(texts), *"own", seen(texts), "Z", seen(texts), "backspace", "down", "up", "escape",
        seen(texts), "m", "end", "tab", "up", "enter", size=(60, 20),
    )  # fmt: skip
    assert "│ › loss" in texts[0]
    assert "type to search" in texts[0]
    assert "│ › own ms per step" in texts[1]
    assert "wait ms" not in texts[1].split("ranks,")[0]
    assert "/ own " in texts[2], "what no name has is not taken"
    assert "chart─" not in texts[3]
    assert app.views["world"].chosen.choice.name == "wait"
