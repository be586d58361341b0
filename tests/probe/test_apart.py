"""Weights that differ between ranks are a fault, or what local SGD means; nothing of either is changed by watching."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
import torch

from ddpmon.analysis.evidence import Evidence, Unsynchronised
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.parallelism import measured_sentence
from ddpmon.analysis.processes.replicas import Replicas
from ddpmon.messages import DDP, LOCAL_SGD, NOT_PARALLEL, PARALLEL_JOIN, Finding
from ddpmon.probe.comparisons import Apart
from ddpmon.probe.parallelism import Parallelism
from tests.probe.conftest import SCRIPTS, Ear, bare_and_watched, watched

SCRIPT = SCRIPTS / "apart.py"


def judged(ear: Ear) -> tuple[str, list[Finding]]:
    """Return how the ranks train, and what is found of their weights."""
    replicas = Replicas()
    for rank in (0, 1):
        assert len(ear.steps(rank)) == 11
        for batch in ear.batches(rank):
            replicas.add(rank, batch.digests)
    parallelism = ear.hellos()[-1].parallelism
    updates = [Unsynchronised(rank, ear.batches(rank)[-1].unsynchronised, 11, 11) for rank in (0, 1)]
    evidence = Evidence(
        world_size=2,
        difference=replicas.difference(),
        same=replicas.last_comparison(),
        unsynchronised=updates,
        parallelism=parallelism,
    )
    return parallelism, all_findings(None, evidence)


@pytest.mark.e2e
@pytest.mark.parametrize("mode", ["post_local_sgd", "accelerates_local_sgd"])
def test_ranks_that_average_their_weights_now_and_then_are_described_and_no_fault(
    ear: Ear, tmp_path: Path, mode: str
) -> None:
    assert bare_and_watched(ear, tmp_path, 2, SCRIPT, mode).same_weights()
    parallelism, found = judged(ear)
    assert parallelism == PARALLEL_JOIN.join([DDP, LOCAL_SGD])
    assert "average their weights only now and then" in measured_sentence(parallelism, [])
    assert found == []


@pytest.mark.e2e
def test_ranks_that_train_apart_without_meaning_to_are_told_so(ear: Ear, tmp_path: Path) -> None:
    assert bare_and_watched(ear, tmp_path, 2, SCRIPT, "independent").same_weights()
    parallelism, (finding,) = judged(ear)
    assert parallelism == NOT_PARALLEL
    assert (finding.kind, finding.severity, finding.ranks) == ("independent_copies", "critical", [0, 1])
    assert finding.text == "each rank trains a model of its own: no DDP, no gradient all-reduce"
    assert "DistributedDataParallel" in (finding.advice or "")


@pytest.mark.e2e
def test_ranks_that_reduce_gradients_by_hand_do_not_train_apart(ear: Ear) -> None:
    watched(ear, 2, SCRIPT, "reduced_by_hand")
    assert judged(ear) == (NOT_PARALLEL, [])


@pytest.mark.parametrize(
    ("exchanged_bytes", "is_compared"),
    [(0, True), (4, True), (4 * 16 * 4, False), (inf, False)],
    ids=["nothing", "a loss", "weights", "messages"],
)
def test_ranks_are_compared_where_they_exchange_less_than_the_model_has(
    exchanged_bytes: float, is_compared: bool
) -> None:
    apart, optimizer = Apart(Parallelism()), torch.optim.SGD([torch.nn.Parameter(torch.zeros(4, 16))])
    apart.exchanged(inf)  # initial weights
    taken = []
    for update in range(10):
        taken.append(apart.count_update(optimizer, [id(optimizer)], world_size=2))
        if update == 5:
            apart.exchanged(exchanged_bytes / 2)
            apart.exchanged(exchanged_bytes / 2)
    assert taken[:9] == [None] * 9
    assert (taken[9] is not None) == is_compared
