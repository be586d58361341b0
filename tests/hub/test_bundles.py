"""Test what a node keeps for the root."""

import msgspec
import pytest

from ddpmon.hub.bundles import BUNDLE_BYTES, BUNDLE_ITEMS, IN_FLIGHT, Bundles, merge_batches
from ddpmon.messages import Batch, Bye, Layout, Sample, Scalar, Step, Sync, Welcome, decode_from_rank, encode
from ddpmon.messages.nodes import Packed, RankFrame
from ddpmon.recording.node_blocks import decode_block, pack_batches
from ddpmon.recording.recording import Recording
from tests.two_hosts import PIDS, Root


def item(number, size=100):
    return RankFrame(1 + number, bytes(size))


def sent(bundles):
    """Send all that waits."""
    out = []
    while bundle := bundles.next_bundle(0):
        bundles.mark_sent()
        out.append(bundle)
    return out


def test_a_heartbeat_is_empty_and_a_bundle_is_bounded():
    bundles = Bundles()
    bundles.make_bundles()
    assert sent(bundles) == []
    bundles.make_bundles(even_empty=True)
    assert [bundle.items for bundle in sent(bundles)] == [[]]
    for number in range(BUNDLE_ITEMS + 1):
        bundles.add(item(number, 1))
    bundles.make_bundles()
    assert [len(bundle.items) for bundle in sent(bundles)] == [BUNDLE_ITEMS, 1]


def test_of_too_much_the_oldest_goes_is_counted_and_the_rest_says_where_it_begins():
    bundles = Bundles(kept_bytes=1000)
    for number in range(15):
        bundles.add(item(number))
        bundles.make_bundles()
        if number == 3:
            sent(bundles)
    assert bundles.dropped == 5
    bundles.send_again()
    left = sent(bundles)
    assert [bundle.seq for bundle in left] == list(range(6, 16))
    assert {bundle.first for bundle in left} == {6}
    assert left[-1].dropped == 5


def batch(rank, seq, steps=2):
    """Return a batch of the common kind, except for a step that does not fit into a row."""
    told = [Step(seq * 10 + step, 10**6, 100, 1, 2, 3, 4, 5, [Sync(0, 15, 100)], 0.5) for step in range(steps)]
    told[-1].named_us = {"augment": 3} if seq == 2 else {}
    return Batch(rank, 100 + rank, seq, 10**6, 4, seq * 10 + steps, 0, steps=told)


def test_what_ranks_sent_is_one_block_and_what_came_between_keeps_its_place():
    bundles = Bundles()
    came = [item(0), batch(0, 1), batch(1, 1), item(1), batch(0, 2)]
    for each in came:
        bundles.add(each)
    bundles.make_bundles()
    (bundle,) = sent(bundles)
    assert [type(each) for each in bundle.items] == [RankFrame, Packed, RankFrame, Packed]
    blocks = [decode_block(packed.frame) for packed in bundle.items[1::2]]
    assert [[block.whole_batch(place) for place in range(len(block.batches))] for block in blocks] == [
        came[1:3],
        came[4:],
    ]


def test_only_so_much_is_on_its_way_as_the_root_reads():
    bundles = Bundles()
    for _ in range(IN_FLIGHT + 10):
        bundles.add(batch(0, 1))
        bundles.make_bundles()
    assert len(sent(bundles)) == IN_FLIGHT
    bundles.mark_recorded(4)
    assert [bundle.seq for bundle in sent(bundles)] == list(range(IN_FLIGHT + 1, IN_FLIGHT + 5))


def test_a_bundle_is_bounded_whatever_its_batches_hold():
    bundles = Bundles()
    for seq in range(1, 40):
        large = batch(0, seq)
        large.scalars = [Scalar(1, f"{seq} {number} " + "x" * 200, 0.5) for number in range(500)]
        bundles.add(large)
    bundles.make_bundles()
    for bundle in sent(bundles):
        block = decode_block(bundle.items[0].frame)
        assert len(encode(block.batches)) < 2 * BUNDLE_BYTES


def told(rank, seq, **changes):
    """A batch of two steps and a sample, as a rank sends them one after the other."""
    end_us = 2 * seq * 10**6
    sync = [Sync(0, 15, 100)]
    facts = dict(
        rank=rank, pid=4_000_000 + rank, seq=seq, now_us=end_us + 10**6, stage=4, step=2 * seq, dropped=0,
        steps=[Step(2 * seq - 1 + at, end_us + at * 10**6, 100, 1, 2, 3, 4, 5, sync, 0.5) for at in (0, 1)],
        samples=[Sample(end_us, 90.0, 1 << 30)], scalars=[Scalar(2 * seq, "lr", 0.1)],
    )  # fmt: skip
    return Batch(**facts | changes)


