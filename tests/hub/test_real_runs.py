"""Real ranks on gloo, from their start to the report."""

import sqlite3
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.export import report
from ddpmon.recording.recording import recording_path
from tests.ranks import launcher

pytestmark = pytest.mark.e2e
SCRIPTS = Path(__file__).parents[1] / "probe" / "scripts"


def run(cli, script, *arguments, options=()):
    """Run a script on two ranks that train to their end; what was printed, and the report."""
    done = cli("exec", "--headless", *options, "--", *launcher(2, SCRIPTS / script, *arguments))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, report.build(runs.find(None))


def test_a_rank_with_slow_data_is_named_with_what_fixing_it_would_gain(cli):
    """And nothing else is told of a run whose training is sound. The buckets are shown because they were asked for."""
    slow = ("--slow", "data:1", "--seconds", "0.08", "--steps", "170")
    _, made = run(cli, "small_ddp.py", *slow, options=["--buckets"])
    told = [finding for finding in made["findings"] if finding["kind"] != "cpu_starved"]
    assert [finding["kind"] for finding in told] == ["straggler"], made["verdict"]
    (finding,) = told
    assert (finding["ranks"], finding["phase"]) == ([1], "data")
    assert finding["evidence"]["phase_excess_ms"] == pytest.approx(80, rel=0.25)
    assert finding["evidence"]["gain"] > 1.2
    slept = next(
        n
        for n, line in enumerate((SCRIPTS / "small_ddp.py").read_text().splitlines(), 1)
        if "time.sleep(self.late" in line
    )
    assert finding["evidence"]["line"] == f"small_ddp.py:{slept} __getitems__", "its stack was sampled"
    low, high = finding["evidence"]["line_interval_ms"]
    assert low < finding["evidence"]["line_ms"] < high
    assert f"small_ddp.py:{slept}" in finding["advice"]
    assert made["ranks"][1]["phases_ms"]["wait"] < made["ranks"][0]["phases_ms"]["wait"]
    assert made["steps"]["records_lost"] == 0
    db = sqlite3.connect(recording_path(runs.find(None).id))
    loaders = db.execute("SELECT DISTINCT loader_workers, loader_pinned FROM samples WHERE loader_workers IS NOT NULL")
    assert loaders.fetchall() == [(0, None)]
    for rank in made["ranks"]:
        assert sum(rank["phases_ms"].values()) == pytest.approx(made["steps"]["step_ms"]["mean"], rel=0.02)
        assert rank["exit"] == {"code": 0, "signal": None, "error": None}
    (bucket,) = made["all_reduce"]["buckets"]
    layers = [f"layers.{number}.{what}" for number in (0, 1, 3) for what in ("bias", "weight")]
    assert sorted(bucket["parameters"]) == layers
    assert bucket["payload_bytes"] == made["all_reduce"]["bytes_per_step"] == 4 * (33 * 64 + 2 * 64 + 65 * 10)
    assert 0 < bucket["transfer_ms"] <= bucket["end_ms"] - bucket["launch_ms"] + 0.002  # each is rounded to 1 µs
    assert made["all_reduce"]["bus_bandwidth_gb_s"] > 0
    assert made["ranks"][0]["learning_rate"] == 0.1
    assert made["ranks"][0]["cpu_starved_share"] is None or 0 <= made["ranks"][0]["cpu_starved_share"] <= 1


def test_a_rank_with_fewer_inputs_is_told_by_the_last_steps_it_had_with_the_others(cli):
    """It counts the steps of the others under Join, and no mean is of those."""
    printed, made = run(cli, "uneven.py")
    assert made["steps"]["count"] == 140
    assert [rank["steps"] for rank in made["ranks"]] == [140, 140]
    assert made["steps"]["window"] == [2, 100]
    assert made["ranks"][1]["own_ms"] > 0
    assert made["time"]["pauses"]["out of data"]["count"] == 1
    assert "means over 2 to 100" in printed
    assert ", out of data " in printed, "an event may come too late in so short a run; the report tells it"
    assert "rank 1 pauses" not in printed
    assert not [finding for finding in made["findings"] if finding["kind"] in {"hang", "uneven_batches"}]


def test_an_evaluation_on_the_first_rank_is_told_as_one_and_is_in_no_mean(cli):
    printed, made = run(cli, "evaluating.py", "4", options=["--every", "1"])
    assert "evaluation on rank 0 for" in printed
    assert "stalled" not in printed
    assert "timeout" not in printed, "the wait ends long before"
    evaluation = made["time"]["pauses"]["evaluation"]
    assert evaluation["count"] == 1
    assert evaluation["seconds"] == pytest.approx(4, abs=1)
    assert made["time"]["pauses"]["checkpoint"]["count"] == 1
    assert made["steps"]["count"] == 160
    assert made["steps"]["step_ms"]["max"] < 2000
    assert all(rank["phases_ms"]["wait"] < 10 for rank in made["ranks"])
    assert "before forward" in made["ranks"][0]["named_ms"]
    assert "time: training" in printed
