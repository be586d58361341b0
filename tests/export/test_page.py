"""The report as a page: whole without a network or a script, safe to open, and drawn by a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from ddpmon.export import page, report
from ddpmon.export.page import charts
from ddpmon.messages import SeriesView
from ddpmon.recording import recorded

HOSTILE = "</script><script>alert('ran')</script><img src=x onerror=alert(1)>\x1b[31m"


@pytest.fixture(scope="module")
def parts(demo):
    """Return the parts of the run's page: the report, and the series of its charts."""
    built, shot, store = report.with_source(demo)
    return built, page.views(shot, store)


@pytest.fixture(scope="module")
def source(demo):
    """Return the page of the run."""
    return page.of(demo)


class Elements(HTMLParser):
    """Elements and text of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.linked: list[str] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.linked += [
            value or ""
            for name, value in attributes
            if name in {"src", "href"} and not (value or "").startswith("data:")
        ]

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def test_it_tells_verdict_findings_and_ranks_and_asks_no_network_for_anything(source):
    elements = Elements(source)
    assert "done: 1,248 steps" in elements.text
    assert "rank 2 was slow from step 450 to 796: +30.1 ms data a step" in elements.text
    assert "Own time in excess of the peers' median" in elements.text
    assert elements.tags.count("tr") == 1 + 4
    assert not elements.linked
    assert "script" not in elements.tags


def test_it_says_what_was_started_and_when_and_each_finding_has_its_advice_and_evidence_in_words(source):
    text = " ".join(Elements(source).text.split())
    assert re.search(r"Command \S+\.py.* Started 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} Ended 20\d\d-", text)
    assert "Why rank 2 was slow from step 450 to 796: +30.1 ms data a step; it cost 10.3 s Next It is over:" in text
    assert (
        "straggler, warn, from step 450 to 796, 29.6 ms a step, 0.011 rank hours lost; own time 62.7 ms; excess" in text
    )
    assert "lowest to highest rank" in text
    assert not re.search(r"None|[{}]|'\d|\d+_", text.split("Findings")[1])


def test_a_line_has_a_gap_where_steps_filled_less_than_half_of_the_time():
    seconds = [1.0, 2.0, 3.0, 9.0, 10.0]
    lengths = [1000.0, 1000.0, None, 1000.0, 1000.0]
    step = SeriesView("step", seconds, [1, 2, 3, 4, 5], lengths, lengths, lengths, [0] * 5)
    cpu = SeriesView("cpu", seconds, [1, 2, 3, 4, 5], lengths, lengths, lengths, [0] * 5)
    assert charts.stretches(step, step) == [(0, 3), (3, 5)]
    assert charts.stretches(cpu, step) == [(0, 5)]
    drawn = str(charts.through_time(step, step, 10.0).html)
    assert "gaps are pauses without training steps" in drawn
    assert drawn.count("<polyline") == 2


def test_its_charts_are_of_what_the_report_has_read(demo, monkeypatch):
    read = []
    judged = recorded.judged_store
    monkeypatch.setattr(recorded, "judged_store", lambda *args: read.append(args[2]) or judged(*args))
    report.build(demo)
    for_the_report = list(read)
    read.clear()
    page.of(demo)
    assert read == for_the_report


def test_every_quantity_that_the_run_has_is_charted(parts):
    names = [series.name for series in parts[1].series]
    assert names[:5] == ["own", "loss", "step", "wait", "transfer"]
    assert parts[1].heat is not None
    assert len(parts[1].heat.rows) == 4


def test_text_from_outside_stays_text(parts):
    built, views = parts
    hostile = {**built, "verdict": HOSTILE, "run": {**built["run"], "name": HOSTILE}}
    hostile["findings"] = [{**built["findings"][0], "text": HOSTILE, "advice": HOSTILE, "evidence": {HOSTILE: HOSTILE}}]
    source = page.page(hostile, views, [("Command", HOSTILE)])
    elements = Elements(source)
    safe = Elements(page.page(built, views, [("Command", "train.py")]))
    assert sorted(elements.tags) == sorted(safe.tags)
    assert "alert('ran')" in elements.text
    assert "\x1b" not in source


def test_a_name_that_a_script_logged_under_cannot_leave_its_chart(parts):
    built, views = parts
    logged = [
        type(series)(**{**{name: getattr(series, name) for name in series.__struct_fields__}, "name": f"log:{HOSTILE}"})
        for series in views.series[:1]
    ]
    elements = Elements(page.page(built, page.Views(logged), []))
    assert "img" not in elements.tags


def test_a_run_without_steps_has_a_page_without_charts(parts):
    built, _ = parts
    ranks = [{**rank, "own_ms": None} for rank in built["ranks"]]
    nothing = {**built, "ranks": ranks, "findings": [], "steps": {**built["steps"], "window": None}}
    elements = Elements(page.page(nothing, page.Views(), []))
    assert "Where each rank's step goes" not in elements.text


def test_of_very_many_ranks_those_with_the_most_own_time_have_bars(parts):
    some = parts[0]["ranks"][0]
    ranks = [{**some, "rank": rank, "own_ms": float(rank)} for rank in range(1024)]
    chart = charts.phases(ranks)
    assert "the 64 of 1,024 ranks with the most own time" in chart.title
    assert "rank 1023" in chart.html
    assert "rank 0:" not in chart.html


def test_a_browser_draws_all_of_it(source, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    file = tmp_path / "run.html"
    file.write_text(source)
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    drawn = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet,
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, timeout=150, check=True,
    ).stdout  # fmt: skip
    assert drawn.count('class="chart"') == drawn.count("<svg") >= 7
    assert re.search(r"<title>rank 2: data (11|12)\.\d ms</title>", drawn)
