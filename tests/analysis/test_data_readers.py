"""Why data comes late is said only as far as looks at the processes that load it carry it."""

import msgspec
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.processes.data_readers import loading_facts, loading_samples, loading_words
from ddpmon.messages import DataReader, StackSamples
from tests.findings import judged
from tests.worlds import own_times, world_with

RANK, OTHERS = 11, (101, 102, 103, 104)


def samples(*readers, rank=1, first_step=100, **more):
    return StackSamples(rank, RANK, first_step, first_step + 9, 10, 500_000, 30, [], readers=list(readers), **more)


def workers(*states, **values):
    """Workers that were looked at, found computing and found waiting for storage so often."""
    made = [
        DataReader(pid, looks=looks, running=running, blocked=blocked)
        for pid, (looks, running, blocked) in zip(OTHERS, states, strict=False)
    ]
    return [msgspec.structs.replace(one, **values) for one in made]


@pytest.mark.parametrize(
    ("sampled", "words"),
    [
        (
            samples(*workers((20, 1, 18), (20, 2, 16), read_bytes_per_s=6e6), mount="/data", file_system="nfs4"),
            (
                "The DataLoader workers of rank 1 wait for storage 85% of the time for which it waits for them: /data"
                " (nfs4, a network file system), read at 11.4 MiB/s."
            ),
        ),
        (
            samples(DataReader(RANK, looks=20, blocked=15), mount="/mnt", file_system="ext4"),
            "Rank 1 waits for storage 75% of the time for which it loads data: /mnt (ext4).",
        ),
        (samples(*workers((20, 18, 0))), "The DataLoader workers of rank 1 compute 90% of the time"),
        (
            samples(*workers((20, 18, 0), (20, 20, 0), starved_share=0.5)),
            "The DataLoader workers of rank 1 are starved of a core 50% of the time",
        ),
        (
            samples(DataReader(RANK, looks=20, running=1)),
            "Rank 1 neither computes nor waits for storage 95% of the time for which it loads data: a network, a lock",
        ),
        (samples(DataReader(RANK, looks=30, running=10, blocked=10)), ""),
        (samples(DataReader(RANK, looks=30, running=27, starved_share=0.1)), "Rank 1 computes 80% of the time"),
        (samples(DataReader(RANK, looks=20, running=12, starved_share=0.44)), ""),
    ],
)
def test_what_most_looks_show_is_said(sampled, words):
    said = loading_words(sampled)
    assert said.startswith(words)
    assert bool(said) is bool(words)


def test_one_worker_is_to_blame_where_the_others_are_idle():
    slow, *others = workers((30, 30, 0), (1, 1, 0), (1, 0, 0))
    idle = [msgspec.structs.replace(one, checks=6, idle=5) for one in others]
    said = loading_words(samples(slow, *idle))
    assert "Only worker 0 (process 101) is slow: 94% of the waits are for it" in said
    assert "the others have nothing to do 83% of the time" in said
    assert loading_facts(samples(slow, *idle))["slow_worker_pid"] == 101
    busy = [msgspec.structs.replace(one, checks=6, idle=1) for one in others]
    assert "Only worker" not in loading_words(samples(slow, *busy)), "batches of equal workers come together"
    assert "Only worker" not in loading_words(samples(slow, *others)), "nobody looked at the others"


def test_only_workers_have_a_share_of_their_own_without_a_core():
    """A rank that loads its data itself has one over all phases, which says nothing of the time in which it loads."""
    itself = loading_facts(samples(DataReader(RANK, looks=28, running=10)))
    assert (itself["loaders_computing_share"], itself["loaders_starved_share"]) == (pytest.approx(10 / 28), None)
    starved = loading_facts(samples(DataReader(RANK, looks=28, running=10, starved_share=0.48)))
    assert starved["loaders_computing_share"] is None, "waits for a core look as if it computed"
    by_workers = loading_facts(samples(*workers((28, 10, 0), starved_share=0.48)))
    assert by_workers["loaders_starved_share"] == pytest.approx(0.48)


def test_few_looks_and_those_before_the_slowdown_tell_nothing():
    told = samples(*workers((20, 20, 0)))
    assert loading_samples([told], [1], 100) is told
    assert loading_samples([told], [1], 101) is None
    assert loading_samples([told], [0], 100) is None
    assert loading_samples([samples(*workers((4, 4, 0), (3, 3, 0)))], [1], 100) is None


def test_findings_about_data_say_it_in_advice_and_report():
    own = own_times(100, 4, noise=0.02)
    own[..., 0] += 40
    nfs = samples(*workers((20, 1, 18)), first_step=100_000, mount="/data", file_system="nfs4")
    conditions = [Conditions(rank, "here", loader_workers=1, cores=32) for rank in range(4)]
    evidence = Evidence(world_size=4, conditions=conditions, stack_samples=[nfs])
    (finding,) = judged(world_with(own), evidence)
    assert finding.kind == "data_bound"
    assert "wait for storage 90%" in finding.advice
    assert "ddpmon did not measure" not in finding.advice
    assert finding.evidence["loaders_file_system"] == "nfs4"
    slow, idle = workers((30, 30, 0), (0, 0, 0))
    one_slow = samples(slow, msgspec.structs.replace(idle, checks=9, idle=9), first_step=100_000)
    evidence = Evidence(world_size=4, conditions=conditions, stack_samples=[one_slow])
    (finding,) = judged(world_with(own), evidence)
    assert "Only worker 0" in finding.advice
    assert "num_workers" not in finding.advice, "more of them would wait for that one too"
    own = own_times(120, 4, noise=0.02)
    own[:, 1, 0] += 8
    (finding,) = judged(world_with(own), Evidence(world_size=4, stack_samples=[nfs]))
    assert (finding.kind, finding.ranks) == ("straggler", [1])
    assert "/data (nfs4, a network file system)" in finding.advice
