"""Test the sentences and the advice about runs that train with something else than DDP."""

import dataclasses

import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.parallelism import measured_sentence, short_name, with_ddp
from ddpmon.messages import OWN_PHASES
from tests.findings import causes, judged, of_kinds
from tests.worlds import own_times, world_with

KINDS = ("FSDP", "FSDP2", "FSDP2 (hybrid)", "FSDP2 + tensor parallel", "DeepSpeed", "tensor parallel", "none")


def collectives(transfer=30.0):
    """A world whose ranks wait for each other in collectives, where DDP synchronises nothing."""
    made = world_with(own_times(100, 4, noise=0.02), transfer=transfer)
    nothing = made.exposed_ms * 0
    return dataclasses.replace(
        made, exposed_ms=nothing, exposed_wait_ms=nothing, gradient_bytes=made.gradient_bytes * 0
    )


def test_of_ddp_there_is_nothing_to_say():
    assert measured_sentence("DDP", []) == measured_sentence("", []) == ""
    assert short_name("DDP") == short_name("") == ""


@pytest.mark.parametrize("kind", [*KINDS, "DataParallel", "one process"])
def test_every_other_kind_says_how_its_steps_end(kind):
    assert "a step ends at the optimizer step" in measured_sentence(kind, [])
    assert short_name(kind)
    assert not with_ddp(kind)


def test_what_is_not_measured_is_said():
    assert "ddpmon does not measure forward and counts it as other" in measured_sentence("tensor parallel", ["forward"])
    assert measured_sentence("one process", ["forward", "wait", "transfer"]).endswith("no rank waits for another")
    assert "only with DDP" in measured_sentence("FSDP2", ["wait", "transfer"])
    assert "ddpmon does not measure forward" in measured_sentence("DDP", ["forward"]), "its forward was not called"
    assert measured_sentence("DDP + tensor parallel", []).endswith("DTensor's collectives")


def test_collectives_that_hold_all_ranks_back_are_found_and_ddps_advice_is_not_given():
    (finding,) = causes(collectives())
    assert (finding.kind, "SyncBatchNorm" in finding.advice) == ("communication_bound", True), "beside DDP's"
    assert "DDP's part is 0.0 ms" in finding.text
    for kind in KINDS:
        (finding,) = causes(collectives(), parallelism=kind)
        assert finding.kind == "communication_bound"
        for word in ("all-reduce", "bucket", "comm_hook", "compress_hook", "no_sync", "DDP"):
            assert word not in finding.text + finding.advice
    assert "reshard_after_forward" in causes(collectives(), parallelism="FSDP2 (hybrid)")[0].advice
    assert "ShardingStrategy" in causes(collectives(), parallelism="FSDP")[0].advice


def test_collectives_that_take_little_are_no_finding_and_one_that_is_known_stays_a_while():
    (known,) = causes(collectives(), parallelism="FSDP2")
    assert causes(collectives(transfer=6), parallelism="FSDP2") == []
    assert [f.since_step for f in causes(collectives(transfer=12), [known], parallelism="FSDP2")] == [known.since_step]


def test_steps_are_not_called_overhead_where_forward_is_not_measured():
    own = own_times(100, 4, noise=0.05) * 0.05
    own[..., OWN_PHASES.index("optimizer") :] += 0.5
    (finding,) = causes(world_with(own, transfer=0.8), parallelism="FSDP2")
    assert finding.kind == "overhead_bound"
    assert "all-reduce" not in finding.advice
    own[..., OWN_PHASES.index("other")] += own[..., OWN_PHASES.index("forward")]
    own[..., OWN_PHASES.index("forward")] = 0
    assert causes(world_with(own, transfer=0.8), parallelism="none", unmeasured=["forward"]) == []


def test_a_rank_late_in_other_may_be_late_in_forward_where_that_is_not_measured():
    own = own_times(100, 4, noise=0.02)
    own[:, 2, OWN_PHASES.index("other")] += 12
    made = world_with(own)
    for unmeasured, told in (((), False), (("forward",), True)):
        evidence = Evidence(world_size=4, parallelism="none", unmeasured=unmeasured)
        late = next(f for f in judged(made, evidence) if f.kind == "straggler")
        assert (late.ranks, late.phase) == ([2], "other")
        assert late.advice.startswith("ddpmon does not measure forward here") is told


def test_a_slow_link_is_told_of_collectives():
    made = collectives(transfer=10.0)
    made.transfer_ms[:, 1] += 20
    texts = {kind: of_kinds("slow_link", world=made, parallelism=kind)[0] for kind in ("", "FSDP2")}
    assert "all-reduce" in texts[""].text
    assert "all-reduce" not in texts["FSDP2"].text + texts["FSDP2"].advice
