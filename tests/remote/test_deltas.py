"""Snapshots as patches: what comes out is what went in, but for digits of ranks that no screen shows."""

import contextlib
import json
import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.messages import Gpu, Snapshot, WireError, decode_snapshot, encode
from ddpmon.remote import deltas
from ddpmon.remote.channel import Framer, Shot
from ddpmon.remote.deltas import Differ, Patcher
from tests.tui import kinds, measured, odd, snapshots


def _can_be(make) -> bool:
    """Whether a viewer would take it: some that tests paint are none of a hub's."""
    try:
        decode_snapshot(encode(make()))
    except WireError:
        return False
    return True


MADE = {**snapshots.STATES, **odd.MADE, **measured.MADE, **kinds.MADE}
MADE = {name: make for name, make in MADE.items() if _can_be(make)}
assert len(MADE) > 10


def passed(shots):
    differ, patcher = Differ(), Patcher()
    return [patcher.take(differ.patch(shot)) for shot in shots]


def same(one: Snapshot, other: Snapshot) -> bool:
    """Whether all but the ranks' values is the same; nan is nan."""
    first, second = msgspec.to_builtins(one), msgspec.to_builtins(other)
    for tree in (first, second):
        del tree["ranks"]
    return repr(first) == repr(second)


@pytest.mark.parametrize("name", sorted(MADE))
def test_every_kind_of_snapshot_comes_through(name):
    shot = MADE[name]()
    (came,) = passed([shot])
    assert same(shot, came)
    for rank, told in zip(shot.ranks, came.ranks, strict=True):
        assert (rank.rank, rank.host, rank.pid, rank.steps, rank.health, rank.exit, rank.stack, rank.environment) == (
            told.rank, told.host, told.pid, told.steps, told.health, told.exit, told.stack, told.environment,
        )  # fmt: skip
        for value, rounded in (
            (rank.own_ms, told.own_ms),
            (rank.loss, told.loss),
            (rank.over_median, told.over_median),
        ):
            assert (value is None) == (rounded is None)
            if value is not None and math.isfinite(value):
                assert math.isclose(value, rounded, rel_tol=1e-3, abs_tol=1e-3)
            elif value is not None:
                assert repr(value) == repr(rounded)


def test_any_snapshot_may_follow_any_other():
    shots = [make() for make in MADE.values()]
    for shot, came in zip(shots, passed(shots), strict=True):
        assert same(shot, came)


def test_what_did_not_change_is_not_sent_again():
    shot = snapshots.running()
    differ = Differ()
    first = differ.patch(shot)
    again = differ.patch(msgspec.structs.replace(shot, version=2, step=shot.step + 1))
    assert len(first) > 20_000
    assert json.loads(again)[1].keys() == {"version", "step"}


def test_a_whole_snapshot_comes_now_and_then(monkeypatch):
    monkeypatch.setattr(deltas, "WHOLE_AGAIN_BYTES", 150_000)
    differ, patcher = Differ(), Patcher()
    kinds_of = []
    for number in range(40):
        shot = snapshots.running(own_ms=200.0 + number)
        patch = differ.patch(msgspec.structs.replace(shot, version=number))
        kinds_of.append(patch[2])
        assert patcher.take(patch).version == number
    assert kinds_of[0] == "r"
    assert 2 <= kinds_of.count("r") < 20


def test_patches_without_a_whole_one_among_them_have_an_end(monkeypatch):
    monkeypatch.setattr(deltas, "WHOLE_AGAIN_BYTES", 10_000)
    patcher = Patcher()
    patcher.take(Differ().patch(snapshots.running()))
    filling = json.dumps(["d", {f"more{'x' * 5000}": ["r", 1]}, []])
    for _ in range(3):
        patcher.take(filling)
    with pytest.raises(WireError, match="without an end"):
        patcher.take(filling)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=3), each, max_size=4),
    max_leaves=20,
)


@given(TREES, TREES)
def test_a_patch_turns_any_tree_into_any_other(old, new):
    patch = json.loads(json.dumps(deltas._diff(old, new)))
    made = deltas._applied(old, patch)
    assert json.dumps(made, sort_keys=True) == json.dumps(new, sort_keys=True)  # which tells 1 from 1.0, and nan is nan


