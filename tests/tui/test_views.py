"""The screens beside World: each at both sizes, what its keys do, and what it shows when there is little to show."""

from itertools import takewhile

import msgspec
import pytest

from ddpmon.messages import Collective, Finding, PrintedView, Stack
from ddpmon.runs.logs import Said
from ddpmon.tui import keys
from tests.fake_source import FakeSource
from tests.findings import finding
from tests.tui import golden, snapshots
from tests.tui.driving import drive, seen


def first_column(text: str) -> list[int]:
    """The ranks in a rank table, in their order."""
    rows = text.split("─ranks,", maxsplit=1)[1].splitlines()[2:-1]
    rows = list(takewhile(lambda row: not row.startswith("─"), rows))  # below them stands more of one rank
    return [int(row[1:].split()[0]) for row in rows if row[1:].split()]


@golden.of_states({"slow": golden.SIZES, "waiting": [golden.NARROW], "failed": [golden.WIDE]})
def test_ranks(state, size):
    _, text = drive(snapshots.STATES[state](), "2", size=size)
    golden.check(f"ranks-{state}", text, size)


@golden.of_states({"slow": [golden.NARROW], "waiting": [golden.NARROW], "failed": [golden.WIDE]})
def test_inspect(state, size):
    _, text = drive(snapshots.STATES[state](), "enter", size=size)
    golden.check(f"inspect-{state}", text, size)


def talking(make=snapshots.slow) -> FakeSource:
    """A source whose ranks print."""
    source = FakeSource(make())
    source.said = snapshots.said(source.current.run.world_size)
    return source


def on_two_hosts(print_here: int) -> FakeSource:
    """A source of which the first ranks are on another host than the others, and so many ranks print here."""
    source = talking()
    ranks = [msgspec.structs.replace(rank, host="host0" if rank.rank < 2 else "host1") for rank in source.current.ranks]
    source.current = msgspec.structs.replace(source.current, ranks=ranks)
    source.said = [line for line in source.said if line.rank < print_here]
    return source


def test_logs_say_where_ranks_of_other_machines_print():
    assert "ddpmon logs" not in drive(on_two_hosts(64), "7", size=(100, 30))[1], "all of them print here"
    text = drive(on_two_hosts(2), "7", size=(100, 30))[1]
    assert "ranks 2-63 print on host1: ddpmon logs host1:; ] fetches each rank's" in text
    assert "rank 1 has 781 batches" in text


def test_logs_of_a_rank_of_another_machine_are_asked_for_as_long_as_they_are_shown():
    source = on_two_hosts(2)
    text = drive(source, "7", *["right_square_bracket"] * 4, size=(100, 30))[1]
    assert "output of rank 2 on host1, following" in text
    assert source.requested.printed == 2
    view = PrintedView(2, 0, [], "waiting for the rank's machine")
    source.current = msgspec.structs.replace(source.current, printed=view)
    assert view.why in drive(source, "7", *["right_square_bracket"] * 4, size=(100, 30))[1]


@golden.both_sizes
def test_logs(size):
    golden.check("logs", drive(talking(), "7", size=size)[1], size)


@pytest.mark.parametrize(
    ("make", "said"),
    [(snapshots.slow, "the ranks have printed nothing yet"), (snapshots.done, "the ranks printed nothing")],
)
def test_logs_without_a_line_say_so(make, said):
    assert said in drive(make(), "7")[1]


def test_logs_follow_until_they_are_scrolled_and_follow_again():
    source = talking()

    def more(app, _):
        source.said = [Said(0, "out", [f"late {number}" for number in range(50)])]
        app.tick()

    assert "late 49" in drive(source, "7", more)[1]
    source = talking()
    _, text = drive(source, "7", "k", "k", more)
    assert "late" not in text
    assert "52 more below" in text
    source = talking()
    assert "late 49" in drive(source, "7", "pageup", more, "G")[1]
    source = talking()
    assert "loading the data" in drive(source, "7", more, "g")[1]


def test_logs_of_one_rank():
    _, text = drive(talking(), "7", "right_square_bracket", "right_square_bracket")
    assert "output of rank 0," in text
    assert "rank 0 has 781 batches" in text
    assert "rank 1 has" not in text
    _, text = drive(talking(), "enter", "7")
    assert "output of rank 13," in text
    _, text = drive(talking(), "7", "right_square_bracket", "left_square_bracket")
    assert "output of all ranks" in text


