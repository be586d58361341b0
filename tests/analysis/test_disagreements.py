"""Ranks in different collectives, told apart by lines, loops and branches; from stacks made of real source."""

import msgspec
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.disagreements import BUFFERS, GRADIENTS, disagreement
from ddpmon.analysis.processes.hangs import Standstill
from ddpmon.messages import Collective, Stack
from ddpmon.probe import source_scopes

SOURCE = """
for epoch in range(3):
    for batch in loader:
        if busy:
            continue
        out = model(batch)
        if finite:
            out.backward()
        else:
            out.backward()
        if rank == 0:
            dist.all_reduce(seen)
    if rank == 0:
        validate(model)
    dist.barrier()
dist.gather(results)
"""
FORWARD, BACKWARD, COUNT, VALIDATE, BARRIER, GATHER = 6, 8, 12, 14, 15, 16


@pytest.fixture
def at(tmp_path, monkeypatch):
    """The stack of a rank that waits in a collective at a line of SOURCE."""
    script = tmp_path / "train.py"
    script.write_text(SOURCE)
    monkeypatch.setattr(source_scopes, "_STARTED", script.stat().st_mtime + 1)
    source_scopes._scopes.cache_clear()

    def stack(line, name, *, sequence=100, operation="", inputs="", outputs=""):
        collective = Collective(name, "0", sequence, operation or name, inputs, outputs)
        frames = ["torch/distributed/distributed_c10d.py:9 call", f"train.py:{line} <module>"]
        around = source_scopes.enclosing_line(str(script), line, 1)
        return Stack(0, 1, 20_000_000, 50, 5_000_000, 2, frames, 1, collective, True, {"0": 100}, scopes=around)

    return stack


def told(*stacks):
    standstill = Standstill(12.0, dict(enumerate(stacks)), world_size=len(stacks))
    (finding,) = all_findings(None, Evidence(standstill=standstill))
    return finding


def test_ranks_that_left_the_loop_are_named_with_their_line_and_that_of_the_others(at):
    """They have issued as many collectives as those that train on."""
    trains, waits = at(BACKWARD, GRADIENTS), at(BARRIER, "barrier")
    finding = told(trains, trains, waits, waits)
    assert (finding.severity, finding.ranks, finding.evidence["waiting"]) == ("critical", [2, 3], [0, 1])
    assert finding.text == "ranks 2-3 left the loop: barrier in train.py:15 <module>"
    assert "Ranks 0-1 wait in DDP's gradient all-reduce, train.py:8 <module>, in the loop of line 3." in finding.advice
    assert finding.evidence["disagreement"] == {
        "how": "left the loop",
        "odd": {"ranks": [2, 3], "waits_in": "barrier", "line": "train.py:15 <module>"},
        "rest": {"ranks": [0, 1], "waits_in": GRADIENTS, "line": "train.py:8 <module>"},
        "scope_line": 3,
    }
    assert told(trains, waits, waits, waits).ranks == [1, 2, 3], "also if most left it"


def test_a_rank_that_takes_a_branch_alone_is_named_and_what_it_calls(at):
    for others in (at(BARRIER, "barrier"), at(BACKWARD, GRADIENTS)):
        finding = told(at(VALIDATE, BUFFERS), others, others)
        assert (finding.ranks, finding.text) == ([0], "rank 0 calls DDP's forward alone: train.py:14 <module>")
        assert "outside of the `if` of line 13" in finding.advice
        assert "model.module" in finding.advice
    assert told(at(VALIDATE, BUFFERS), at(BARRIER, "barrier")).ranks == [0], "of two ranks too"
    finding = told(at(COUNT, "all_reduce"), at(BACKWARD, GRADIENTS), at(BACKWARD, GRADIENTS))
    assert (finding.ranks, finding.text) == ([0], "rank 0 calls all_reduce alone: train.py:12 <module>")
    assert finding.advice.endswith(
        "outside of the `if` of line 11. Either all ranks or no rank must call this collective."
    )


@pytest.mark.parametrize("others", [1, 2])
def test_a_rank_that_skipped_a_backward_is_named(at, others):
    trains = [at(BACKWARD, GRADIENTS)] * others
    finding = told(*trains, at(FORWARD, BUFFERS))
    assert finding.ranks == [others]
    assert finding.text == f"rank {others} called DDP's forward again without a backward: train.py:6 <module>"
    finding = told(*trains, at(12, "broadcast"))
    assert finding.ranks == [others]


