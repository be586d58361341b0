"""States and the sentence about them."""

import pytest

from ddpmon import numbers
from ddpmon.analysis import verdict
from ddpmon.analysis.processes.starts import ENVIRONMENT, FLAGS, LATE, Unarmed
from ddpmon.analysis.processes.waiting import Waiting
from ddpmon.analysis.run_state import Signs, derive_state
from ddpmon.analysis.steps.summary import summarise
from ddpmon.analysis.words import duration, named_ranks, rank_list
from ddpmon.messages import Finding, PausingView
from tests.worlds import own_times, world_with


def said(told):
    return told.text, told.severity


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        (Signs("running"), "waiting"),
        (Signs("running", steps=1), "running"),
        (Signs("running", steps=1, slow=True), "slow"),
        (Signs("running", steps=9, idle_s=10.1), "stalled"),
        (Signs("running", steps=9, idle_s=30, step_s=5), "running"),
        (Signs("running", steps=9, idle_s=41, step_s=5), "stalled"),
        (Signs("running", steps=9, idle_s=60, all_left=True), "running"),
        (Signs("running", steps=9, idle_s=60, replays=True), "running"),
        (Signs("done", steps=9, idle_s=99), "done"),
        (Signs("failed"), "failed"),
        (Signs("stopped", slow=True), "stopped"),
        (Signs("lost", steps=3), "lost"),
        (Signs("unknown", steps=3, idle_s=99), "unknown"),
    ],
)
def test_the_state_follows_from_the_signs(signs, expected):
    assert derive_state(signs) == expected


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Waiting(4), ["hub is up", "torchrun"]),
        (Waiting(4, launcher=True), ["torchrun is starting", "waiting for 4 ranks"]),
        (Waiting(1, launcher=True), ["torchrun is starting", "waiting for 1 rank"]),
        (Waiting(0), ["the command is about to start"]),
        (Waiting(0, launcher=True), ["the command is running; no rank has connected yet"]),
        (Waiting(4, True, {}, frozenset(range(4))), ["0/4 ranks connected", "no rank has connected yet"]),
        (
            Waiting(4, True, {0: 1, 1: 2}, frozenset(range(3))),
            ["2/4", "rank 2 has not connected yet", "rank 3 has not started"],
        ),
        (
            Waiting(4, True, {0: 1, 1: 2}, frozenset(range(3))),
            ["rank 0 has not called init_process_group", "rank 1 is building the model"],
        ),
        (Waiting(2, True, {0: 3, 1: 3}, frozenset({0, 1})), ["2/2", "both ranks are in the first step"]),
        (
            Waiting(2, True, {0: 2, 1: 2}, line="a.py:5 load", line_s=40.0),
            ["both ranks are building the model; for 40 s in a.py:5 load"],
        ),
    ],
)
def test_while_waiting_it_says_for_what(facts, words):
    sentence, severity = said(verdict.waiting_sentence(facts))
    for word in words:
        assert word in sentence
    assert severity == "info"


def unarmed(why=FLAGS, seconds=30.0, ranks=(0, 1), **more):
    return tuple(Unarmed(100 + at, rank, why, seconds, **more) for at, rank in enumerate(ranks))


def test_ranks_that_run_torch_without_the_probe_are_told_with_what_to_do():
    facts = Waiting(2, True, {}, frozenset({0, 1}), unarmed())
    sentence, severity = said(verdict.waiting_sentence(facts))
    assert sentence == (
        "both ranks run torch without the probe: put import ddpmon; ddpmon.init() into the script (with "
        "python -E, -I or -S, the probe cannot start)"
    )
    assert severity == "warn"


def test_what_the_other_ranks_wait_for_is_told_too():
    facts = Waiting(4, True, {0: 1}, frozenset({0, 1, 2}), unarmed(ENVIRONMENT, ranks=(2,)))
    sentence = verdict.waiting_sentence(facts).text
    assert sentence.startswith("rank 2 runs torch without the probe: pass PYTHONPATH and DDPMON_* on to the ranks (")
    assert sentence.endswith(
        "); 1/4 ranks connected; rank 3 has not started; rank 1 has not connected yet; "
        "rank 0 has not called init_process_group yet"
    )


def test_processes_without_a_rank_are_told_by_their_pids():
    sentence = verdict.waiting_sentence(Waiting(0, True, unarmed=unarmed(ranks=(None, None)))).text
    assert sentence.startswith("2 processes run torch without the probe: ")
    assert sentence.endswith("; pid 100 101)")


@pytest.mark.parametrize(
    "processes", [unarmed(seconds=9.0), unarmed(LATE, seconds=59.0), unarmed(gone=True), unarmed(LATE, gone=True)]
)
def test_a_rank_that_still_imports_torch_or_is_gone_is_no_reason_to_worry(processes):
    facts = Waiting(2, True, {}, frozenset({0, 1}), processes)
    assert said(verdict.waiting_sentence(facts)) == ("0/2 ranks connected; no rank has connected yet", "info")


