"""Test what slows all ranks down alike, and losses that are far apart; and silence when nothing is wrong."""

import numpy as np
import pytest

from ddpmon.analysis.findings import Evidence, all_findings
from ddpmon.analysis.kinds.communication import shorter_all_reduce
from ddpmon.analysis.kinds.kind import StepCost
from ddpmon.analysis.processes.conditions import Conditions
from tests.findings import causes
from tests.worlds import own_times, records, world_of


def world(own, *, gc_us=None, **kwargs):
    told = records(own, **kwargs)
    if gc_us is not None:
        for rank, steps in told.items():
            for i, step in enumerate(steps):
                step.gc_us = int(gc_us[i, rank])
    return world_of(told)


def only(found):
    (finding,) = found
    assert len(finding.text) <= 76
    assert finding.advice
    return finding


def test_a_world_that_is_well_has_no_cause():
    for seed in range(3):
        loss = 2 + np.random.default_rng(seed).normal(0, 0.2, (200, 4))
        assert causes(world(own_times(200, 4, noise=0.1, seed=seed), loss=loss)) == []


def test_a_loader_that_does_not_keep_up_is_named_with_the_workers_that_would():
    own = own_times(100, 4, noise=0.02)
    own[..., 0] += 40
    finding = only(causes(world(own)))
    assert (finding.kind, finding.phase, finding.ranks) == ("data_bound", "data", [0, 1, 2, 3])
    assert finding.cost_ms == pytest.approx(42, abs=1)
    assert "num_workers=2" in finding.advice


@pytest.mark.parametrize(("ranks", "slow"), [(2, [1]), (4, [1]), (4, [1, 3])])
def test_ranks_with_slow_data_do_not_make_the_world_data_bound(ranks, slow):
    own = own_times(100, ranks, noise=0.02)
    own[:, slow, 0] += 80
    assert causes(world(own)) == []


def test_what_the_network_carries_stands_beside_a_long_transfer():
    conditions = [Conditions(rank, means={"sent": 1e9 + rank, "received": 2e9}) for rank in range(4)]
    finding = only(all_findings(world(own_times(100, 4), transfer=30), Evidence(conditions=conditions)))
    assert finding.kind == "communication_bound"
    assert (finding.evidence["sent_bytes_per_s"], finding.evidence["received_bytes_per_s"]) == (1e9 + 1.5, 2e9)


@pytest.mark.parametrize(
    ("gpus", "gloo", "advised"), [("abcd", True, True), ("abca", True, False), ("abcd", False, False)]
)
def test_nccl_is_advised_where_gloo_transfers_between_gpus_that_no_ranks_share(gpus, gloo, advised):
    evidence = Evidence(gpus=dict(enumerate(gpus)), gloo_on_gpus=gloo)
    finding = only(all_findings(world(own_times(100, 4), transfer=30), evidence))
    assert ("use the backend nccl" in finding.advice) == advised


def test_waiting_for_a_late_rank_is_no_communication():
    own = own_times(100, 4, noise=0.02)
    own[:, 1, 2] += 60
    assert causes(world(own)) == []


def test_a_finding_stays_until_clearly_less_than_its_threshold_is_left():
    heavy = causes(world(own_times(100, 4), transfer=30))
    lighter = world(own_times(100, 4), transfer=11)  # 29%
    assert causes(lighter) == []
    assert [f.since_step for f in causes(lighter, heavy)] == [heavy[0].since_step]
    assert causes(world(own_times(100, 4), transfer=6), heavy) == []


def test_pauses_of_the_garbage_collector_cost_the_longest_of_each_step():
    gc = np.zeros((100, 4))
    gc[np.arange(100), np.arange(100) % 4] = 4000
    finding = only(causes(world(own_times(100, 4), gc_us=gc)))
    assert finding.kind == "gc_pauses"
    assert finding.cost_ms == pytest.approx(4)
    assert "3.0 ms" in finding.advice  # of 4 ms in each step each rank needs 1 itself


def test_one_occurrence_holds_nobody_back_as_a_habit():
    """One collection, one slow fetch, one slow transfer in a hundred steps, each as long as many steps."""
    own, gc = own_times(100, 4, noise=0.02), np.zeros((100, 4))
    gc[3] = 1_000_000
    own[3, :, 4] += 1000
    assert causes(world(own, gc_us=gc)) == []
    own = own_times(100, 4, noise=0.02)
    own[3, :, 0] += 3000
    assert causes(world(own)) == []
    assert causes(world(own_times(100, 4), transfer=[6.0] * 50 + [3000.0] + [6.0] * 49)) == []
    gc[60] = 1_000_000
    assert [finding.kind for finding in causes(world(own_times(100, 4), gc_us=gc))] == ["gc_pauses"]


def test_garbage_collection_that_has_stopped_is_no_finding_any_more():
    gc = np.zeros((200, 4))
    gc[:100:10] = 30_000
    assert [finding.kind for finding in causes(world(own_times(120, 4), gc_us=gc[:120]))] == ["gc_pauses"]
    before = causes(world(own_times(100, 4), gc_us=gc[:100]))
    assert causes(world(own_times(200, 4), gc_us=gc), before) == []
    gc += 4000
    assert len(causes(world(own_times(200, 4), gc_us=gc), before)) == 1, "what goes on besides matters by itself"


def test_a_rank_whose_loss_is_far_from_the_others_is_named():
    loss = 2 + np.random.default_rng(0).normal(0, 0.2, (200, 4))
    loss[:, 3] += 4
    finding = only(causes(world(own_times(200, 4), loss=loss)))
    assert (finding.kind, finding.ranks, finding.cost_ms) == ("loss_diverged", [3], None)


def test_losses_that_are_noisy_are_not_far_apart():
    for seed in range(3):
        loss = np.abs(np.random.default_rng(seed).normal(0.1, 0.3, (200, 4)))
        assert causes(world(own_times(200, 4), loss=loss)) == []


def test_gradients_of_one_bucket_are_told_what_smaller_ones_would_hide():
    finding = only(causes(world(own_times(100, 4, noise=0.02), transfer=30)))
    assert "bucket_cap_mb=0.25" in finding.advice  # of 1 MiB
    assert "--buckets" in finding.advice
    with_buckets = only(causes(world(own_times(100, 4, noise=0.02), transfer=30), bus_bandwidth_gb_s=lambda: 1.25))
    assert "1.2 GB/s" in with_buckets.advice
    assert with_buckets.evidence["bus_bandwidth_gb_s"] == 1.25


def test_a_few_bytes_are_told_as_such_and_no_size_of_buckets_is_advised():
    told = shorter_all_reduce(StepCost(60.0, 30.0, 0.5, 2.0, since=1), 36.0, 15.0, None)
    assert told["size"] == "36 bytes"
    assert told["overlap"].startswith("36 bytes is so little data")
    assert "bucket_cap_mb" not in told["overlap"]


def test_small_steps_that_are_mostly_overhead_are_a_hint_and_no_more():
    own = own_times(100, 4, noise=0.05) * 0.07
    own[..., 3:] += 0.8
    finding = only(causes(world(own, transfer=1.2)))
    assert (finding.kind, finding.severity, finding.cost_ms) == ("overhead_bound", "info", None)
    assert "64 samples" in finding.advice


def test_small_steps_that_compute_and_long_ones_with_a_long_optimizer_are_well():
    assert causes(world(own_times(100, 4, noise=0.05) * 0.1, transfer=0.3)) == []
    own = own_times(100, 4, noise=0.05)
    own[..., 3] += 30
    assert causes(world(own)) == []
