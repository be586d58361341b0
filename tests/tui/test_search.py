"""The search in the ranks' output: what it finds, where the screen goes, and how it is shown."""

import re

import pytest

from ddpmon.runs.logs import LAUNCHER, FoldedLine, Said
from ddpmon.tui.search import ERRORS, Search, SearchError, parse_search
from ddpmon.tui.widgets.loglist import FOUND, EntryStyle, LogList, entry_lines
from tests.fake_source import FakeSource
from tests.tui import snapshots
from tests.tui.driving import drive, seen

TRACE = ["Traceback (most recent call last):", '  File "train.py", line 7', "ValueError: the value is nan"]


def printing(lines=120) -> FakeSource:
    """A source whose rank 0 prints numbered lines, every tenth of them with a loss, and whose rank 5 failed before."""
    source = FakeSource(snapshots.slow())
    source.said = [
        Said(5, "err", TRACE),
        Said(0, "out", [f"line {n}" + f"  Loss {n / 10:g}" * (n % 10 == 0) for n in range(lines)]),
    ]
    return source


def typed(text):
    names = {" ": "space", "(": "left_parenthesis", "\\": "backslash", "+": "plus", ")": "right_parenthesis"}
    return [names.get(ch, ch) for ch in text]


def at_cursor(text: str) -> str:
    """What the line that the search went to says."""
    return next(row.split(maxsplit=2)[2].strip() for row in text.splitlines()[4:] if row.startswith("›"))


def test_a_search_goes_to_the_latest_match_and_from_match_to_match_around_the_ends():
    texts = []
    look = seen(texts)
    drive(printing(), "7", "slash", *"loss", "enter", look, "N", look, "N", look, "n", look, "n", "n", look, "N", look)
    assert [at_cursor(text) for text in texts] == [
        "line 110  Loss 11", "line 100  Loss 10", "line 90  Loss 9", "line 100  Loss 10", "line 0  Loss 0",
        "line 110  Loss 11",
    ]  # fmt: skip
    assert [re.search(r"/ loss: (\S+) of 12", text)[1] for text in texts] == ["12", "11", "10", "11", "1", "12"]


def test_each_line_is_searched_once_however_often_the_screen_is_drawn():
    class Counted(Search):
        def matching_lines(self, lines):
            looked = list(lines)
            searched.append(len(looked))
            return super().matching_lines(looked)

    searched, shown = [], LogList()
    shown.search = Counted("loss", re.compile("loss"))
    lines = [FoldedLine(f"line {n}" + " loss" * (n % 10 == 0), "out", {0}) for n in range(100)]
    assert shown._found(lines[:90]) == [*range(0, 90, 10)]
    assert shown._found(lines) == [*range(0, 100, 10)]
    assert shown._found(lines[50:]) == [*range(0, 50, 10)]
    assert searched == [90, 10, 0]
    shown.search = Search("line 7", re.compile("line 7"))
    assert shown._found(lines[:20]) == [7]


def test_from_where_one_has_scrolled_to_the_search_goes_on_from_the_screen():
    _, text = drive(printing(), "7", "slash", *"loss", "enter", "g", "n")
    assert at_cursor(text) == "line 0  Loss 0"
    _, text = drive(printing(), "7", "slash", *"loss", "enter", "g", "G", "N")
    assert at_cursor(text) == "line 100  Loss 10", "the line that it went to is in sight again"


def test_what_is_searched_for_stays_while_other_ranks_are_shown_and_ends_with_esc():
    source, texts = printing(), []
    drive(source, "7", "slash", *"loss", "enter", *["right_square_bracket"] * 2, seen(texts), "escape", seen(texts))
    assert "output of rank 5, following" in texts[0]
    assert "/ loss: no match" in texts[0]
    assert "/ loss" not in texts[1]


def test_without_a_search_or_a_match_the_keys_say_so():
    assert "no search is active: / searches" in drive(printing(), "7", "n")[1].splitlines()[-1]
    text = drive(printing(), "7", "slash", *"nowhere", "enter", "n")[1]
    assert "no match in these lines" in text.splitlines()[-1]
    assert "/ nowhere: no match" in text


@pytest.mark.parametrize(("text", "found"), [
    ("loss", [0, 1]), ("Loss", [1]), (r"\d{3}", [2]), ("x*", []), ("[[a]", []), ("", []),
])  # fmt: skip
def test_capital_letters_count_where_there_are_some_and_matches_of_nothing_do_not(text, found):
    assert parse_search(text).matching_lines(["loss", "Loss", "123"]) == found


@pytest.mark.parametrize("text", ["(", "a{9999999999999}", "(?P<1>a)", "(" * 199, "*", r"\1"])
def test_what_is_no_regular_expression_is_said_in_one_line(text):
    with pytest.raises(SearchError, match="invalid regular expression") as raised:
        parse_search(text)
    assert "\n" not in str(raised.value)


def test_while_an_expression_is_typed_the_line_says_what_it_does_or_what_is_wrong_with_it():
    texts = []
    drive(printing(), "7", "slash", seen(texts), *typed("rank \\d+ (has"), seen(texts), size=(120, 24))
    assert "enter searches upwards" in texts[0]
    assert "invalid regular expression at character 10: missing )" in texts[1]