def test_ranks_are_sorted_by_every_column_both_ways():
    """By data time: the wobble of the made-up ranks is known."""
    calm = snapshots.slow()
    by_data = sorted(calm.ranks, key=lambda rank: rank.phases_ms[0])

    def until_data(app, _):
        while "by data" not in app.screen.main.heading(calm, 120)[1][0]:
            app.screen.action_do("sort")

    _, text = drive(calm, "2", until_data, size=(160, 90))
    assert first_column(text) == [rank.rank for rank in reversed(by_data)]
    _, text = drive(calm, "2", until_data, "S", size=(160, 90))
    assert first_column(text) == [rank.rank for rank in by_data]


def test_ranks_without_the_value_come_last_either_way():
    calm = snapshots.running(8, 8)
    ranks = [snapshots.replace(rank, own_ms=None if rank.rank == 2 else rank.own_ms) for rank in calm.ranks]
    calm = snapshots.replace(calm, ranks=ranks)
    for pressed in (("2",), ("2", "S")):
        assert first_column(drive(calm, *pressed)[1])[-1] == 2


def test_columns_move_sideways_and_no_further_than_the_last():
    texts = []
    _, text = drive(snapshots.slow(), "2", seen(texts), *["right"] * 40, seen(texts), *["right"] * 20)
    assert " stage" not in texts[0]
    assert " stage" in texts[1]
    assert " 13 " in texts[1]
    assert text == texts[1]
    _, text = drive(snapshots.slow(), "2", *["right"] * 3, *["left"] * 5)
    assert "own ms" in text


def test_sorting_by_a_column_out_of_sight_brings_it_into_sight():
    def until(app, _):
        while "by cpu%" not in app.screen.main.heading(None, 120)[1][0]:
            app.screen.action_do("sort")

    assert "cpu%▾" in drive(snapshots.slow(), "2", until)[1]


def test_inspect_goes_to_the_next_rank_and_back_to_where_it_came_from():
    app, text = drive(snapshots.slow(), "2", "enter", "right_square_bracket", "right_square_bracket")
    assert "─rank 15 ·" in text
    app, text = drive(snapshots.slow(), "2", "enter", "left_square_bracket", "escape")
    assert app.current_mode == "ranks"
    assert app.views["ranks"].main.chosen == 12
    app, text = drive(snapshots.slow(), "s", "g", "enter", "left_square_bracket")
    assert "─rank 63 ·" in text


def test_inspect_says_where_a_rank_is_and_what_it_waits_in():
    stalled = snapshots.stalled()
    stack = Stack(
        rank=5, pid=48_005, time_us=0, step=12_486, since_us=0, phase=1,
        frames=["torch/nn/modules/linear.py:125 forward", "train.py:212 main"], own=1,
        collective=Collective("DDP's gradient all-reduce"), blocked=True,
    )  # fmt: skip
    ranks = [snapshots.replace(rank, stack=stack if rank.rank == 5 else None) for rank in stalled.ranks]
    _, text = drive(snapshots.replace(stalled, ranks=ranks), "enter")
    assert "› train.py:212 main" in text
    assert "waits in DDP's gradient all-reduce" in text


def test_no_color_leaves_none_on_any_screen(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    def look(app, _):
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                assert segment.style is None or all(
                    colour is None or colour.is_default for colour in (segment.style.color, segment.style.bgcolor)
                )

    steps = [step for key in keys.SCREEN_KEYS if key.opens for step in (key.keys, look)]
    drive(snapshots.slow(), *steps, "2", "enter", look)


def marked(text: str) -> set[int]:
    """The ranks with a mark in a list whose lines begin with mark and rank."""
    rows = [row.split() for row in text.splitlines() if row.startswith("▲ ")]
    return {int(row[1]) for row in rows if row[1].isdecimal()}


@pytest.mark.parametrize(
    ("ranks", "expected"), [([2, 3], {1, 2, 3}), ([0, 1, 2, 3], {1})], ids=["some ranks", "all ranks"]
)
def test_every_screen_marks_the_same_ranks_and_a_finding_about_all_accuses_none(ranks, expected):
    late = Finding("straggler", "warn", "rank 1 is slow", [1])
    starved = finding("cpu_starved", "warn", "ranks are starved of a core", ranks)
    shot = snapshots.replace(snapshots.four_on_cpu(), findings=[late, starved])
    for screen in "124":
        _, text = drive(shot, screen)
        assert marked(text) == expected, screen