def test_many_ranks_are_named_in_few_words():
    assert rank_list([3, 1, 2, 7], 64) == "1-3, 7"
    assert rank_list(range(64), 64) == "all"
    assert [named_ranks(ranks, 4) for ranks in ([2], [0, 3, 2], range(4))] == ["rank 2", "ranks 0, 2-3", "all 4 ranks"]
    assert named_ranks([0, 1], 2) == "both ranks"
    assert rank_list(range(0, 64, 2), 64) == "0, 2, 4, 6, 8, 10 … (32)"


@pytest.mark.parametrize(
    ("ms", "sentence"),
    [
        (1, "all ranks within 5% of the others"),  # 4% of 27 ms
        (20, "no rank is slow beyond chance yet; ranks differ by up to 74%"),
        (300, "no rank is slow beyond chance yet; ranks differ by up to a factor of 12"),
    ],
)
def test_a_run_without_a_finding_says_how_even_it_is(ms, sentence):
    own = own_times(100, 4)
    own[:, 1, 0] += ms
    assert said(verdict.running_sentence([], summarise(world_with(own)))) == (sentence, "info")


def test_the_gravest_finding_speaks():
    minor = Finding("telemetry_lost", "info", "a few lost")
    slow = Finding("straggler", "warn", "rank 1 is slow")
    bad = Finding("loss_not_finite", "critical", "loss is nan")
    assert said(verdict.running_sentence([minor, slow, bad], None)) == ("loss is nan", "critical")
    assert said(verdict.running_sentence([minor, slow], None)) == ("rank 1 is slow", "warn")
    assert verdict.running_sentence([minor], None).severity == "info"


def test_a_stall_names_the_rank_that_is_behind_or_where_each_is():
    behind = verdict.stalled_sentence(34, {0: 12, 1: 11, 2: 12}, {0: "backward", 1: "data", 2: "backward"}, 3).text
    assert behind == "no rank finished a step for 34 s; rank 1 at step 11, the others at 12"
    even = verdict.stalled_sentence(34, {0: 12, 1: 12, 2: 12}, {0: "backward", 1: "data", 2: "backward"}, 3).text
    assert even.endswith("; 1 in data; 0, 2 in backward")


@pytest.mark.parametrize(("state", "how"), [("done", "done in 3.0 s"), ("stopped", "stopped on request in 3.0 s")])
def test_a_run_that_nobody_watched_says_so_at_its_end(state, how):
    waited = Waiting(2, unarmed=unarmed(seconds=0.0, gone=True))
    sentence, severity = said(verdict.ended_sentence(state, [], 0, 3.0, None, waited))
    assert sentence.startswith(
        f"{how}, no step recorded: both ranks ran torch without the probe: put import ddpmon; ddpmon.init()"
    )
    assert severity == "warn"


def test_a_run_whose_ranks_were_heard_was_watched():
    waited = Waiting(2, stages={0: 2}, unarmed=unarmed(ranks=(1,), gone=True))
    assert verdict.ended_sentence("done", [], 0, 3.0, None, waited).text == "done in 3.0 s: no training step recorded"
    late = Waiting(2, unarmed=unarmed(LATE, gone=True))
    assert verdict.ended_sentence("done", [], 0, 3.0, None, late).text == "done in 3.0 s: no training step recorded"


def test_a_run_that_ended_well_keeps_what_held_it_back():
    slow = Finding("straggler", "warn", "rank 1 is slow")
    assert verdict.beside_state("done: …", "done", [slow], 1200) == "rank 1 is slow"
    assert verdict.beside_state("done: 1,200 steps in 3m12s", "done", [], 1200) == "1,200 steps in 3m12s"
    assert verdict.beside_state("no step was seen", "done", [], 0) == "no step was seen"
    assert verdict.beside_state("it failed", "failed", [slow], 1200) == "it failed"
    for state, how in (
        ("done", "done: 1,200 steps in 3m12s"),
        ("stopped", "stopped on request after 1,200 steps in 3m12s"),
        ("detached", "detached: 1,200 steps in 3m12s; the job continues without ddpmon"),
    ):
        assert said(verdict.ended_sentence(state, [slow], 1200, 192, None)) == (f"{how}; rank 1 is slow", "warn")
        assert said(verdict.ended_sentence(state, [], 1200, 192, None)) == (how, "info")
        assert verdict.beside_state(f"{how}; rank 1 is slow", state, [slow], 1200) == "rank 1 is slow"


def test_a_run_that_ended_well_keeps_what_cost_it_most_for_a_while():
    short, long = (
        Finding("straggler", "info", text, since_step=1, until_step=until, cost_ms=30.0, cost_s=until * 0.03)
        for text, until in (("rank 1 was slow", 10), ("rank 2 was slow", 400))
    )
    done = verdict.ended_sentence("done", [short, long, short], 1200, 192, None)
    assert said(done) == ("done: 1,200 steps in 3m12s; rank 2 was slow", "info")
    slow = Finding("straggler", "warn", "rank 3 is slow")
    assert verdict.ended_sentence("done", [long, slow], 1200, 192, None).text.endswith("rank 3 is slow")


