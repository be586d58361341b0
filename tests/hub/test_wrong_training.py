"""Real runs that train, but not one model: the report says so, and says nothing of a sound one."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parents[1] / "probe" / "scripts" / "drifting.py"


def run(cli, how, *options):
    done = cli("run", "--headless", "--nproc", "3", *options, str(SCRIPT), how, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(cli("report", "--format", "json").stdout)


def critical(made):
    return {finding["kind"]: finding for finding in made["findings"] if finding["severity"] == "critical"}


def test_a_rank_that_changes_its_weights_alone_is_named(cli):
    found = critical(run(cli, "alone"))
    assert set(found) == {"replicas_differ"}
    finding = found["replicas_differ"]
    assert (finding["ranks"], finding["since_step"], finding["evidence"]["same_at_step"]) == ([2], 100, 10)


def test_training_past_ddp_is_told(cli):
    found = critical(run(cli, "unsynchronised"))
    assert set(found) == {"gradients_not_synchronised"}
    finding = found["gradients_not_synchronised"]
    assert finding["ranks"] == [0, 1, 2]
    assert (finding["since_step"], finding["evidence"]["replicas_differ"]) == (1, [0, 1, 2])


def test_a_script_that_averages_gradients_by_itself_is_left_alone(cli):
    made = run(cli, "averaged")
    assert [f for f in made["findings"] if f["kind"] in {"gradients_not_synchronised", "replicas_differ"}] == []


def test_a_sound_run_has_none_and_tells_of_its_buckets_when_asked(cli):
    made = run(cli, "well", "--buckets")
    assert critical(made) == {}
    (bucket,) = made["all_reduce"]["buckets"]
    assert sorted(bucket["parameters"]) == ["bias", "weight"]
    assert bucket["payload_bytes"] == made["all_reduce"]["bytes_per_step"] == 4 * (64 * 64 + 64)
    assert 0 < bucket["transfer_ms"] <= bucket["end_ms"] - bucket["launch_ms"]
    assert made["all_reduce"]["bus_bandwidth_gb_s"] > 0
    assert made["ranks"][0]["learning_rate"] == 0.01
    assert made["ranks"][0]["cpu_starved_share"] is None or 0 <= made["ranks"][0]["cpu_starved_share"] <= 1
