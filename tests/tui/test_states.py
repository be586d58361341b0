"""What the screens say in the states that no snapshot of a healthy run is in."""

import pytest

from ddpmon.messages import Exit, HeatView, RankView, RunView, Series
from ddpmon.tui.widgets.failure import trouble
from ddpmon.tui.widgets.ranktable import table_text
from tests.fake_source import FakeSource
from tests.findings import finding
from tests.tui import golden, snapshots
from tests.tui.driving import drive, seen
from tests.tui.snapshots import replace
from tests.tui.tape import replaying


def first_step_hangs():
    """Every rank has its model, and one does not come out of the data for the first step."""
    waiting = snapshots.waiting()
    there = list(waiting.ranks)
    there[3] = RankView(rank=3, host="node00", health="ok", device="cuda:3")
    ranks = [replace(rank, stage="model", stack=snapshots.stack(rank, late=rank.rank == 11)) for rank in there]
    return replace(
        snapshots.stalled(),
        run=waiting.run,
        at=waiting.at + 60,
        verdict_since=waiting.at,
        verdict="rank 11 does not reach DDP's gradient all-reduce: in data.py:41 __getitem__",
        ranks=ranks,
        step=0,
        total_steps=None,
        loss_series=Series(),
        own_series=Series(),
        events=waiting.events,
        findings=[
            finding(
                "hang",
                "critical",
                "rank 11 does not come",
                [11],
                advice="Look at what rank 11 does in data.py:41 __getitem__.",
            )
        ],
    )


def thousand_arriving():
    """1,024 ranks on their way, each stage of it."""
    stages = ("importing", "connected", "group", "group", "group", "model")
    ranks = [
        RankView(rank=rank)
        if rank // 8 in {17, 90}
        else RankView(rank=rank, host=f"node{rank // 8:03}", stage=stages[rank * 7 % 6], health="ok", device="cpu")
        for rank in range(1024)
    ]
    waiting = snapshots.waiting()
    return replace(waiting, run=replace(waiting.run, world_size=1024, nnodes=128), ranks=ranks, notes=[])


@pytest.mark.parametrize(("make", "cause"), [(snapshots.stalled, 5), (snapshots.failed, 3)])
def test_the_table_lists_the_rank_that_caused_a_hang_or_failure_first(make, cause):
    """The ranks that wait, or that failed because of it, have longer own times."""
    base = make()
    ended = Exit(signal="SIGTERM", error="RuntimeError: Connection closed by peer") if base.state == "failed" else None
    ranks = [
        replace(rank, own_ms=1.0, health="ok") if rank.rank == cause else replace(rank, exit=ended)
        for rank in base.ranks
    ]
    assert table_text(replace(base, ranks=ranks), 120)[1].split()[1] == str(cause)


@pytest.mark.parametrize("is_named", [True, False])
def test_the_table_marks_a_rank_with_excess_only_if_a_finding_names_it(is_named):
    base = snapshots.running(8, 8)
    ranks = [replace(rank, over_median=0.249 if rank.rank == 5 else 0.0) for rank in base.ranks]
    findings = [finding("straggler", "warn", "rank 5 is slow", [5])] if is_named else []
    lines = table_text(replace(base, ranks=ranks, findings=findings), 120)
    assert [line.split()[1] for line in lines if line.startswith("▲")] == ["5"] * is_named


@pytest.mark.parametrize(("make", "size"), [(first_step_hangs, golden.NARROW), (thousand_arriving, golden.WIDE)])
def test_arriving(make, size):
    golden.check(make.__name__.replace("_", "-"), drive(make(), size=size)[1], size)


def test_a_hub_that_does_not_answer_is_told_and_what_to_do():
    rows = drive(FakeSource(silent=14.0))[1].splitlines()
    assert rows[1] == " no answer from the hub for 14s; still trying"
    assert rows[2] == " ddpmon ls shows the run's state, ddpmon logs its output"


def test_before_a_recording_is_read_nobody_talks_of_a_hub():
    _, text = drive(replaying(None))
    assert "reading the recording" in text
    assert "hub" not in text


def test_what_may_still_run_elsewhere_is_not_said_to_have_ended():
    _, text = drive(FakeSource(snapshots.unknown(), stoppable=False), "x")
    assert "stop it where it started" in text.splitlines()[-1]


@pytest.mark.parametrize("keys", [(), ("3",), ("7",), ("enter",)])
def test_stale_says_since_when_and_what_that_means_on_every_screen(keys):
    def is_muted(app, _):
        shown = app.view.panes[1]
        assert shown._palette is app.palette.all_muted

    source = FakeSource(snapshots.slow(), silent=14.0)
    _, text = drive(source, *keys, is_muted, size=(120, 30))
    head = text.splitlines()
    assert "◌ STALE 14s" in head[0]
    assert head[1].strip() == "no answer from the hub since 01:28:40: values are from then; training continues"


def test_a_silent_hub_of_a_run_that_was_told_to_stop_is_not_said_to_train_on():
    source = FakeSource(snapshots.slow(), silent=14.0)
    _, text = drive(source, "x", "y")
    assert source.stops == [False]
    assert text.splitlines()[1].endswith(" values are from then; stop requested")


