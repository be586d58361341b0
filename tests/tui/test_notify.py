"""A bell or a notification when the run gets worse: once for each change, never a byte that the terminal obeys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.config import NOTIFY
from ddpmon.tui.notify import MAX_NOTIFICATION_CHARS, QUIET_S, Worsening, notification_sequence
from tests.fake_source import FakeSource
from tests.tui import snapshots
from tests.tui.driving import drive

CALM, SLOW, STALLED, FAILED, DONE = (
    getattr(snapshots, name)() for name in ("running", "slow", "stalled", "failed", "done")
)
GRAVE = snapshots.replace(CALM, severity="critical", verdict="the loss of rank 1 is nan since step 40")
SAME_RUN = CALM.run.id


def of_one_run(*shots):
    return [snapshots.replace(shot, run=snapshots.replace(shot.run, id=SAME_RUN)) for shot in shots]


def told(*shots, begun=False, every_s=1.0):
    """Which of the snapshots, one after the other, are news."""
    worsening = Worsening(begun=begun)
    return [
        worsening.is_worth_notifying(shot, 1000.0 + place * every_s) for place, shot in enumerate(of_one_run(*shots))
    ]


@pytest.mark.parametrize("bad", [SLOW, STALLED, FAILED, DONE, GRAVE], ids=["slow", "stalled", "failed", "done", "nan"])
def test_a_run_that_gets_worse_or_ends_is_told_of_once(bad):
    assert told(CALM, bad, bad, bad) == [False, True, False, False]


def test_what_gets_worse_still_is_told_of_and_what_gets_better_is_not():
    assert told(CALM, SLOW, GRAVE, STALLED, FAILED) == [False, True, True, True, True]
    assert told(STALLED, GRAVE, SLOW, CALM) == [False] * 4


def test_flapping_within_a_minute_is_told_of_once():
    assert told(*[CALM, SLOW] * 5, every_s=QUIET_S / 3).count(True) == 1
    assert told(*[CALM, SLOW] * 5, every_s=QUIET_S).count(True) == 5
    assert told(SLOW, SLOW, CALM, SLOW, every_s=QUIET_S / 3) == [False] * 4
    assert told(CALM, DONE, CALM, DONE) == [False, True, False, True]


def test_how_a_run_is_when_a_viewer_comes_is_no_news_but_of_a_run_that_was_just_started_it_is():
    assert told(FAILED) == [False]
    assert told(FAILED, begun=True) == [True]
    assert told(snapshots.waiting(), begun=True) == [False]


def test_another_run_that_is_watched_is_as_it_is():
    worsening = Worsening(begun=True)
    calm, done = of_one_run(CALM, DONE)
    other = snapshots.replace(done, run=snapshots.replace(done.run, id="other"))
    assert [worsening.is_worth_notifying(shot, 0.0) for shot in (calm, other, calm, done)] == [
        False,
        False,
        False,
        True,
    ]


def test_sequences():
    failed = snapshots.replace(FAILED, verdict="rank 3 failed; exit 1")
    assert notification_sequence("bell", failed, {}) == "\x07"
    assert notification_sequence("off", failed, {}) == ""
    nine = "\x1b]9;ddpmon gpt2-124m: rank 3 failed; exit 1\x1b\\"
    seven = "\x1b]777;notify;ddpmon gpt2-124m;rank 3 failed, exit 1\x1b\\"
    assert notification_sequence("desktop", failed, {"TERM": "xterm-256color"}) == nine + seven
    assert notification_sequence("desktop", failed, {"TERM": "foot"}) == seven
    assert notification_sequence("desktop", failed, {"VTE_VERSION": "7600", "TERM": "xterm-256color"}) == seven
    assert notification_sequence("both", failed, {"TERM": "xterm-kitty"}) == "\x07" + nine
    within = notification_sequence("desktop", failed, {"TMUX": "/tmp/tmux-0/default,1,0", "TERM_PROGRAM": "tmux"})
    wrapped = [f"\x1bPtmux;{each.replace(chr(27), chr(27) * 2)}\x1b\\" for each in (nine, seven)]
    assert within == "".join(wrapped)


@given(st.text(), st.text(), st.sampled_from(NOTIFY), st.booleans())
def test_nothing_from_outside_reaches_the_terminal_as_a_command(name, verdict, way, tmux):
    shot = snapshots.replace(FAILED, verdict=verdict, run=snapshots.replace(FAILED.run, name=name))
    written = notification_sequence(way, shot, {"TMUX": "x"} if tmux else {})
    for ours in ("\x1bPtmux;", "\x1b\x1b]", "\x1b\x1b\\", "\x1b]", "\x1b\\"):
        written = written.replace(ours, "")
    assert written.lstrip("\x07").isprintable()
    assert len(written) < 3 * MAX_NOTIFICATION_CHARS


def test_the_dashboard_writes_it_between_frames_and_only_if_asked():
    def written(**options):
        source = FakeSource(of_one_run(CALM)[0])
        said = []

        def change(app, _):
            app._driver.write = lambda text: said.append(text) if "\x07" in text or "\x1b]" in text else None
            (source.current,) = of_one_run(SLOW)
            for _ in range(3):
                app.tick()

        drive(source, change, **options)
        return said

    assert written() == []
    assert written(notify="bell") == ["\x07"]
    (once,) = written(notify="desktop")
    assert "rank 13 (node01 gpu5) is slow" in once
