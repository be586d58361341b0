"""Test that the timeouts of torch's process groups are read, and reported by waiting ranks."""

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from ddpmon.messages import Collective
from ddpmon.probe import collectives, stack_report


@pytest.fixture
def group():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=33))
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_the_timeout_is_that_of_the_process_group(group):
    assert collectives.timeouts_s() == {33.0}
    longer = dist.new_group([0], timeout=timedelta(minutes=10))
    assert collectives.timeouts_s() == {33.0, 600.0}
    assert collectives.timeouts_s(group.group_name) == {33.0}
    assert collectives.timeouts_s(longer.group_name) == {600.0}
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=50), group)
    assert collectives.timeouts_s(group.group_name) == {50.0}


class ProcessGroupNCCL:
    options = SimpleNamespace(_timeout=timedelta(minutes=10))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {600.0}),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, {600.0}),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, set()),
        ({"NCCL_ASYNC_ERROR_HANDLING": "0"}, set()),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_BLOCKING_WAIT": "1"}, {600.0}),
    ],
    ids=str,
)
def test_where_nccl_was_told_to_do_nothing_there_is_no_timeout(monkeypatch, settings, expected):
    """Its process group as far as it is read here: NCCL itself needs GPUs."""
    for name in ("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"TORCH_{name}", raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    group = SimpleNamespace(_device_types=["cuda"], _get_backend=lambda _: ProcessGroupNCCL())
    assert set(collectives._timeouts_s(group)) == expected


DIFFERENT = {"0": {33.0}, "1": {600.0}, "": {33.0, 600.0}}
ALIKE = {"0": {33.0}, "1": {33.0}, "": {33.0}}


@pytest.mark.parametrize(
    ("groups", "name", "group", "expected"),
    [
        (DIFFERENT, "all_reduce", "0", 33.0),
        (DIFFERENT, "all_reduce", "1", 600.0),
        (DIFFERENT, "all_reduce", "", None),
        (DIFFERENT, "all_reduce", "of another name", None),
        (ALIKE, "all_reduce", "", 33.0),
        (ALIKE, "all_reduce", "of another name", 33.0),
        (ALIKE, "monitored_barrier", "0", None),
        (ALIKE, "new_group", "", None),
        ({}, "all_reduce", "", None),
    ],
)
def test_who_waits_says_the_timeout_of_what_it_waits_in(monkeypatch, groups, name, group, expected):
    """The timeout is unknown where groups differ and that of the collective is not known."""
    monkeypatch.setattr(collectives, "timeouts_s", lambda name="": set(groups.get(name, ())))
    assert stack_report._timeout_s(Collective(name, group)) == expected


@pytest.mark.parametrize(
    ("timeouts", "due"), [({60.0}, True), ({60.0, 3600.0}, True), ({3600.0}, False), (set(), False)]
)
def test_who_may_wait_for_a_good_part_of_the_timeout_says_where_it_is(monkeypatch, timeouts, due):
    """However long the longest step took: an evaluation justifies any wait, but ends the run at the timeout."""
    monkeypatch.setattr(collectives, "timeouts_s", lambda name="": timeouts)
    clock = SimpleNamespace(part=SimpleNamespace(start=time.monotonic_ns() - 20_000_000_000))
    where = stack_report.StackReporter(SimpleNamespace(clock=clock))
    where.step_took(800_000_000_000)
    assert where.is_due(time.monotonic() + 1e6) is due