def test_one_call_with_other_tensors_names_both_sizes(at):
    eight, five = ("(8, 1) Float", "(4, 8, 1) Float"), ("(5, 1) Float", "(4, 5, 1) Float")
    calls = [at(BARRIER, "all_gather", inputs=one, outputs=all_of) for one, all_of in (eight, eight, eight, five)]
    finding = told(*calls)
    lead = "rank 3 calls all_gather with (5, 1) Float, ranks 0-2 with (8, 1) Float:"
    assert (finding.ranks, finding.text) == ([3], f"{lead} train.py:15 <module>")
    uneven = [at(BARRIER, "all_gather", inputs=one, outputs=eight[1]) for one, _ in (eight, five)]
    assert told(*uneven).text.startswith("all ranks wait in all_gather and none is missing"), "NCCL gathers these"
    scattered = [at(BARRIER, "scatter", inputs=one, outputs=one) for one in ("", "(8, 1) Float")]
    assert told(*scattered).ranks == [], "only the root has inputs"


def test_other_calls_that_nothing_tells_apart_are_named_with_both_lines(at):
    finding = told(at(GATHER, "gather"), at(FORWARD, "all_reduce"), at(FORWARD, "all_reduce"))
    assert finding.text.startswith("rank 0 left the loop")
    first, second = at(1, "reduce"), at(FORWARD, "all_reduce")
    finding = told(first, second, second)
    assert finding.text.startswith("rank 0 waits in reduce, ranks 1-2 in all_reduce: train.py:1 <module>, train.py:6")
    assert "same order" in finding.advice


def test_ranks_that_hold_each_other_up_are_named_though_another_one_is_further(at):
    """Rank 1 receives a broadcast of rank 0 and trains on, while rank 0 waits for rank 2 to receive it."""
    finding = told(at(GATHER, "broadcast"), at(BACKWARD, GRADIENTS, sequence=101), at(COUNT, "all_reduce"))
    assert finding.ranks == [0]
    assert finding.text == "rank 0 left the loop: broadcast in train.py:16 <module>"
    assert finding.advice.startswith("Rank 2 waits in all_reduce, train.py:12 <module>")
    finding = told(at(VALIDATE, "broadcast"), at(BACKWARD, GRADIENTS, sequence=101), at(BARRIER, "all_reduce"))
    assert finding.text == "rank 0 calls broadcast without rank 2: train.py:14 <module>", "rank 1 has called it"


def test_a_rank_whose_peers_wait_in_an_earlier_collective_is_no_reason(at):
    """It was the root of that broadcast and went on: the network, or a third rank, holds the others up."""
    ahead, behind = at(BACKWARD, GRADIENTS, sequence=101), at(FORWARD, BUFFERS, sequence=100)
    assert disagreement({0: ahead, 1: behind}) is None
    assert disagreement({0: ahead, 1: ahead}) is None
    assert disagreement({0: ahead}) is None


def test_on_a_gpu_a_rank_that_waits_outside_of_its_open_collective_is_told_from_the_others(at):
    """Its thread reads the loss, and waits there for its GPU."""
    trains = at(BACKWARD, "all_reduce")
    trains.blocked = False
    assert disagreement({0: trains, 1: at(BARRIER, "barrier")}) is None, "it may be working"
    trains.collective = msgspec.structs.replace(trains.collective, is_open=True)
    assert told(trains, at(BARRIER, "barrier")).text.startswith("rank 1 left the loop: barrier")


def test_calls_that_torch_records_alike_and_messages_do_not_exclude_each_other(at):
    """Objects are gathered with the same operation, and who receives waits for who sends."""
    assert (
        disagreement({0: at(BARRIER, "all_gather_object", operation="all_gather"), 1: at(GATHER, "all_gather")}) is None
    )
    assert disagreement({0: at(BARRIER, "recv"), 1: at(GATHER, "send"), 2: at(GATHER, "barrier")}) is None


def test_source_that_was_changed_or_cannot_be_read_tells_no_scopes(tmp_path, monkeypatch):
    script = tmp_path / "later.py"
    script.write_text(SOURCE)
    monkeypatch.setattr(source_scopes, "_STARTED", script.stat().st_mtime - 1)
    assert source_scopes.enclosing_line(str(script), BACKWARD, 0) == []
    assert source_scopes.enclosing_line(str(tmp_path / "none.py"), 1, 0) == []
    (tmp_path / "broken.py").write_text("for x in:")
    assert source_scopes.enclosing_line(str(tmp_path / "broken.py"), 1, 0) == []
