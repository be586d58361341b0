"""Notes that wait mean the same as notes that are read as they are made, and keep nothing of the script's alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ddpmon.messages import CHECKPOINT, DDP
from ddpmon.probe.account import Account
from ddpmon.probe.cuda import Events
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import Listener
from ddpmon.probe.records import RawStep


@pytest.fixture
def listener(now: list[int]) -> Listener:
    return Listener(Identity("test"))


def train(listener: Listener, now: list[int], optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    listener.fetch_begins(("loader",), {})
    now[0] += 10
    listener.fetch_ends((torch.zeros(6, 3),), ("loader",))
    now[0] += 3
    listener.backward_begins(((loss,),), {"accumulate_grad": True})
    now[0] += 20
    listener.backward_ends(None, ())
    listener.optimizer_begins(optimizer)
    now[0] += 5
    listener.optimizer_ends(optimizer)


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


def read(listener: Listener) -> list[RawStep]:
    while listener.journal.read_notes(7):
        pass
    return list(listener.clock.finished)


def test_steps_are_the_same_however_late_they_are_read(now: list[int]) -> None:
    steps = []
    for late in (False, True):
        now[0] = 1000
        listener = Listener(Identity("test"))
        if late:
            listener.defer()
        optimizer = sgd()
        for number in range(5):
            listener.record(Account.pause_begins, CHECKPOINT)
            now[0] += number
            listener.record(Account.pause_ends)
            train(listener, now, optimizer, torch.full((), float(number), requires_grad=True))
        if late:
            assert not listener.clock.finished
            now[0] += 1_000_000
        steps.append(read(listener))
    assert len(steps[0]) == 5
    assert steps[0] == steps[1]


def test_what_waits_keeps_neither_batches_nor_optimizers_alive(listener: Listener, now: list[int]) -> None:
    """They hold a device's memory, and a script that frees them may need it at once."""
    listener.defer()
    listener.parallelism.unsettled = False  # else the optimizer of the first step is kept until that is read
    batch, optimizer = torch.zeros(6, 3), sgd()
    gone = [weakref.ref(batch), weakref.ref(optimizer)]
    listener.fetch_begins(("loader",), {})
    listener.fetch_ends((batch,), ("loader",))
    train(listener, now, optimizer, torch.ones((), requires_grad=True))
    del batch, optimizer
    assert [one() for one in gone] == [None, None]
    other = sgd()
    train(listener, now, other, torch.ones((), requires_grad=True))
    assert len(read(listener)) == 2


def test_a_step_leaves_the_collector_nothing_to_visit(listener: Listener, now: list[int]) -> None:
    """Pending records are plain values: the collector untracks them at its first pass, while they are few."""
    listener.defer()
    optimizer, loss = sgd(), torch.ones((), requires_grad=True)
    train(listener, now, optimizer, loss)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(100):
        train(listener, now, optimizer, loss)
    gc.collect(0)
    assert len(gc.get_objects()) - before < 50
    assert len(read(listener)) == 101


def test_on_a_gpu_each_moment_of_a_step_is_one_on_its_timeline_too(listener: Listener, now: list[int]) -> None:
    noted: list[tuple[Any, ...]] = []
    listener.hot.write_with(noted.append, cast(Events, Made()))
    train(listener, now, sgd(), torch.ones((), requires_grad=True))
    listener.collecting("stop", {})
    *of_the_step, collected = noted
    events = [event for reader, _, event, *_ in of_the_step if isinstance(reader, int)]
    assert len(events) == len({event.number for event in events}) == 6
    assert collected[2] is None, "the collector's pauses are the host's"


class Made:
    """Stands for the events of a GPU."""

    def __init__(self) -> None:
        self.number = 0

    def event(self) -> Made:
        made = Made()
        self.number += 1
        made.number = self.number
        return made


class Reducer:
    """Stands for a model's."""

    def __init__(self) -> None:
        self.ready = [0, 0]

    def get_backward_stats(self) -> list[int]:
        return list(self.ready)


class Model:
    """Stands for one that DDP runs: what the listener asks of it."""

    def __init__(self) -> None:
        self.module = torch.nn.Linear(2, 1)
        self.reducer = Reducer()
        self.modules_buffers: list[torch.Tensor] = []
        self.static_graph = False
        self.process_group = None
        self.parameters_to_ignore: set[str] = set()

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.module.parameters()

    def modules(self) -> Iterator[torch.nn.Module]:
        return self.module.modules()


def reduce(listener: Listener, now: list[int], *models: Model) -> None:
    """A forward and a backward of models, whose last gradients are ready after 6 ns, 7 ns and so on of 20."""
    for model in models:
        listener.replicas.replica_of(cast(DistributedDataParallel, model))
        listener.backward_expected(None, (model.reducer,))
    listener.backward_begins(((torch.ones((), requires_grad=True),),), {"accumulate_grad": True})
    for number, model in enumerate(models):
        model.reducer.ready = [model.reducer.ready[0] + 1, 6 + number]
    now[0] += 20
    listener.backward_ends(None, ())


def updated(listener: Listener, now: list[int], optimizer: torch.optim.Optimizer) -> None:
    listener.optimizer_begins(optimizer)
    now[0] += 5
    listener.optimizer_ends(optimizer)


def test_what_is_read_late_needs_no_model_that_lived_then(listener: Listener, now: list[int]) -> None:
    """Names of what is updated, arrivals, how many gradients were never reduced: a script may free its models first."""
    listener.defer()
    first, second = Model(), Model()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]
    for optimizer in optimizers:
        listener.optimizer_made(None, (optimizer,))
    for _ in range(3):
        for model, optimizer in zip((first, second), optimizers, strict=True):
            now[0] += 1
            reduce(listener, now, model)
            updated(listener, now, optimizer)
    train(listener, now, optimizers[0], torch.ones((), requires_grad=True))
    del first, second, model, optimizers, optimizer
    gc.collect()
    assert not listener.replicas
    steps = read(listener)
    assert [name for name, _ in steps[1].updates] == ["Linear", "Linear 2"]
    assert listener.account.unsynchronised == 1
    assert listener.identity.facts.parallelism == DDP


def test_a_backward_of_several_models_is_one_synchronisation_from_the_last_arrival_on(
    listener: Listener, now: list[int]
) -> None:
    listener.defer()
    models, optimizer = (Model(), Model(), Model()), sgd()
    for _ in range(2):
        reduce(listener, now, *models)
        updated(listener, now, optimizer)
    for step in read(listener):
        (sync,) = step.syncs
        assert (sync.end - sync.arrival, sync.payload_bytes) == (12, 3 * 12)
    assert not listener.hot.expecting
