"""The Findings screen: every finding with its evidence, since when, what it cost and what to do."""

import pytest

from ddpmon.analysis.evidence_words import evidence_words
from ddpmon.messages import Finding
from ddpmon.tui.widgets.findinglist import lost_hours, when_and_cost
from tests.tui import golden, snapshots
from tests.tui.driving import drive

STARVED = "4 ranks on node00 get too little of its 2 cores: each waits 51% of the time for one"
FOUND = [
    Finding(
        "straggler", "warn", "rank 13 (node01 gpu5) is slow: +41 ms backward each step", [13], "backward", 12_240,
        cost_ms=38.4, cost_s=9.48,
        advice="Look at what rank 13 does beside training, and at the clocks of node01 gpu5.",
        evidence={
            "over_median_ms": 41.2, "critical_share": 0.98, "gain": 1.13, "clock_mhz": 1_320.0, "host": None,
            "phase_excess_ms": {"forward": 11.0, "backward": 29.4}, "with_ranks": list(range(20, 32)),
        },
    ),
    Finding(
        "cpu_starved", "warn", STARVED, [0, 1, 2, 3], advice="Start fewer ranks there.",
        evidence={"host": "node00", "starved_share": 0.51, "by_rank": {"0": 0.5, "1": 0.52}, "cores": 2},
    ),
    Finding(
        "load_imbalance", "info", "rank 3 had more work for a while", [3], since_step=9_000, until_step=9_399,
        cost_ms=20.0, cost_s=8.0,
    ),
]  # fmt: skip


def found(findings=FOUND):
    return snapshots.replace(snapshots.slow(), findings=list(findings))


@golden.at(golden.NARROW)
def test_every_finding_is_readable(size):
    golden.check("findings", drive(found(), "9", size=size)[1], size)


def test_a_standstill_is_told_with_what_it_rests_on():
    golden.check("findings-stalled", drive(snapshots.stalled(), "9")[1], golden.NARROW)


def test_what_has_happened_stands_below_in_a_small_terminal_too():
    text = drive(found(), "9", "G")[1]
    assert "64 of 64 ranks connected in 41 s" in text
    assert "events" not in drive(snapshots.replace(found(), events=[], notes=[]), "9", "G")[1]


def test_where_nothing_is_wrong_it_says_so():
    text = drive(snapshots.running(), "9")[1]
    assert "what is wrong: 0 findings" in text
    assert "nothing in the data that ddpmon measured" in text


def test_more_than_fit_are_scrolled():
    many = found([Finding("pauses", "info", f"pause number {number}") for number in range(60)])
    _, text = drive(many, "9")
    assert "pause number 0" in text
    assert "more lines" in text
    _, text = drive(many, "9", "G")
    assert "pause number 59" in text
    assert "more lines" not in text
    assert "pause number 0" in drive(many, "9", "G", "pagedown", "g")[1]
    assert "pause number 0" not in drive(many, "9", "j")[1]


@pytest.mark.parametrize(("evidence", "said"), [
    ({"gain": 1.134}, "gain 1.13x"),
    ({"over_median_ms": 41.25}, "excess 41.2 ms"),
    ({"starved_share": 0.514}, "starved 51%"),
    ({"rss_bytes": 3 * 2**30}, "rss 3.0 GiB"),
    ({"bytes_per_s": 1_310_000.0}, "bytes 1.2 MiB/s"),
    ({"idle_s": 74.0}, "no step for 1m14s"),
    ({"bus_bandwidth_gb_s": 11.5}, "bus bandwidth 11.5 GB/s"),
    ({"temperature_c": 86.0}, "temperature 86 °C"),
    ({"follows_work": True}, "follows work yes"),
    ({"every": 1_200}, "every 1,200"),
    ({"reasons": ["thermal", "power"]}, "reasons thermal, power"),
    ({"ranks": list(range(10))}, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
    ({"held": {"3": {"how": "reads", "where": "data.py:41"}}}, "held 3: how: reads, where: data.py:41"),
    ({"stacks": [{"ranks": [5], "line": "data.py:41", "frames": ["a", "b"]}]}, "stacks ranks: 5, line: data.py:41"),
    ({"loss": float("nan")}, "loss nan"),
    ({"where": "bad\x1b[2J"}, "where bad"),
    ({"waiting": [0]}, "waiting: rank 0"),
    ({"gone": [1, 2, 3]}, "gone: ranks 1-3"),
])  # fmt: skip
def test_evidence_is_written_with_its_unit(evidence, said):
    (words,) = evidence_words(evidence)
    assert words.startswith(said)
    assert "\x1b" not in words


def test_evidence_that_nobody_knows_is_left_out():
    assert evidence_words({"cores": None, "gone": [], "cause": "", "gain": 2.0}) == ["gain 2.00x"]


@pytest.mark.parametrize(("finding", "said"), [
    (FOUND[0], "since step 12,240: 247 steps, 38.4 ms a step, 9.5 s so far"),
    (FOUND[1], ""),
    (FOUND[2], "from step 9,000 to 9,399: 400 steps, ended, 20.0 ms a step, 8.0 s"),
    (Finding("hang", "critical", "", since_step=12_486), "since step 12,486: 1 step"),
])  # fmt: skip
def test_since_when_and_what_it_cost(finding, said):
    assert when_and_cost(finding, 12_486) == said
    assert when_and_cost(finding, 12_486, ended=True) == said.removesuffix(" so far")


def test_a_cost_of_some_gpu_hours_is_told_with_its_price(monkeypatch, tmp_path):
    """64 ranks that lose 90 s each lose 1.6 hours."""
    (tmp_path / "ddpmon").mkdir()
    (tmp_path / "ddpmon" / "config.toml").write_text("[price]\ngpu_hour = 2.5\ncurrency = 'EUR'\n")
    shot = found()
    costly = snapshots.replace(FOUND[0], cost_s=90.0)
    assert lost_hours(costly, shot) == ", 1.60 GPU hours"
    assert (
        lost_hours(snapshots.replace(costly, cost_s=1.0), shot)
        == lost_hours(snapshots.replace(costly, cost_s=None), shot)
        == ""
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert lost_hours(costly, shot) == ", 1.60 GPU hours (4.00 EUR)"
