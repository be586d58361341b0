"""Text in so many columns of a terminal."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ddpmon.export.width import columns, cut, wrapped
from ddpmon.plain import plain

TEXTS = st.text(st.sampled_from("ab-é 日本語한\u0301\n\t\x1b[|"), max_size=200) | st.text(max_size=200)


def test_wide_characters_take_two_columns_and_combining_ones_none():
    assert [columns(text) for text in ("abc", "日本", "e\u0301", "–µ")] == [3, 4, 1, 2]


def test_lines_break_at_spaces_and_keep_what_stands_in_columns():
    assert wrapped("one two  three", 10, "A: ", "   ") == ["A: one two", "   three"]
    assert wrapped("one  two", 10) == ["one  two"]
    assert wrapped("a\n\nb", 10) == ["a b"]


def test_a_word_longer_than_a_line_goes_on_in_the_next():
    assert wrapped("x" * 12 + " y", 8, "> ", "  ") == ["> xxxxxx", "  xxxxxx", "  y"]
    assert wrapped("日本語日本語", 7) == ["日本語", "日本語"]


@given(TEXTS, st.integers(12, 90))
def test_every_line_fits_and_no_word_is_lost(text, width):
    lines = wrapped(text, width, "Why      ", " " * 9)
    assert max(map(columns, lines)) <= width
    assert columns(cut(text, width)) <= width
    assert all(line.isprintable() for line in lines)
    letters = "".join(lines)[3:].replace(" ", "")
    assert letters.count("日") == plain(text).count("日")
    assert letters.count("a") == plain(text).count("a")


@given(st.text(st.sampled_from("ab 日本語한é–µ"), max_size=50))
def test_it_counts_as_the_dashboard_does(text):
    assert columns(text) == cell_len(text)
