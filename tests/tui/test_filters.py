"""The language of the filter, and the line in which it is typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.messages import Sample
from ddpmon.runs.logs import LAUNCHER, Said
from ddpmon.tui.filters import QUANTITY_FILTERS, FilterError, parse_filter
from tests.fake_source import FakeSource
from tests.tui import golden, snapshots, through_time
from tests.tui.driving import drive, seen

WORLD = snapshots.replace(
    snapshots.slow(),
    ranks=[
        snapshots.replace(rank, health="dead" if rank.rank == 2 else rank.health) for rank in snapshots.slow().ranks
    ],
)


def kept(text):
    return [rank.rank for rank in WORLD.ranks if parse_filter(text).matches_rank(rank)]


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("13", [13]),
        ("0-2,5", [0, 1, 2, 5]),
        ("rank:3", [3]),
        ("rank=0-1", [0, 1]),
        ("host:NODE01 rank:0-9", [8, 9]),
        ("node07 rank:0-57", [56, 57]),
        ("slow", [13]),
        ("excess>=5%", [13]),
        ("own>300", [13]),
        ("wait<1", [13]),
        ("dead", [2]),
        ("state:dead", [2]),
        ("rank:0-3 !dead", [0, 1, 3]),
        ("!rank:1-63", [0]),
        ("gpumem>70", []),
        ("", list(range(64))),
        ("  ", list(range(64))),
    ],
)
def test_terms(text, ranks):
    assert kept(text) == ranks


@pytest.mark.parametrize("name", QUANTITY_FILTERS)
def test_every_quantity_can_be_asked_for_and_an_unknown_one_fits_nothing(name):
    unknown = snapshots.RankView(rank=0)
    known = len([rank for rank in WORLD.ranks if QUANTITY_FILTERS[name](rank) is not None])
    assert len(kept(f"{name}>=-1e9")) == known
    assert parse_filter(f"{name}>=-1e9").matches_rank(unknown) is (name == "steps")


@pytest.mark.parametrize(
    ("text", "ranks"), [("sent>1.2M", [2, 3]), ("sent<=1.2M", [0, 1]), ("sent>=2G", [3]), ("sent<100k", [0])]
)
def test_a_large_number_is_typed_as_screens_write_it(text, ranks):
    sent = [5e4, 1.2 * 2**20, 3e6, 2**31]
    made = [snapshots.RankView(place, sample=Sample(0, sent_bytes_per_s=value)) for place, value in enumerate(sent)]
    assert [rank.rank for rank in made if parse_filter(text).matches_rank(rank)] == ranks


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("own>fast", "a number must follow own>"),
        ("sent>M", "a number must follow sent>"),
        ("speed>4", "there is no speed"),
        ("rank>4", "write rank:…"),
        ("rank:four", "rank:0-7,12"),
        ("state:tired", "one of ok slow"),
        ("host:", "host:NAME"),
        ("!", "add what to exclude"),
        ("0-3 !own>", "a number must follow"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(text, says):
    with pytest.raises(FilterError, match=says) as raised:
        parse_filter(text)
    assert "\n" not in str(raised.value)


@given(st.text(max_size=40))
def test_any_text_is_a_filter_or_an_error(text):
    try:
        wanted = parse_filter(text)
    except FilterError:
        return
    assert len([rank for rank in WORLD.ranks if wanted.matches_rank(rank)]) <= 64


def typed(text):
    names = {" ": "space", ">": "greater_than_sign", ":": "colon", "!": "exclamation_mark", "-": "minus"}
    return [names.get(ch, ch) for ch in text]


def test_the_filter_holds_on_world_and_for_the_next_rank_of_inspect():
    _, text = drive(WORLD, "slash", *typed("node01 own>200"), "enter")
    golden.check("filter", text, golden.NARROW)
    app, text = drive(WORLD, "slash", *typed("8-9"), "enter", "enter", "right_square_bracket", "right_square_bracket")
    assert app.views["inspect"].main.rank == 9
    assert "rank 7" not in text


def test_the_filter_holds_for_the_logs():
    source = FakeSource(WORLD)
    source.said = [Said(rank, "out", ["all say this", f"only {rank}"]) for rank in range(64)]
    _, text = drive(source, "7", "F", *"8-9", "enter", size=(80, 24))
    assert "output of some ranks, following    / 2 of 64 ranks: 8-9" in text
    printed = [row.split(maxsplit=1) for row in text.splitlines()[4:-1] if row.strip()]
    assert printed == [["8-9", "all say this"], ["8", "only 8"], ["9", "only 9"]]
    source.said = [Said(8, "out", ["only 8"]), Said(LAUNCHER, "launcher", ["torchrun"])]
    app, text = drive(source, "7", "F", *"8-9", "enter", *["right_square_bracket"] * 3)
    assert app.views["logs"].main.rank is None  # after 8 and 9 come all again, no launcher
    app, text = drive(source, "7", "F", *"8-9", "enter", "right_square_bracket")
    assert "output of rank 8" in text
    assert "of 64 ranks" not in text
    assert "no rank matches the filter" in drive(source, "7", "F", *"99", "enter")[1]
    assert "torchrun" in drive(source, "7", "F", *"8-9", "enter", "escape")[1]


def test_a_filter_is_the_same_on_every_screen_that_lists_ranks():
    filtered, cleared = [], []
    steps = [
        step for key in "1234567"
        for step in ("slash", "3", "enter", key, seen(filtered), "escape", seen(cleared))
    ]  # fmt: skip
    drive(through_time.slow(16), *steps, size=(120, 40))
    for text in filtered:
        assert "/ 1 of 16 ranks: 3" in text
        assert "esc" not in text.splitlines()[-1]
    assert len(cleared) == 7
    assert not any("of 16 ranks" in text for text in cleared)


def test_a_filter_that_cannot_be_read_is_not_taken():
    _, text = drive(WORLD, "slash", *typed("own>x"), "enter")
    assert "a number must follow own>" in text.splitlines()[-1]
    app, _ = drive(WORLD, "slash", *typed("own>x"), "enter", "backspace", *typed("9"), "enter")
    assert app.filter.text == "own>9"
    app, _ = drive(WORLD, "slash", *typed("own>x"), "escape")
    assert app.filter is None


def test_a_filter_that_fits_no_rank_says_so_and_nothing_is_inspected():
    _, text = drive(WORLD, "slash", *typed("own>9999"), "enter")
    assert "no rank matches the filter" in text
    app, text = drive(WORLD, "2", "slash", *typed("own>9999"), "enter", "j", "enter")
    assert app.current_mode == "ranks"
    assert "no rank" in text.splitlines()[-1]
