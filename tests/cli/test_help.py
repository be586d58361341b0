"""ddpmon help: what the documentation says, in the terminal."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from ddpmon import numbers
from ddpmon.analysis.kinds import KINDS
from ddpmon.cli.commands.helping import docs_folder, find_topic, for_terminal, topics
from ddpmon.export.report import REPORT_COLUMNS
from ddpmon.messages import PAUSES, PHASES, QUANTITIES, EfficiencyView
from ddpmon.tui.frame import BADGES, STAGE_WORDS
from ddpmon.tui.widgets import bucketlist, columns, runlist
from ddpmon.tui.widgets.cost import branches
from tests.in_process import called, called_in_a_terminal


def test_tasks_and_findings_are_listed_and_each_can_be_read():
    shown = called("help")
    assert (shown.returncode, shown.stderr) == (0, "")
    tasks = shown.stdout.partition("Kinds of findings:")[0]
    assert re.search(r"^  straggler ", tasks, re.MULTILINE), "a task and a finding"
    names = set(re.findall(r"^  ([\w-]+) ", shown.stdout, re.MULTILINE))
    assert names == {page.stem for page in (docs_folder() / "howto").glob("*.md")} | {kind.name for kind in KINDS}
    for name, topic in topics().items():
        lines = list(for_terminal(topic.text, 80))
        assert not [line for line in lines if "](" in line or "**" in line], name
        assert not [line for line in lines if len(line) > 80 and not line.startswith("    ")], name
        assert len(lines) > 1, name


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("straggler", "FIND A STRAGGLER"),
        ("hang", "ddpmon stack"),
        ("hang", "THE FINDING HANG"),
        ("rank_failed", "What to do. Read the exception"),
        ("excess", "a rank's own time above the median of its peers'"),
        ("crit", "the share of steps in which the other ranks waited for this rank"),
        ("run", "Usage: ddpmon run [OPTIONS] SCRIPT [ARGS]..."),
    ],
)
def test_a_topic_is_explained(topic, said):
    code, shown = called_in_a_terminal("help", topic, columns=80)
    assert code == 0
    assert said in " ".join(shown.split())


def test_what_is_no_topic_is_one_line_with_the_nearest_one():
    refused = called("help", "stragler")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "ddpmon: no topic 'stragler'; did you mean 'straggler'? All topics: ddpmon help\n"


def test_two_paragraphs_are_one_empty_line_apart_where_the_page_has_a_picture_between_them():
    shown = list(for_terminal((docs_folder() / "howto" / "straggler.md").read_text(), 80))
    assert "" in shown
    assert not any(first == second == "" for first, second in pairwise(shown))


def test_code_of_a_page_stays_as_it_is():
    page = "![a picture](y.svg)\n\n# A page\n\n"
    page += "Run [this](x.md):\n\n    ddpmon  run   x\n\n```sh\nsqlite3   y\n```\n\n- one\n  two\n- three\n"
    assert list(for_terminal(page, 80)) == [
        *("A PAGE", "", "Run this:", "", "    ddpmon  run   x", "", "    sqlite3   y", "", "- one two", "- three"),
    ]


def labels():
    """The heads of columns, and the words that screens and reports put beside a number or a rank."""
    yield from (column.head for column in columns.RANK_COLUMNS.values())
    yield from (name for row in QUANTITIES.values() for name in (row.heading, row.text, row.filter_word))
    yield from (*REPORT_COLUMNS, *PHASES, *PAUSES, *columns.HEALTH_WORDS.values(), "p50", "p95", "med")
    yield from (badge.word for badge in BADGES.values())
    yield from (branch.name.lstrip("│├└ ") for branch in branches(EfficiencyView(1, 1, 1, 1, 1)))
    for header in (bucketlist._HEADER, runlist.header(200)):
        yield from (head for head in re.split(r"\s{2,}", header.strip()) if head != numbers.MEGA)
    yield from ("rank hours", "GPU hours", "noise", "loaders", "bus bandwidth", "range", "this rank", "peers")


def test_help_knows_every_word_of_column_heads_and_labels():
    pages = topics()
    assert sorted({label for label in labels() if find_topic(label, pages) is None}) == []
    assert [word for word in STAGE_WORDS.values() if word not in pages["stage"].text] == []


@pytest.mark.parametrize(
    ("words", "title"),
    [("own ms", "OWN TIME"), ("SLOW", "SLOW"), ("gpu%", "GPU%"), ("ranks", "RANK"), ("fwd", "FORWARD")],
)
def test_a_word_is_found_in_any_case_and_with_its_unit(words, title):
    assert called("help", *words.split()).stdout.splitlines()[0] == title
