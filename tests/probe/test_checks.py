"""Real ranks that train wrongly are found out, each by its kind of finding; those that train well are left alone."""

from __future__ import annotations

import time

import pytest

from ddpmon.analysis.kinds import KINDS
from ddpmon.messages import FEW_WEIGHTS, WEIGHTS, Batch, Finding, Hello
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from tests.probe.conftest import SCRIPTS, Ear, watched

OF_MACHINES = {kind.name for kind in KINDS if kind.by_cost or kind.fewest_steps > 40} | {"cpu_starved", "pauses"}
"""Kinds of findings that a busy machine causes in any run."""


def found(ear: Ear, mode: str) -> dict[str, Finding]:
    """Train in some way on two ranks, and judge the run at its end."""
    watched(ear, 2, SCRIPTS / "checks.py", mode)
    run = Run("test", "checks", ["true"], "checks.py", [], "/", "here", "", time.time() - 50, 2, supervisor=None)
    store = Store(run, Registry("test", 2, "here"), Clock(0, run.created_at), live=True)
    now = time.monotonic()
    for message in ear.messages:
        if isinstance(message, Hello):
            message.host = "elsewhere"  # these processes have ended
            store.registry.register(message, b"%d" % message.rank, now)
        elif isinstance(message, Batch):
            process = store.registry.process_of_rank[message.rank]
            process.take_batch(message, now)
            store.add_steps(process, process.count_new_steps(message.steps), now)
            store.add_digests(process, message.digests)
    store.add_arrived(final=True)
    store.judge(now, time.time())
    return {finding.kind: finding for finding in store.findings}


@pytest.mark.e2e
def test_mistakes_that_all_ranks_make(ear: Ear) -> None:
    told = found(ear, "alike")
    digests = {one.step for batch in ear.batches(0) for one in batch.digests if one.of in {WEIGHTS, FEW_WEIGHTS}}
    assert sorted(digests) == [1, 10, 30, 73, 96, 100], "soon after the mode and the rate have changed"
    same = told["same_data"]
    assert (same.severity, same.since_step) == ("warn", 2)
    assert same.text == "both ranks train on the same samples: equal losses for 129 steps"
    eval_mode = told["trains_in_eval"]
    assert eval_mode.text == "both ranks train in evaluation mode since step 73"
    zero = told["learning_rate_zero"]
    assert (zero.severity, zero.text[:42]) == ("warn", "the learning rate has been 0 since step 96")
    skipped = told["updates_skipped"]
    assert skipped.text == "25 of the last 100 updates were skipped: gradients are infinite or NaN"
    differs = told["configuration_differs"]
    assert (differs.severity, differs.text) == ("info", "ranks differ in NCCL_ALGO: Tree on rank 0, Ring on rank 1")


@pytest.mark.e2e
def test_mistakes_that_make_replicas_differ(ear: Ear) -> None:
    told = found(ear, "apart")
    rates = told["learning_rates_differ"]
    assert (rates.severity, rates.since_step) == ("critical", 22)
    assert rates.text == "learning rates differ: 0.005 on rank 1, 0.01 on rank 0, since step 22"
    late = told["parameters_not_reduced"]
    assert late.text == "DDP does not reduce 0.weight, 0.bias, which are trained"
    assert (late.severity, late.since_step) == ("critical", 30)
    buffers = told["buffers_differ"]
    assert (buffers.severity, buffers.evidence["batch_norm"]) == ("info", True)
    assert "replicas_differ" not in told, "it follows from the rates"
    assert told["same_data"].text == "both ranks train on the same samples: inputs were equal all 4 times"


@pytest.mark.e2e
def test_ranks_without_a_process_group_train_copies(ear: Ear) -> None:
    copies = found(ear, "alone")["independent_copies"]
    assert copies.severity == "critical"
    assert copies.text == "2 processes, no collective in 129 steps: each trains its own model"


@pytest.mark.e2e
def test_healthy_training_that_looks_like_a_mistake_is_left_alone(ear: Ear) -> None:
    assert set(found(ear, "healthy")) <= OF_MACHINES