def test_batches_of_a_rank_that_go_on_one_from_the_other_become_one():
    (one, other) = merge_batches([told(0, 1), told(1, 1), told(0, 2), told(1, 2), told(0, 3)])
    assert [(each.rank, each.first_seq, each.seq) for each in (other, one)] == [(1, 1, 2), (0, 1, 3)] or (
        [(each.rank, each.first_seq, each.seq) for each in (one, other)] == [(0, 1, 3), (1, 1, 2)]
    )
    of_first = one if one.rank == 0 else other
    assert [step.step for step in of_first.steps] == [1, 2, 3, 4, 5, 6]
    assert len(of_first.samples) == len(of_first.scalars) == 3
    assert merge_batches([of_first, told(0, 4)])[0].merged == 3


@pytest.mark.parametrize(
    "later",
    [told(0, 3), told(0, 2, dropped=1), told(0, 2, layouts=[Layout(1, 0, 0, 8, ["w"])]), told(1, 2, pid=4_000_000)],
    ids=["a hole", "some were dropped", "a layout", "another rank"],
)
def test_batches_that_do_not_go_on_stay_apart(later):
    assert merge_batches([told(0, 1), later]) == [told(0, 1), later]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_for_a_root_of_very_many_two_samples_are_one_that_keeps_means_and_what_is_worst_at_its_largest(count):
    samples = [
        Sample(1, 90.0, 3 << 30, gpu_temperature_c=81.0, read_bytes_per_s=100.0, threads=9, loader_pinned=True),
        Sample(2, 70.0, 1 << 30, gpu_temperature_c=60.0, read_bytes_per_s=300.0, threads=8, gpu_throttled="heat"),
        Sample(3, 10.0, 2 << 30),
    ]
    of_two = Sample(
        2, 80.0, 3 << 30, gpu_temperature_c=81.0, read_bytes_per_s=200.0, threads=9, loader_pinned=True,
        gpu_throttled="heat",
    )  # fmt: skip
    came = [told(0, seq, samples=[sample]) for seq, sample in enumerate(samples[:count], 1)]
    (one,) = merge_batches(came, sparse=True)
    expected = {1: samples[:1], 2: [of_two], 3: [of_two, samples[2]]}[count]
    assert one.samples == expected
    assert decode_from_rank(encode(one)) == one
    assert [len(step) for step in (one.steps, one.scalars)] == [2 * count, count], "of nothing else there is less"
    bundles = Bundles()
    for batch in came:
        bundles.add(batch)
    bundles.make_bundles(sparse=True)
    assert decode_block(sent(bundles)[0].items[0].frame).batches[0].samples == expected


def test_all_goodbyes_of_a_node_are_recorded_together_and_a_hole_before_one_is_asked_for(home):
    root = Root(ranks=3, here=1, ahead_us=0)
    answers, writes, hurried = [], [], []
    root.collector._answer = lambda identity, message: answers.append((identity, message))
    root.collector.record_all = lambda: writes.append(None)
    root.recorder.write_soon = lambda: hurried.append(None)
    for rank in range(3):
        root.join(rank)
        root._take(rank, told(rank, 1, pid=PIDS + rank), 9.0)
    answers.clear()
    for rank, seq in enumerate((1, 1, 2)):
        root._take(rank, Bye(rank, PIDS + rank, seq), 9.5)
    assert len(writes) == 1, "of the rank that waits for this very hub"
    assert len(hurried) == 2, "the others' hub waits too"
    asked = [identity for identity, message in answers if isinstance(message, Welcome) and not message.has_hello]
    assert asked == [b"2"]
    assert [process.left for process in root.store.registry.process_of_rank.values()] == [True] * 3


@pytest.mark.parametrize("alone", [False, True], ids=["in a block", "alone"])
def test_what_is_merged_is_taken_as_if_it_had_come_one_by_one(home, alone):
    made = []

    def taken(batches):
        made.append(Root(ranks=2, here=0, ahead_us=0, id=f"20260909-12000{len(made)}-7f3b"))
        root = made[-1]
        for rank in (0, 1):
            root.join(rank)
        for batch in batches:
            if alone:
                root._take(batch.rank, batch, 9.0)
            else:
                root.collector.take_block(
                    decode_block(pack_batches([batch])), 1, lambda pid: b"%d" % (pid - 4_000_000), 9.0, 9.0, 0
                )
        root.collector.pass_on_steps(9.0)
        of = [
            (p.seq, p.steps, p.records, p.lost_records, p.last_step, p.learning_rate, list(p.samples))
            for p in root.store.registry.processes.values()
        ]
        root.turn(save=True)
        with Recording(root.end()) as recording:
            ids = [process.id for process in recording.processes()]
            return of, [(recording.steps.whole_steps(each, 1, 99), recording.samples(each, 0, 1 << 62)) for each in ids]

    came = [told(rank, seq) for seq in range(1, 6) for rank in (0, 1)]
    as_it_came = taken(came)
    for part in as_it_came[0]:
        assert part[:3] == (5, 10, 10)
    repeated = msgspec.structs.replace(merge_batches(came[:4])[0])
    assert repr(taken([*merge_batches(came[:4]), repeated, *merge_batches(came[4:])])) == repr(as_it_came)
