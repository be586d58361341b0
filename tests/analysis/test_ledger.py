"""The records of findings over a whole run, of which each judgement sees a window."""

import msgspec
import numpy as np
import pytest

from ddpmon.analysis.episodes import EpisodeRecord, as_of
from ddpmon.analysis.ledger import MAX_ENDED_RECORDS, MAX_EPISODES, Judgement, Ledger
from ddpmon.messages import Episode, Finding
from ddpmon.recording import checked, schema

WINDOW = 600
STEP_S = 0.05
EVERY = 10


def slow(rank=2, since=1, until=None, cost_ms=10.0, severity="warn", phase="data", kind="straggler", **more):
    text = f"rank {rank} is slow" if until is None else f"rank {rank} was slow"
    return Finding(
        kind, severity if until is None else "info", text, [rank], phase, since, until, cost_ms, lead=7, **more
    )


def judge(ledger, last, *findings, over=False):
    """Judge the steps up to `last`, which took 50 ms each, and return the findings."""
    ledger.enter_findings(findings, Judgement(last * STEP_S, max(1, last - WINDOW + 1), last), over=over)
    return ledger.findings(last * STEP_S)


def test_the_first_step_stays_when_the_window_no_longer_reaches_it_and_is_corrected_where_it_does():
    ledger = Ledger()
    judge(ledger, 300, slow(since=260))
    assert judge(ledger, 320, slow(since=250))[0].since_step == 250
    for last in range(330, 4000, EVERY):
        since = max(250, last - WINDOW + 1)  # an engine that forgets
        (shown,) = judge(ledger, last, slow(since=since))
        assert (shown.since_step, shown.is_lasting, len(shown.episodes)) == (250, True, 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_cost_is_that_of_every_step_however_it_changes(seed):
    rng = np.random.default_rng(seed)
    costs = np.repeat(rng.uniform(2, 60, 40), 100)
    ledger = Ledger()
    for last in range(20, len(costs) + 1, EVERY):
        mean = costs[max(0, last - WINDOW) : last].mean()
        (shown,) = judge(ledger, last, slow(since=1, cost_ms=mean))
        assert shown.cost_s == pytest.approx(costs[:last].sum() / 1e3, abs=WINDOW * 30 / 1e3)
    assert shown.cost_s == pytest.approx(costs.sum() / 1e3, rel=0.1)


def test_a_finding_that_comes_and_goes_is_one_record_with_the_steps_and_cost_of_each_episode():
    ledger = Ledger()
    for begin in (200, 700, 1200, 1700):
        judge(ledger, begin + 60, slow(since=begin))
        judge(ledger, begin + 150, slow(since=begin, until=begin + 99))
        (shown,) = judge(ledger, begin + 160, slow(since=begin, until=begin + 99))
    assert [(e.since_step, e.until_step, round(e.cost_s, 2)) for e in shown.episodes] == [
        (begin, begin + 99, 1.0) for begin in (200, 700, 1200, 1700)
    ]
    assert shown.cost_s == pytest.approx(4.0)
    assert shown.text == "rank 2 was slow; 4 times, 4.0 s in all"
    assert shown.severity == "warn"  # 4 of 93 seconds
    assert judge(ledger, 20_000)[0].severity == "info"  # 4 of 1,000


def test_what_is_no_longer_reported_is_told_until_when_it_was_and_goes_on_if_the_window_says_so():
    ledger = Ledger()
    judge(ledger, 400, slow(since=101))
    (gone,) = judge(ledger, 500)
    assert (gone.text, gone.until_step, gone.lead) == ("until step 400: rank 2 is slow; it cost 3.0 s", 400, 23)
    assert gone.cost_s == pytest.approx(3.0)
    (back,) = judge(ledger, 600, slow(since=101))
    assert (back.text, back.until_step, back.cost_s) == ("rank 2 is slow", None, pytest.approx(5.0))
    assert len(back.episodes) == 1


def test_phases_and_the_gravest_severity_are_kept():
    ledger = Ledger()
    judge(ledger, 100, slow(since=1, cost_ms=30.0))
    judge(ledger, 600, slow(since=1, phase="backward", severity="info", cost_ms=30.0))
    (shown,) = judge(ledger, 601, slow(since=1, phase="backward", severity="info", cost_ms=30.0), over=True)
    assert (shown.severity, shown.phase, shown.episodes[0].phases) == ("warn", "backward", ["data", "backward"])


def test_a_rank_of_several_that_are_slow_together_is_told_once():
    ledger = Ledger()
    judge(ledger, 120, slow(1, since=100))
    several = Finding("several_stragglers", "warn", "ranks 1 2 are slow", [1, 2], "data", 100, None, 10.0)
    assert [f.kind for f in judge(ledger, 140, several)] == ["several_stragglers"]
    episodes = ledger.episodes()
    assert [f.kind for f in as_of(episodes, 125 * STEP_S, 0, 125, 6.0)] == ["straggler"]
    assert [f.kind for f in as_of(episodes, 145 * STEP_S, 0, 145, 7.0)] == ["several_stragglers"]


def test_a_hang_of_another_rank_is_another_finding_also_once_it_is_read_again():
    ledger = Ledger()
    for rank, last in ((1, 10), (2, 11)):
        (shown, *earlier) = judge(
            ledger, last, Finding("hang", "critical", f"rank {rank}", [rank], since_step=last + 1)
        )
        assert (shown.ranks, shown.is_lasting, len(earlier)) == ([rank], True, rank - 1)
    read = Ledger(0, ledger.episodes(), ledger.judged)
    assert [(f.text, f.severity) for f in read.findings(1.0)] == [
        ("rank 2", "critical"), ("until step 10: rank 1", "info"),
    ]  # fmt: skip


def test_a_moment_of_the_past_shows_what_was_shown_then():
    ledger, then = Ledger(), {}
    for last in range(10, 2000, EVERY):
        begin = last // 500 * 500 + 100
        slow_now = begin + 20 <= last <= begin + 200
        then[last] = judge(ledger, last, *([slow(since=begin)] if slow_now else []))
    for last, shown in then.items():
        replayed = as_of(ledger.episodes(), last * STEP_S, 0, last, last * STEP_S)
        assert [(f.text, f.since_step, f.until_step, f.severity) for f in replayed] == [
            (f.text, f.since_step, f.until_step, f.severity) for f in shown
        ]
        assert [f.cost_s for f in replayed] == pytest.approx([f.cost_s for f in shown], abs=0.02)


def test_a_moment_of_the_past_says_of_which_later_step_its_evidence_is():
    ledger = Ledger()
    for last in (120, 300):
        judge(ledger, last, slow(since=100, evidence={"steps": last - 99}))
    for last, evidence in ((120, {"as_of_step": 300, "steps": 201}), (300, {"steps": 201})):
        (shown,) = as_of(ledger.episodes(), last * STEP_S, 0, last, last * STEP_S)
        assert shown.evidence == evidence


def test_it_goes_on_from_its_rows_and_begins_anew_with_an_attempt():
    ledger = Ledger()
    lost = Finding("telemetry_lost", "warn", "3 records of steps were lost", [])
    judge(ledger, 390, lost)
    shown = judge(ledger, 400, slow(since=101), lost)
    assert [finding.kind for finding in shown] == ["straggler", "telemetry_lost"], "worst first, though told later"
    rows = [msgspec.msgpack.encode(told) for _, episodes in ledger.take_changed() for told in episodes]
    again = Ledger(0, [msgspec.msgpack.decode(row, type=EpisodeRecord) for row in rows], ledger.judged)
    assert again.findings(20.0) == ledger.findings(20.0)
    assert again.lasting_findings(400) == [slow(since=101), lost]
    assert again.lasting_findings(100) == [lost], "the steps of the other are missing"
    again.begin_attempt(1)
    assert again.findings(20.0) == []
    (shown,) = judge(again, 30, slow(since=3))
    assert [told.record for told in again.episodes()] == [1, 2, 3]
    assert shown.since_step == 3


def test_what_was_over_when_first_reported_is_read_from_a_recording_as_it_was():
    ledger = Ledger()
    shown = judge(ledger, 400, slow(since=101, until=300))
    rows = [schema.finding_row(told) for _, episodes in ledger.take_changed() for told in episodes]
    again = Ledger(0, [checked.FINDINGS.decode(row[-1]) for row in rows], ledger.judged)
    assert again.findings(20.0) == shown
    (back,) = judge(again, 410, slow(since=101))
    assert (back.text, back.until_step) == ("rank 2 is slow", None)


def test_it_is_bounded_however_long_a_run_is_and_however_many_ranks_come_and_go():
    ledger, written = Ledger(), {}
    for turn in range(2 * MAX_ENDED_RECORDS):
        judge(ledger, 40 * turn + 30, slow(turn % 100, since=40 * turn + 1))
        shown = judge(ledger, 40 * turn + 40)
        written |= dict(ledger.take_changed())
    assert len(shown) == MAX_ENDED_RECORDS
    assert sum(bool(told) for told in written.values()) == MAX_ENDED_RECORDS
    flapping = Ledger()
    for turn in range(100):
        judge(flapping, 40 * turn + 30, slow(since=40 * turn + 21))
        (shown,) = judge(flapping, 40 * turn + 40)
    assert len(shown.episodes) == MAX_EPISODES
    assert sum(episode.times for episode in shown.episodes) == 100
    assert shown.cost_s == pytest.approx(100 * 0.1)
    assert "100 times" in shown.text


def test_a_finding_that_knows_its_cost_is_not_added_up_and_takes_in_what_seemed_to_have_ended():
    ledger = Ledger()
    for begin in (200, 400):
        judge(ledger, begin + 60, slow(since=begin, cost_s=0.6))
        judge(ledger, begin + 150, slow(since=begin, until=begin + 99, cost_s=1.0))
    (shown,) = judge(ledger, 600)
    assert (shown.cost_s, [e.since_step for e in shown.episodes]) == (2.0, [200, 400])
    came = [Episode(200, 299, 1.0), Episode(400, 499, 1.0), Episode(590, 599, 0.1)]
    (shown,) = judge(ledger, 620, slow(since=200, kind="late_in_bursts", cost_s=2.3, episodes=came))
    assert (shown.since_step, shown.cost_s, shown.episodes, shown.is_lasting) == (200, 2.3, came, True)
    assert shown.reported_at == 260 * STEP_S


def test_what_it_cost_before_a_hub_was_restarted_stays_known():
    ledger = Ledger()
    judge(ledger, 5000, slow(since=101, cost_s=49.0))
    again = Ledger(0, ledger.episodes(), ledger.judged)
    for last in (5100, 5200):
        first = last - WINDOW + 1
        (shown,) = judge(again, last, slow(since=first, cost_s=6.0))
        assert (shown.since_step, shown.cost_s) == (101, pytest.approx((last - 100) / 100))
