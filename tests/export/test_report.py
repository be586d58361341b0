"""The report: its schema, and how people read it."""

import dataclasses
import json
import math
import time

import pytest

from ddpmon.analysis.report import run_report as make_report
from ddpmon.export import report
from ddpmon.export.width import columns
from ddpmon.messages import STAGE_TRAINING, Hello
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from ddpmon.store.view import snapshot
from tests.worlds import own_times, records

RUN = Run(
    id="20261120-141502-7f3a", name="mnist", argv=[], script="mnist.py", script_args=[], cwd="/", host="n0",
    boot_id="", created_at=1000.0, world_size=4, ended_at=1060.0, exit_code=0,
)  # fmt: skip


def built(told, run=RUN):
    """The report of a run whose ranks told this."""
    registry = Registry(run.id, run.world_size, run.host)
    store = Store(run, registry, Clock(0, run.created_at))
    for rank, steps in told.items():
        hello = Hello(1, run.id, rank, rank, run.world_size, 0, "n0", 100 + rank, STAGE_TRAINING)
        process = RankProcess(rank + 1, 0, hello, stage=STAGE_TRAINING, steps=len(steps) + 1, left=True)
        registry.add_recorded([process])
        store.add_steps(process, process.count_new_steps(steps))
        process.records += 1  # the first step, which no window holds
    store.add_arrived(final=True)
    store.judge(1060.0, 1060.0)
    return make_report(snapshot(store, "e", 1, 1060.0, 1060.0), store.world, store.summary)


def slow_run(**kwargs):
    own = own_times(100, 4)
    own[:, 2, 0] += 20
    return built(records(own, samples=64, **kwargs))


def test_its_numbers_are_those_of_the_run():
    made = slow_run()
    assert made["steps"]["window"] == [2, 101]
    assert made["steps"]["step_ms"]["mean"] == pytest.approx(53)
    assert made["steps"]["samples_per_s"] == pytest.approx(4 * 64 / 0.053, rel=1e-3)
    assert [rank["own_ms"] for rank in made["ranks"]] == pytest.approx([27, 27, 47, 27])
    assert made["ranks"][2]["critical_share"] == 1.0
    assert made["all_reduce"]["transfer_ms"] == pytest.approx(6)
    assert made["all_reduce"]["wait_ms"] == pytest.approx(15)
    assert made["all_reduce"]["bytes_per_step"] == 1 << 20
    assert made["what_if"][0] == {"rank": 2, "phase": None, "gain": pytest.approx(53 / 33, abs=1e-3)}
    assert {"rank": 2, "phase": "data", "gain": pytest.approx(53 / 33, abs=1e-3)} in made["what_if"]
    assert [finding["kind"] for finding in made["findings"]] == ["straggler"]


def test_what_was_not_measured_is_null():
    made = slow_run()
    assert made["schema"] == 1
    rank = made["ranks"][0]
    assert rank["gpu"] is rank["cpu_percent"] is rank["rss_bytes"] is rank["loss"] is rank["cpu_starved_share"] is None
    assert made["all_reduce"]["bus_bandwidth_gb_s"] is None


def test_a_run_without_steps_has_a_report_too():
    made = built({})
    assert made["steps"]["window"] is None
    assert made["steps"]["step_ms"]["mean"] is None
    assert len(made["ranks"]) == 4
    assert "no training step recorded" in report.text(made)


def test_a_loss_that_is_no_number_is_a_finding_and_still_json():
    loss = [[1.0] * 4 for _ in range(100)]
    loss[-1][3] = math.nan
    made = slow_run(loss=loss)
    json.dumps(made, allow_nan=False)
    assert made["findings"][0]["kind"] == "loss_not_finite"
    assert made["findings"][0]["ranks"] == [3]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_text_fits_its_width(width):
    for made in (slow_run(), built({}), slow_run() | {"verdict": "x" * 30 + " word" * 40}):
        lines = report.text(made, width).splitlines()
        assert max(map(len, lines)) <= width


