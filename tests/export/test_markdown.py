"""The report in Markdown: what GitHub makes of it is what was meant, and any report fits its columns."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddpmon.export import markdown
from ddpmon.export.report import MOST_RANKS
from ddpmon.export.report import text as report_text
from ddpmon.export.width import columns
from tests.export import made
from tests.export.test_report import slow_run

UNESCAPED_BAR = re.compile(r"(?<!\\)(?:\\\\)*\|")


def tables(text):
    """Each table as its rows of cells."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            assert line.endswith(" |")
            rows.append([cell.strip() for cell in UNESCAPED_BAR.split(line)[1:-1]])
        elif rows:
            found.append(rows)
            rows = []
    return found


def test_verdict_why_and_next_come_first_then_the_ranks_and_the_findings():
    report = slow_run()
    report["findings"].append(
        {**report["findings"][0], "text": "its disk is full", "advice": "Delete something.", "cost_ms": None}
    )
    lines = [line for line in markdown.report(report).splitlines() if line]
    assert lines[0] == r"### mnist (20261120-141502-7f3a): done, exit code 0, 4 ranks"
    assert lines[1].startswith("**Verdict:** done: 101 steps in 1m00s; rank 2 is slow: +20.0 ms data")
    assert lines[2] == "**Why:** its disk is full"
    assert lines[3].startswith("**Next:** Look at what differs on rank 2 in the DataLoader")
    assert lines[4] == "**Next:** Delete something."
    ranks, findings = tables(markdown.report(report))
    assert ranks[0] == [
        "rank",
        "own ms",
        "excess",
        "data",
        "fwd",
        "bwd",
        "opt",
        "other",
        "wait",
        "transf",
        "crit",
        "loss",
    ]
    assert ranks[1] == ["---:"] * 12
    assert ranks[2][:4] == ["2", "47.0", "+74.1%", "22.0"]
    assert [row[:2] for row in findings[2:]] == [["straggler", "warn"]] * 2
    assert findings[3][3] == "–"


def test_what_a_rank_said_last_cannot_break_the_table_nor_call_people():
    report = slow_run()
    error = "KeyError: 'a|b' `x` <img> @torvalds\n| forged | row |"
    report["ranks"][1]["exit"] = {"code": 1, "signal": None, "error": error}
    text = markdown.report(report)
    assert "@torvalds" not in text
    ended = tables(text)[1]
    assert ended[2][0] == "1"
    assert len(ended) == 3
    assert ended[2][1].startswith(r"exit 1, KeyError: 'a\|b' \`x\` \<img\> @")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(made.reports())
def test_any_report_fits_80_columns_of_text_and_gives_whole_tables(report):
    lines = report_text(report).splitlines()
    assert max(map(columns, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    head = next((i for i, line in enumerate(lines) if line.startswith(" rank")), len(lines))
    ranks = [line for line in lines[head:] if not line.startswith((" " * 6, "and "))]
    assert all(len(row.replace("own ms", "own").replace("excess", "vs").split()) == 12 for row in ranks)
    assert len(ranks) <= MOST_RANKS + 1
    text = markdown.report(report)
    assert all(line.isprintable() for line in text.replace("\u2060", "").splitlines())
    for rows in tables(text):
        assert len(rows) >= 3
        assert {len(row) for row in rows} == {len(rows[0])}
        assert re.fullmatch(r":?-{3,}:?", rows[1][0])


@given(st.text(max_size=80))
def test_an_escaped_text_is_one_cell(text):
    assert tables("\n".join(markdown.table(("what",), [(text,)])))[0][2:] == [[markdown.escaped(text).strip()]]