def test_training_that_is_wrong_comes_before_what_costs_time():
    wrong = Finding("same_data", "warn", "both ranks train on the same samples")
    costly = Finding("communication_bound", "warn", "all-reduce transfers", cost_ms=20.0, cost_s=9.0)
    worse = Finding("replicas_differ", "critical", "weights differ")
    for listed, leads in (([wrong, costly], wrong), ([costly, wrong], costly), ([wrong, costly, worse], worse)):
        assert verdict.ended_sentence("done", listed, 1200, 192, None).findings == (leads,)


@pytest.mark.parametrize(
    ("text", "brief", "sentence"),
    [
        ("loss rose from 1 to 5 at step 100, on all ranks at once", "", "all ranks keep up; loss rose from 1 to 5"),
        (
            "rank 1 was slow" + " and slow" * 9,
            "rank 1 was slow until step 9",
            "all ranks keep up; rank 1 was slow until",
        ),
        ("rank 1 was slow" + " and slow" * 9, "", "all ranks keep up"),
    ],
)
def test_what_is_over_is_told_in_as_many_words_as_fit(text, brief, sentence):
    over = Finding("loss_spiked", "info", text, [], since_step=100, until_step=120, brief=brief)
    summary = summarise(world_with(own_times(40, 4)))
    told, severity = said(verdict.running_sentence([over], summary))
    assert told.startswith(sentence)
    assert len(told) <= 76
    assert severity == "info"
    assert not told.endswith("; ")


def test_not_all_ranks_keep_up_beside_one_that_is_slow_by_little():
    over = Finding("straggler", "info", "rank 1 was slow", [1], since_step=10, until_step=39)
    slow = Finding("straggler", "info", "rank 2 is slow", [2], since_step=1, evidence={"excess_ms": 0.2})
    summary = summarise(world_with(own_times(40, 4)))
    assert "keep up" in verdict.running_sentence([over], summary).text
    assert "keep up" not in verdict.running_sentence([over, slow], summary).text


def test_figures_do_not_make_another_topic_and_other_ranks_do():
    first, later = Waiting(4, True, {0: 1}), Waiting(4, True, {0: 1, 1: 1})
    assert verdict.waiting_sentence(first).topic == verdict.waiting_sentence(later).topic
    assert verdict.waiting_sentence(first).topic != verdict.waiting_sentence(Waiting(4, True, {0: 2})).topic
    stands = [verdict.stalled_sentence(s, {0: 12, 1: at, 2: 12}, {}, 3).topic for s, at in ((34, 11), (35, 11))]
    assert stands[0] == stands[1] != verdict.stalled_sentence(35, {0: 11, 1: 12, 2: 12}, {}, 3).topic


def test_what_stands_out_of_a_verdict_is_who_or_what_it_is_about():
    slow = Finding("straggler", "warn", "rank 1 is slow: +3 ms data", lead=15)
    ended = verdict.ended_sentence(
        "failed", [], 9, 3.0, ("rank 2 failed first:", "rank 2 failed first: ValueError: a: b")
    )
    pauses = verdict.pausing_sentence(PausingView("evaluation", [0, 1], 3.0), 2, verdict.running_sentence([slow], None))
    told = {
        "rank 1 is slow:": verdict.running_sentence([slow], None),
        "both ranks run torch without the probe:": verdict.waiting_sentence(
            Waiting(2, True, {}, frozenset({0, 1}), unarmed())
        ),
        "the recording cannot be written:": verdict.unwritable("disk full: /tmp"),
        "rank 2 failed first:": ended,
        "evaluation for 3.0 s; rank 1 is slow:": pauses,
        "done in 3.0 s:": verdict.ended_sentence("done", [], 0, 3.0, None),
    }
    for lead, made in told.items():
        assert made.text[: made.lead] == lead
    assert pauses.findings == (slow,)


def test_a_finding_is_told_only_where_all_of_its_words_are():
    over = Finding(
        "loss_spiked", "info", "rank 1 was slow" + " and slow" * 9, [], until_step=9, brief="rank 1 was slow"
    )
    summary = summarise(world_with(own_times(40, 4)))
    assert verdict.running_sentence([over], summary).findings == ()
    short = Finding("loss_spiked", "info", "rank 1 was slow", [], until_step=9)
    assert verdict.running_sentence([short], summary).findings == (short,)
    assert (
        verdict.ended_sentence("done", [Finding("hang", "warn", "it hung")], 9, 3.0, None).findings[0].text == "it hung"
    )


@pytest.mark.parametrize(
    ("seconds", "said"), [(8.24, "8.2 s"), (59.7, "59 s"), (77.9, "1m17s"), (3599.9, "59m59s"), (7500, "2h05m")]
)
def test_a_time_is_cut_as_a_clock_cuts_it(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize("seconds", [60.0, 77.9, 3599.9, 7559.9])
def test_the_verdict_and_the_head_say_one_time_alike(seconds):
    assert duration(seconds) == numbers.duration(seconds)
