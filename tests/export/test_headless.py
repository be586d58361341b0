"""Test which lines a headless run prints, and when."""

from __future__ import annotations

from msgspec.structs import replace

from ddpmon.export.headless import FAILURE_S, Lines, state_line
from ddpmon.messages import Event, RunView, Snapshot, VerdictFacts
from tests.findings import finding

RUN = RunView(id="20260101-000000-aaaa", name="mnist", world_size=4)


def snapshot(**changes) -> Snapshot:
    return Snapshot(**{"epoch": "e", "version": 1, "at": 0.0, "run": RUN, "state": "running", "verdict": "", **changes})


def test_a_state_line_tells_progress_loss_speed_and_losses():
    line = state_line(
        snapshot(
            step=1240,
            total_steps=5000,
            training_epoch=2,
            training_epochs=3,
            eta_s=192.4,
            loss=0.41234,
            step_ms_p50=41.26,
            samples_per_s=1552.4,
            wait_share=0.123,
            records_lost=1234,
        )
    )
    assert line.split("  ")[1:] == [
        "running",
        "step 1,240/5,000",
        "epoch 2/3",
        "ETA 3m12s",
        "loss 0.4123",
        "41.26 ms/step",
        "1,552 samples/s",
        "wait 12%",
        "1,234 records lost",
    ]


def test_the_state_is_repeated_only_after_the_interval_or_a_change():
    lines = Lines(every_s=5.0)
    assert len(lines.of(snapshot(), 0.0)) == 1
    assert lines.of(snapshot(at=4.0), 4.9) == []
    assert len(lines.of(snapshot(at=4.0), 5.0)) == 1
    assert len(lines.of(snapshot(state="slow"), 5.1)) == 1


def test_what_was_printed_already_is_not_printed_again():
    lines = Lines(every_s=1.0)
    assert len(lines.of(snapshot(step=7), 0.0)) == 1
    assert lines.of(snapshot(step=7), 1.0) == []  # the hub is busy: this is the snapshot of before
    assert len(lines.of(snapshot(state="done", step=7), 2.0)) == 1
    assert lines.of(snapshot(state="done", step=7, at=3.0), 9.0) == []


def test_an_event_that_is_heard_late_does_not_turn_time_back():
    lines = Lines(every_s=100.0)
    lines.of(snapshot(at=60.0), 0.0)
    events = [Event(58.0, "info", "late"), Event(61.0, "info", "soon")]
    late, soon = lines.of(snapshot(at=62.0, events=events), 2.0)
    assert (late.split()[0][-2:], soon.split()[0][-2:]) == ("00", "01")
    (after_the_clock_was_set_back,) = lines.of(snapshot(at=5.0, events=[Event(4.0, "info", "x")]), 3.0)
    assert after_the_clock_was_set_back.split()[0][-2:] == "05"


def test_a_state_line_without_progress_does_not_end_in_blanks():
    assert state_line(snapshot(state="failed")).endswith("  failed")


def test_the_loss_of_several_models_is_called_their_sum():
    several = ["loss", "log:loss", "log:loss D", "log:loss G"]
    assert "loss 0.5 (sum of 2 models)" in state_line(snapshot(loss=0.5, quantities=several))


def test_an_old_state_is_not_told_as_the_state_of_now():
    lines = Lines(every_s=5.0)
    lines.of(snapshot(step=7), 0.0)
    (told,) = lines.of(snapshot(step=7), 5.0, silent_s=4.4)
    assert "stale" in told
    assert "4 s" in told
    assert "step" not in told
    assert lines.of(snapshot(step=7), 6.0, silent_s=5.4) == []


def test_a_verdict_is_told_when_it_changes():
    lines = Lines(every_s=100.0)
    lines.of(snapshot(), 0.0)
    late, alike = VerdictFacts(["straggler", "3"]), VerdictFacts(["even"])
    (told,) = lines.of(snapshot(verdict="rank 3 is late", severity="warn", verdict_facts=late), 1.0)
    assert told.endswith("! rank 3 is late")
    assert lines.of(snapshot(verdict="rank 3 is late", verdict_facts=late), 2.0) == []
    assert len(lines.of(snapshot(verdict="all ranks alike", verdict_facts=alike), 3.0)) == 1