def test_a_search_that_would_never_end_is_given_up():
    with pytest.raises(SearchError, match="takes too long"):
        parse_search("(a+)+$").matching_lines(["a" * 60 + "!"])
    source = printing()
    source.said = [Said(0, "out", ["a" * 60 + "!"])]
    _, text = drive(source, "7", "slash", *typed("(a+)+!!"), "enter", size=(100, 24))
    assert "(a+)+!! takes too long; search for something simpler" in text


@pytest.mark.parametrize(("line", "is_error"), [
    ("ValueError: the loss is nan", True), ("torch.OutOfMemoryError: CUDA out of memory", True),
    ("[rank3]: RuntimeError: stop", True), ("2026-01-01 ERROR no space left", True), ("KeyboardInterrupt", True),
    ("mean error: 0.31", False), ("the Error is small: 3", False), ("loss 0.4", False),
])  # fmt: skip
def test_errors_are_what_programs_print_when_something_failed(line, is_error):
    assert bool(ERRORS.match_spans(line)) is is_error


def test_e_goes_to_the_last_error_of_the_ranks_that_are_shown():
    texts = []
    drive(printing(), "7", "e", seen(texts), "N", seen(texts), "right_square_bracket", "e", seen(texts))
    assert at_cursor(texts[0]).endswith(TRACE[2])
    assert "/ errors: 2 of 2" in texts[0]
    assert at_cursor(texts[1]).endswith(TRACE[0])
    assert "/ errors: no match" in texts[2]


def highlighted(lines) -> list[str]:
    return ["".join(text for text, role in line if role == FOUND) for line in lines]


def test_a_match_is_highlighted_wherever_its_line_is_wrapped_or_cut():
    entry = FoldedLine("  one two three four five six seven eight nine ten", "out", {0})
    style = EntryStyle(30, 3, 4, Search("s", re.compile("two.*six")))
    assert highlighted(entry_lines(entry, style)) == ["two three four", "five six", ""]
    assert highlighted(entry_lines(entry, EntryStyle(30, 3, 4, style.search, wrapped=False))) == ["two three four f…"]
    panned = EntryStyle(30, 3, 4, style.search, wrapped=False, pan=16)
    assert "".join(text for text, _ in entry_lines(entry, panned)[0]).endswith("four five six seven ei…")
    assert highlighted(entry_lines(entry, panned)) == ["four five six"]


def test_a_match_in_a_line_of_many_rows_is_shown_whole():
    entry = FoldedLine("word " * 60 + "end", "out", {0})
    style = EntryStyle(40, 3, 4, parse_search("end"))
    assert highlighted(entry_lines(entry, style))[-1] == ""
    assert highlighted(entry_lines(entry, style, chosen=True))[-1] == "end"


def test_lines_that_are_not_wrapped_are_cut_and_scrolled_sideways():
    source, texts = printing(), []
    source.said = [Said(0, "out", ["begin " + "word " * 60 + "end"])]
    look = seen(texts)
    drive(source, "7", look, "w", look, "right", look, "slash", *"end", "enter", look, "left", "left", "left", look)
    rows = [[row for row in text.splitlines()[4:-1] if "word" in row] for text in texts]
    assert [len(each) for each in rows] == [5, 1, 1, 1, 1]
    assert ["begin" in each[0] for each in rows] == [True, True, False, False, False]
    assert rows[1][0].endswith("…")
    assert rows[3][0].endswith("end")
    assert ["lines cut" in text for text in texts] == [False, True, False, False, False]
    assert "from column 21" in texts[2]


def test_lines_that_are_cut_are_not_scrolled_beyond_their_end():
    for line, end in [("word " * 20 + "end", "end"), ("short", "short")]:
        source = printing()
        source.said = [Said(0, "out", [line])]
        _, text = drive(source, "7", "w", *["right"] * 8)
        assert text.splitlines()[5].endswith(end)


def test_the_output_opens_at_the_last_line_of_a_rank_and_the_launcher_is_below():
    source, texts = printing(), []
    source.said = [
        Said(0, "out", ["line 0", "line 1"]),
        Said(LAUNCHER, "launcher", [f"torchrun {n}" for n in range(60)]),
    ]
    look = seen(texts)
    drive(source, "7", look, "j", look, "G", look, "k", look)
    last = [[row for row in text.splitlines()[5:-1] if row][-1] for text in texts]
    assert [row.split(maxsplit=1)[1] for row in last] == ["line 1", "torchrun 0", "torchrun 59", "torchrun 58"]
    assert "following, 60 launcher lines below" in texts[0]
    assert "held, 59 more below" in texts[1]
    assert "following    ! stderr" in texts[2]


def test_output_of_the_launcher_alone_is_shown():
    source = printing()
    source.said = [Said(LAUNCHER, "launcher", ["torchrun alone"])]
    assert "torchrun alone" in drive(source, "7")[1]


def test_the_output_is_held_and_followed():
    source, texts = printing(), []

    def more(app, _):
        source.said = [Said(0, "out", ["late"])]
        app.tick()

    drive(source, "7", "f", seen(texts), more, seen(texts), "f", seen(texts))
    assert ["late" in text for text in texts] == [False, False, True]
    assert "output of all ranks, held  " in texts[0]
    assert "held, 1 more below" in texts[1]
    assert "following" in texts[2]