@given(st.lists(st.fixed_dictionaries({"a": TREES, "b": st.fixed_dictionaries({"c": TREES})}), max_size=4))
def test_columns_are_rows_again(rows):
    if "\0" not in repr(rows):
        again = deltas._rows(deltas._columns(rows))
        assert json.dumps(again, sort_keys=True) == json.dumps(rows, sort_keys=True)


@settings(max_examples=40)
@given(st.data())
def test_a_patch_that_was_changed_on_the_way_is_refused_or_makes_a_snapshot(data):
    differ, patcher = Differ(), Patcher()
    patcher.take(differ.patch(snapshots.four_on_cpu()))
    text = differ.patch(snapshots.slow())
    place = data.draw(st.integers(0, len(text) - 1))
    changed = (
        text[:place]
        + data.draw(st.sampled_from(['"', "[", "]", "{", "9", "-", "null", "", "e999"]))
        + text[place + 1 :]
    )
    with contextlib.suppress(WireError):
        assert isinstance(patcher.take(changed), Snapshot)


@pytest.mark.parametrize(
    "text",
    ["", "nothing", "[]", "5", '["r"]', '["r",5]', '["d",{"a":["d",{},[]]},[]]', '["l",0,9,[]]', "[" * 9999,
     '["r",{"type":"snapshot"}]', "1" * 9999],
)  # fmt: skip
def test_what_is_no_patch_is_refused(text):
    with pytest.raises(WireError):
        Patcher().take(text)


def test_nan_and_infinity_come_through_and_digits_that_are_shown_stay():
    shot = snapshots.four_on_cpu()
    ranks = [
        msgspec.structs.replace(
            shot.ranks[0], loss=math.nan, own_ms=math.inf, samples_per_s=12345.678, learning_rate=3.14159e-7,
            gpu=Gpu(percent=98.7654, memory_used_bytes=12_345_678_901),
        ),
        *shot.ranks[1:],
    ]  # fmt: skip
    (came,) = passed([msgspec.structs.replace(shot, ranks=ranks, loss=math.nan)])
    rank = came.ranks[0]
    assert math.isnan(rank.loss)
    assert math.isnan(came.loss)
    assert rank.own_ms == math.inf
    assert (rank.samples_per_s, rank.learning_rate) == (12300.0, 3.142e-7)
    assert (rank.gpu.percent, rank.gpu.memory_used_bytes) == (98.8, 12_300_000_000)


def test_two_snapshots_a_second_of_64_ranks_that_all_change_are_less_than_ten_kilobytes():
    rng = random.Random(1)
    shot = snapshots.running(64)
    differ, framer, sizes = Differ(), Framer(), []
    for version in range(12):
        ranks = [
            msgspec.structs.replace(
                rank, steps=rank.steps + version, own_ms=rank.own_ms * rng.uniform(0.9, 1.1), loss=rng.uniform(1, 3),
                step_ms=rank.step_ms * rng.uniform(0.9, 1.1), over_median=rng.uniform(-0.1, 0.1),
                phases_ms=tuple(ms * rng.uniform(0.9, 1.1) for ms in rank.phases_ms), late_ms=rng.uniform(0, 9),
                samples_per_s=rng.uniform(200, 300), cpu_percent=rng.uniform(80, 120),
                rss_bytes=int(rng.uniform(2e9, 3e9)), read_bytes_per_s=rng.uniform(0, 1e6),
                written_bytes_per_s=rng.uniform(0, 1e5),
                gpu=Gpu(rng.uniform(80, 99), int(rng.uniform(6e10, 7e10)), 80 << 30, rng.uniform(300, 400), 60, 1700),
            )
            for rank in shot.ranks
        ]  # fmt: skip
        shot_now = msgspec.structs.replace(shot, version=version, at=shot.at + version / 2, ranks=ranks)
        assert len(encode(shot_now)) > 40_000
        sizes.append(len(framer.frame(Shot(differ.patch(shot_now)))))
    assert 2 * sum(sizes[1:]) / len(sizes[1:]) < 10_000, sizes