def test_what_is_not_measured_is_told_once_when_it_is_known():
    lines = Lines(every_s=100.0)
    lines.of(snapshot(), 0.0)
    (told,) = lines.of(snapshot(measured="one process, no DDP"), 1.0)
    assert told.endswith("· one process, no DDP")
    assert lines.of(snapshot(measured="one process, no DDP"), 2.0) == []


def test_an_event_is_told_once_and_before_the_state_it_led_to():
    lines = Lines(every_s=100.0)
    lost = Event(at=1.0, severity="critical", text="rank 1 failed")
    told = lines.of(snapshot(events=[lost], state="failed", verdict="rank 1 failed"), 0.0)
    assert [line.split("  ", 1)[1].strip() for line in told] == ["!! rank 1 failed", "failed"]
    assert lines.of(snapshot(events=[lost], state="failed"), 1.0) == []


def test_what_a_script_wrote_cannot_steer_the_terminal():
    event = Event(at=0.0, severity="info", text="\x1b]0;title\x07\x1b[2Jhidden\rline\n2")
    (told, _) = Lines(1.0).of(snapshot(events=[event]), 0.0)
    assert told.endswith("· hidden?line?2")


def test_figures_that_waver_do_not_make_another_verdict():
    """The report at the end has the last ones; another rank is another verdict at once."""

    def slow(rank, figures):
        return snapshot(verdict=f"rank {rank} is slow: {figures}", verdict_facts=VerdictFacts(["straggler", str(rank)]))

    lines = Lines(every_s=5.0)
    lines.of(slow(3, "+20.1 ms data; 1.45x faster if fixed"), 0.0)
    assert lines.of(slow(3, "+19 ms data; 1.5x faster if fixed"), 1.0) == []
    (state,) = lines.of(replace(slow(3, "+18 ms data; 1.5x faster if fixed"), at=5.0), 5.0)
    assert "+18 ms" not in state
    assert len(lines.of(slow(2, "+18 ms data; 1.5x faster if fixed"), 6.0)) == 1


def test_of_a_hub_that_tells_no_topic_verdicts_are_told_with_the_state():
    lines = Lines(every_s=5.0)
    assert "rank 3" in lines.of(snapshot(verdict="rank 3 is slow"), 0.0)[-1]
    assert lines.of(snapshot(verdict="rank 2 is slow"), 1.0) == []
    assert "rank 2" in lines.of(snapshot(verdict="rank 2 is slow"), 5.0)[-1]


SEEN_FIRST, FROM_LOGS = "rank 0 failed: it exited unexpectedly", "rank 1 failed first: exit 3"


def failing(at):
    """A failure as the hub sees it before the launcher has told."""
    event = Event(at=at, severity="critical", text=SEEN_FIRST)
    found = [finding("rank_failed", "critical", SEEN_FIRST, [0])]
    return snapshot(at=at, events=[event], findings=found, verdict=SEEN_FIRST, severity="critical")


def test_a_failure_is_told_once_as_the_logs_have_it_in_the_end():
    lines = Lines(every_s=100.0)
    lines.of(snapshot(), 0.0)
    assert lines.of(failing(1.0), 1.0) == []
    final = Event(at=3.0, severity="critical", text=FROM_LOGS)
    ended = replace(failing(1.0), at=3.0, state="failed", verdict=FROM_LOGS, findings=[])
    told = lines.of(replace(ended, events=[*ended.events, final]), 3.0)
    assert [line.split("  ", 1)[1].strip() for line in told] == [f"!! {FROM_LOGS}", "failed"]


def test_a_failure_is_told_as_it_was_seen_where_the_run_does_not_end():
    lines = Lines(every_s=100.0)
    lines.of(snapshot(), 0.0)
    assert lines.of(failing(1.0), 1.0) == []
    (told,) = lines.of(failing(1.0), 1.0 + FAILURE_S)
    assert told.endswith(f"!! {SEEN_FIRST}")