def test_a_run_that_is_done_shows_what_went_wrong_and_its_state_once():
    text = "rank 2 was slow from step 450 to 796: +30.1 ms data a step; it cost 10 s"
    slow = replace(finding("straggler", "warn", text, [2]), since_step=450, until_step=796, cost_s=10.3)
    verdict = f"done: 1,248 steps in 1m10s; {slow.text}"
    _, text = drive(replace(snapshots.done(), verdict=verdict, severity="warn", findings=[slow]), size=(80, 24))
    state, sentence = text.splitlines()[:2]
    assert "✔ DONE" in state
    assert sentence.strip() == slow.text


def test_stale_ends_when_the_hub_is_heard_again():
    source = FakeSource(snapshots.slow(), silent=14.0)

    def heard(app, _):
        source.silent = 0.2
        app.tick()

    _, text = drive(source, heard)
    assert "▲ SLOW" in text
    assert "STALE" not in text


def test_a_run_that_ends_while_the_screen_is_held_is_told():
    source = FakeSource(snapshots.slow())

    def end(app, _):
        source.current = snapshots.failed()
        app.tick()

    _, text = drive(source, "space", end)
    assert "FROZEN" in text.splitlines()[0]
    assert text.splitlines()[-1].strip() == "the run has ended; press space to see how"
    assert "FAILED" in drive(source, "space")[1]


def test_the_same_moment_with_other_parts_is_one_step_back():
    source = FakeSource(snapshots.slow())

    def pass_(app, _):
        for version in range(8, 12):
            source.current = replace(snapshots.slow(), version=version, step=version)
            app.tick()
            source.current = replace(source.current, notes=["what another screen requested"])
            app.tick()

    app, _ = drive(source, pass_, "[", "[")
    assert app.playback.shown.step == 9


@pytest.mark.parametrize("state", ["done", "failed", "stopped", "lost", "unknown"])
def test_a_run_that_has_ended_is_never_stale(state):
    _, text = drive(FakeSource(snapshots.STATES[state](), silent=1e6))
    assert "STALE" not in text


def test_read_only_is_seen_on_every_screen_and_takes_the_stop_away():
    source = FakeSource(snapshots.slow())
    shown, asked = [], []

    def forget(app, _):
        app.say("")

    steps = [step for key in "2345671" for step in (key, seen(shown), "x", seen(asked), forget)]
    drive(source, *steps, "enter", seen(shown), "x", seen(asked), readonly=True)
    assert len(shown) == len(asked) == 8
    for text in shown:
        last = text.splitlines()[-1]
        assert last.endswith("  read-only")
        assert " x stop" not in last
    assert {text.splitlines()[-1].strip() for text in asked} == {"read-only: cannot stop the run from here"}
    assert source.stops == []


def test_read_only_is_not_said_where_nothing_could_be_stopped_anyway():
    assert "read-only" not in drive(snapshots.done(), readonly=True)[1]
    assert "read-only" not in drive(replaying(snapshots.slow()), readonly=True)[1]
    assert "read-only" not in drive(snapshots.slow())[1]


def test_a_standstill_of_which_nothing_is_known_keeps_the_charts():
    stalled = snapshots.stalled()
    ranks = [replace(rank, stack=None, health="ok") for rank in stalled.ranks]
    _, text = drive(replace(stalled, ranks=ranks))
    assert "where every rank is" not in text
    assert "─loss," in text


@pytest.mark.parametrize(
    ("ranks", "head"),
    [
        ([3, 5, 6], "ranks 3, 5-6 failed in the same way; rank 3 on node00:"),
        (list(range(8)), "all 8 ranks failed in the same way; rank 0 on node00:"),
    ],
)
def test_ranks_that_failed_alike_are_told_beside_the_one_that_is_shown(ranks, head):
    shot = replace(snapshots.failed(), findings=[finding("rank_failed", "critical", "it failed", ranks)])
    (first, *_) = trouble(shot, 80, 20)
    assert "".join(text for text, _ in first).strip("─ ").startswith(head)


@pytest.mark.parametrize("key", "123456")
def test_where_no_rank_came_yet_no_filter_is_blamed(key):
    nobody = RunView(id="r", name="train", world_size=0, started_at=snapshots.STARTED)
    waiting = replace(
        snapshots.waiting(), run=nobody, ranks=[], verdict="", heat=HeatView("own", 1, 0, 0, 0, 0.0, 1.0, [], b"")
    )
    screen = drive(waiting, key, size=(80, 24))[1]
    assert "filter;" not in screen
    assert "no rank yet" in screen or "no step yet" in screen
    ended = drive(replace(waiting, state="failed", run=replace(nobody, ended_at=waiting.at, exit_code=2)), key)[1]
    assert "filter;" not in ended
    assert ("no rank connected" in ended) == ("no rank yet" in screen)
    if key in "1246":
        assert "no rank matches the filter" in drive(waiting, key, "slash", *"99", "enter", size=(80, 24))[1]