def test_people_read_verdict_why_and_next_first():
    lines = report.text(slow_run()).splitlines()
    assert lines[0] == "mnist (20261120-141502-7f3a): done, exit code 0, 4 ranks"
    assert lines[1].startswith("Verdict  done: 101 steps in 1m00s; rank 2 is slow: +20.0 ms data")
    words = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert words[1:3] == ["Verdict", "Next"]


def test_what_else_was_found_of_a_run_that_failed_is_not_why_it_did():
    made = slow_run()
    slow = made["findings"][0]
    failure = {**slow, "kind": "rank_failed", "text": "rank 1 failed", "advice": "Make batches smaller."}
    made |= {"findings": [failure, slow], "verdict_findings": [], "verdict": "rank 1 failed first: out of memory"}
    told = report.sentences(made | {"run": made["run"] | {"state": "failed"}})
    assert told[1:] == [("Next", "Make batches smaller."), ("Also", slow["text"]), ("Next", slow["advice"])]


def test_only_findings_about_the_same_ranks_and_phase_are_why():
    made = slow_run()
    slow = made["findings"][0]
    same = {**slow, "kind": "cpu_starved", "text": "rank 2 is starved", "phase": None}
    beside = {**slow, "kind": "communication_bound", "text": "all-reduce transfers", "ranks": [], "phase": None}
    hint, hang = {**same, "severity": "info"}, {**slow, "kind": "hang", "text": "rank 2 does not reach all_reduce"}
    for cause, other, label in (
        (slow, same, "Why"),
        (slow, beside, "Also"),
        (slow, hint, "Also"),
        (hang, same, "Also"),
    ):
        made |= {"findings": [cause, other], "verdict_findings": [0]}
        assert (label, other["text"]) in report.sentences(made)


def test_the_slowest_rank_is_first_in_the_table():
    lines = report.text(slow_run()).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith(" rank"))
    assert lines[head + 1].split()[:4] == ["2", "47.0", "+74.1%", "22.0"]


def test_of_very_many_ranks_the_worst_and_the_median_are_told():
    run = dataclasses.replace(RUN, world_size=48)
    own = own_times(30, 48)
    own[:, 40, 0] += 20
    lines = report.text(built(records(own), run)).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith(" rank"))
    assert lines[head + 1].split()[0] == "40"
    assert lines[-2].split()[:4] == ["med", "27.0", "+0.0%", "2.00"]
    assert lines[-1] == "and 32 more ranks; med is the median of all 48 ranks"
    assert len(lines) - head == 1 + 16 + 2


def test_advice_is_given_once_and_of_very_many_findings_the_first_are_told():
    made = slow_run()
    first = made["findings"][0]
    made["findings"] = [{**first, "text": f"rank {rank} is slow"} for rank in range(12)]
    lines = report.text(made).splitlines()
    assert sum(line.startswith("Next") for line in lines) == 1
    told = [line for line in lines if line.startswith("Why")]
    assert len(told) == 9
    assert told[-1] == "Why      and 3 more findings; ddpmon report --format json lists all of them"


def test_how_a_rank_ended_badly_is_beneath_it():
    made = slow_run()
    made["ranks"][1]["exit"] = {"code": 1, "signal": None, "error": "ValueError: no such class"}
    lines = report.text(made).splitlines()
    at = next(i for i, line in enumerate(lines) if "ValueError" in line)
    assert lines[at].strip() == "exit 1, ValueError: no such class"
    assert lines[at - 1].split()[0] == "1"


def test_an_error_is_told_whole_in_lines_that_end_where_the_page_does():
    made = slow_run()
    wide = "日本語" * 40
    made["ranks"][1]["exit"] = {"code": 1, "signal": None, "error": f"UnicodeError: \x1b[2J{wide}"}
    lines = report.text(made).splitlines()
    assert wide in "".join(line.strip() for line in lines)
    assert max(map(columns, lines)) in {79, 80}


def test_a_run_that_never_started_is_reported_from_what_is_known(home):
    from ddpmon import runs

    run = dataclasses.replace(RUN, ended_at=time.time(), exit_code=127, error="cannot start torchrun")
    runs.create(run)
    made = report.build(run)
    assert (made["run"]["state"], made["verdict"]) == ("failed", "cannot start torchrun")
