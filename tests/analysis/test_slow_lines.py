"""Which line the stack samples of a slow rank and of a peer name, and when they name none."""

import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.slow_lines import line_of_ranks, line_words, slow_line, waits_for_workers
from ddpmon.messages import OWN_PHASES, SampledStack, StackSamples
from tests.worlds import own_times, records, world_of

LOOP = "train.py:40 main"
FETCH = "torch/utils/data/_utils/fetch.py:54 fetch"
DECODE = "PIL/Image.py:3431 open"


def stack(count, *frames, phase="data"):
    """A stack, innermost frame first; those whose file has no folder are the script's."""
    own = [index for index, frame in enumerate(frames) if "/" not in frame]
    return SampledStack(OWN_PHASES.index(phase), count, list(frames), own)


def samples(rank, *stacks, steps=50, step_ms=60.0, count=None, first=100):
    seen = sum(one.count for one in stacks)
    return StackSamples(
        rank,
        4711,
        first,
        first + steps - 1,
        steps,
        round(steps * step_ms * 1000),
        count or max(seen, 150),
        list(stacks),
    )


def test_the_innermost_line_of_the_script_is_named_with_the_library_that_it_called():
    mine = samples(1, stack(70, DECODE, "dataset.py:57 Pictures.__getitem__", FETCH, LOOP), stack(10, FETCH, LOOP))
    line = slow_line(mine, samples(0, stack(5, FETCH, LOOP)), "data", 30.0)
    assert (line.place, line.inside, line.brief) == (
        "dataset.py:57 Pictures.__getitem__", "PIL/Image.py open", "dataset.py:57"
    )  # fmt: skip
    assert line.ms == pytest.approx(28.0)  # 70 of 150 samples of 60 ms
    low, high = line.interval_ms
    assert low < 28.0 < high
    assert high - low == pytest.approx(2 * 1.96 * 0.4 * (72**0.5), rel=0.01)
    assert (line.share, line.peer_share, line.samples, line.peer) == (70 / 150, 0.0, 150, 0)


def test_several_lines_that_share_the_excess_are_named_as_a_range():
    mine = samples(1, *(stack(25, f"dataset.py:{n} decode", LOOP) for n in (8, 9, 11)))
    assert slow_line(mine, samples(0), "data", 30.0).place == "dataset.py:8-11 decode"


def test_what_the_peer_does_as_well_is_not_named():
    alike = stack(60, "dataset.py:57 load", LOOP)
    mine = samples(1, alike, stack(60, "dataset.py:80 augment", LOOP))
    assert slow_line(mine, samples(0, alike), "data", 24.0).place == "dataset.py:80 augment"
    assert slow_line(samples(1, alike), samples(0, alike), "data", 24.0) is None


@pytest.mark.parametrize(
    ("stacks", "why"),
    [
        ([stack(7, "dataset.py:57 load", LOOP)], "too few samples"),
        ([stack(70, "dataset.py:57 load", LOOP, phase="forward")], "in another phase"),
        ([stack(30, f"dataset.py:{n} part{n}", f"train{n}.py:4 f{n}") for n in range(4)], "in several places"),
        ([stack(70, DECODE, FETCH)], "in no line of the script"),
        (
            [stack(70, "queue.py/x:180 get", "torch/x.py:9 _MultiProcessingDataLoaderIter._try_get_data", LOOP)],
            "a wait for workers, which run elsewhere",
        ),
        ([], "no samples in the phase"),
    ],
)
def test_samples_that_do_not_tell_name_no_line(stacks, why):
    assert slow_line(samples(1, *stacks), samples(0), "data", 48.0 if why == "in several places" else 30.0) is None, why


def test_a_rank_that_waits_for_its_workers_is_known():
    waits = stack(70, "torch/x.py:9 _MultiProcessingDataLoaderIter._try_get_data", LOOP)
    assert waits_for_workers(samples(1, waits, stack(20, "dataset.py:57 load", LOOP)))
    assert not waits_for_workers(samples(1, stack(20, "dataset.py:57 load", LOOP)))


def test_samples_from_before_the_slowdown_and_of_two_slow_ranks_do_not_count():
    mine, peer = samples(1, stack(70, "dataset.py:57 load", LOOP)), samples(0)
    assert line_of_ranks([mine, peer], [1], "data", 100, 30.0).place == "dataset.py:57 load"
    assert line_of_ranks([mine, peer], [1], "data", 101, 30.0) is None
    assert line_of_ranks([mine, peer], [0, 1], "data", 100, 30.0) is None
    assert line_of_ranks([mine], [1], "data", 100, 30.0) is None


def test_workers_that_the_rank_waits_for_are_named_by_their_own_stacks():
    waits = stack(70, "torch/x.py:9 _MultiProcessingDataLoaderIter._try_get_data", LOOP)
    mine = samples(1, waits)
    mine.workers = [
        stack(40, DECODE, "dataset.py:57 load", FETCH),
        stack(10, "multiprocessing/queues.py:103 Queue.get"),
    ]
    line = slow_line(mine, samples(0), "data", 30.0)
    assert (line.place, line.inside, line.of_workers) == ("dataset.py:57 load", "PIL/Image.py open", True)
    assert line.ms == pytest.approx(24.0)  # of 50 samples that stand for the excess
    assert "the DataLoader workers of rank 1" in line_words(line, 30.0)
    mine.workers[1] = stack(60, "multiprocessing/queues.py:103 Queue.get")
    assert slow_line(mine, samples(0), "data", 30.0) is None, "they wait as well"


def test_where_all_ranks_wait_for_data_the_line_is_part_of_the_finding():
    own = own_times(100, 4, noise=0.02)
    own[..., 0] += 40
    sampled = samples(2, stack(100, "dataset.py:57 load", FETCH, LOOP), step_ms=60.0, first=2)
    (found,) = all_findings(world_of(records(own)), Evidence(stack_samples=[sampled]))
    assert found.kind == "data_bound"
    assert found.evidence["line"] == "dataset.py:57 load"
    assert "in dataset.py:57" in found.text
    assert found.advice.startswith("Look at dataset.py:57 load: ")
    assert "peer" not in str(found.evidence.get("peer_sample_share"))
