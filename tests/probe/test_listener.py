"""Test what the listener makes of calls, one by one, in a process that trains nothing."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

import ddpmon
from ddpmon import api
from ddpmon.messages import CHECKPOINT, DATA_PARALLEL, EVALUATION, MAX_NAME
from ddpmon.messages.step_counter import UPDATES
from ddpmon.probe.account import Account
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import Listener
from ddpmon.probe.records import BACKWARD, DATA, FORWARD, RawStep

BATCH = (torch.zeros(6, 3), torch.zeros(6))
MODEL = torch.nn.Linear(3, 1)


class Plain:
    """The attributes of an optimizer that are read. Any of torch's own loads its compiler, which takes seconds."""

    def __init__(self) -> None:
        self.param_groups = [{"params": list(MODEL.parameters()), "lr": 0.001}]


OPTIMIZER = Plain()


@pytest.fixture
def listener(now: list[int]) -> Iterator[Listener]:
    listener = Listener(Identity("test"))
    api.attach(listener)
    yield listener
    api.detach()
    assert listener.account.updates == listener.hot.updates[UPDATES], "the account and the training thread count alike"


def notes(listener: Listener) -> list[str]:
    return listener.identity.facts.notes


def fetch(listener: Listener, now: list[int], batch: object = BATCH, iterator: object = "loader") -> None:
    listener.fetch_begins((iterator,), {})
    now[0] += 10
    listener.fetch_ends(batch, (iterator,))


def train(listener: Listener, now: list[int]) -> RawStep:
    """Backward and the optimizer, as torch's hooks would tell of them."""
    loss = torch.ones((), requires_grad=True)
    listener.backward_begins(((loss,),), {"accumulate_grad": True})
    now[0] += 20
    listener.backward_ends(None, ())
    listener.optimizer_begins(OPTIMIZER)
    now[0] += 5
    listener.optimizer_ends(OPTIMIZER)
    return listener.clock.finished[-1]


def test_the_first_step_begins_with_the_first_batch_not_with_the_imports(listener: Listener, now: list[int]) -> None:
    now[0] += 10_000
    listener.set_up()
    now[0] += 500
    fetch(listener, now)
    now[0] += 1
    step = train(listener, now)
    assert step.end - step.start == 36
    assert step.phases[:5] == [10, 0, 20, 5, 1]


def test_the_first_step_of_a_script_without_a_loader_begins_when_its_optimizer_is_made(
    listener: Listener, now: list[int]
) -> None:
    now[0] += 10_000
    listener.set_up()
    now[0] += 7
    step = train(listener, now)
    assert step.end - step.start == 32


def test_a_batch_looked_at_before_the_model_is_made_does_not_begin_the_first_step(
    listener: Listener, now: list[int]
) -> None:
    fetch(listener, now)
    now[0] += 10_000
    listener.set_up()
    now[0] += 300
    fetch(listener, now)
    step = train(listener, now)
    assert step.end - step.start == 35
    assert step.samples == 6


def test_an_evaluation_of_a_model_in_evaluation_mode_begins_with_the_mode(listener: Listener, now: list[int]) -> None:
    """One batch is enough, and no forward need be heard: scripts evaluate the bare model."""
    fetch(listener, now)
    train(listener, now)
    now[0] += 2
    listener.pauses.evaluation_begins(None, (MODEL,))
    for _ in range(2):
        fetch(listener, now, iterator="held out")
        now[0] += 30
    fetch(listener, now)
    step = train(listener, now)
    assert step.phases == [10, 0, 20, 5, 2, 80]
    assert step.samples == 6


def test_what_is_synchronised_in_an_evaluation_is_no_part_of_a_step(listener: Listener, now: list[int]) -> None:
    fetch(listener, now)
    train(listener, now)
    listener.pauses.evaluation_begins(None, (MODEL,))
    listener.synchronisation_begins((), {})
    now[0] += 500
    listener.collective_done(None, (torch.zeros(2),))
    fetch(listener, now)
    listener.synchronisation_begins((), {})
    now[0] += 7
    listener.collective_done(None, (torch.zeros(2),))
    step = train(listener, now)
    assert [sync.end - sync.arrival for sync in step.syncs] == [7]
    assert step.phases[-1] == 500


def test_a_model_that_is_trained_in_evaluation_mode_is_trained(listener: Listener, now: list[int]) -> None:
    """Fine-tuning with frozen statistics: the mode says nothing, from the first backward on."""
    model = torch.nn.DataParallel(torch.nn.Linear(3, 1))
    for number in range(3):
        listener.pauses.evaluation_begins(None, (model,))
        model.module.training = model.training = False
        fetch(listener, now)
        listener.parallel_begins(DATA_PARALLEL, model, (BATCH[0],), {})
        now[0] += 8
        listener.parallel_ends(None, (model,))
        step = train(listener, now)
        assert step.step == number + 1
        assert step.phases[DATA] == 10
    assert step.phases[FORWARD] == 8
    assert step.pauses == []


def test_a_loader_that_is_gone_through_without_training_is_an_evaluation(listener: Listener, now: list[int]) -> None:
    """It evaluates another model than the trained one (an average of its weights), in which no forward is heard."""
    fetch(listener, now)
    train(listener, now)
    now[0] += 2
    for _ in range(3):
        fetch(listener, now, iterator="held out")
        now[0] += 30
    listener.fetch_begins(("held out",), {})
    now[0] += 1
    listener.fetch_fails()
    fetch(listener, now)
    step = train(listener, now)
    assert step.phases == [10, 0, 20, 5, 2, 121]
    assert [(pause.kind, pause.end - pause.start) for pause in step.pauses] == [(EVALUATION, 121)]


def test_writing_a_checkpoint_is_no_part_of_a_step_also_inside_an_evaluation(
    listener: Listener, now: list[int]
) -> None:
    fetch(listener, now)
    train(listener, now)
    now[0] += 1
    listener.record(Account.pause_begins, CHECKPOINT)
    now[0] += 100
    listener.record(Account.pause_ends)
    now[0] += 2
    listener.pauses.evaluation_begins(None, (MODEL,))
    now[0] += 20
    listener.record(Account.pause_begins, CHECKPOINT)
    now[0] += 300
    listener.record(Account.pause_ends)
    now[0] += 40
    fetch(listener, now)
    step = train(listener, now)
    assert step.phases == [10, 0, 20, 5, 3, 460]
    assert [(pause.kind, pause.end - pause.start) for pause in step.pauses] == [
        (CHECKPOINT, 100),
        (EVALUATION, 20),
        (CHECKPOINT, 300),
        (EVALUATION, 40),
    ]


def test_what_goes_before_a_forward_is_told(listener: Listener, now: list[int]) -> None:
    """Loading without a DataLoader happens there."""
    model = torch.nn.DataParallel(torch.nn.Linear(3, 1))
    now[0] += 30
    listener.parallel_begins(DATA_PARALLEL, model, (BATCH[0],), {})
    now[0] += 8
    listener.parallel_ends(None, (model,))
    now[0] += 4
    step = train(listener, now)
    assert step.gaps == (30, 4)


def test_a_phase_of_the_script_survives_exceptions(listener: Listener, now: list[int]) -> None:
    def fail() -> None:
        with ddpmon.phase("outer"), ddpmon.phase("inner"):
            now[0] += 3
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with ddpmon.phase("outer"):
        now[0] += 2
    assert train(listener, now).named == {"inner": 3, "outer": 5}


@pytest.mark.parametrize(
    "name", ["", "x" * (MAX_NAME + 1), "two\nlines", "\ud800", None, 3, ["a"], torch.ones(2)], ids=repr
)
def test_a_name_that_is_none_is_noted_once_and_harms_nobody(listener: Listener, now: list[int], name: str) -> None:
    with ddpmon.phase("around"):
        for _ in range(3):
            with ddpmon.phase(name):
                now[0] += 3
    assert train(listener, now).named == {"around": 9}
    assert [note for note in notes(listener) if "ddpmon.phase" in note] == [
        f"ddpmon.phase needs a name of 1 to {MAX_NAME} printable characters, and ignores other names"
    ]


def test_a_phase_around_the_loop_begins_with_the_first_step(listener: Listener, now: list[int]) -> None:
    with ddpmon.phase("epoch"):
        now[0] += 10_000
        fetch(listener, now)
        assert train(listener, now).named == {"epoch": 35}
        fetch(listener, now)
        assert train(listener, now).named == {"epoch": 35}


def test_phases_of_other_threads_are_not_heard(listener: Listener, now: list[int]) -> None:
    def work() -> None:
        with ddpmon.phase("aside"):
            now[0] += 3

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert train(listener, now).named == {}


def test_collectives_inside_backward_are_heard_on_autograds_own_threads(
    listener: Listener, now: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On GPUs backward runs there, SyncBatchNorm's all-reduce with it; any other thread is not ours."""
    heard = []

    def ask() -> None:
        thread = threading.Thread(target=lambda: heard.append(listener.hears_in_backward()))
        thread.start()
        thread.join()

    ask()
    monkeypatch.setattr(torch._C, "_current_graph_task_id", lambda: 3)
    ask()
    listener.backward_begins(((torch.ones((), requires_grad=True),),), {"accumulate_grad": True})
    assert listener.clock.phase == BACKWARD
    ask()
    monkeypatch.setattr(torch._C, "_current_graph_task_id", lambda: -1)
    ask()
    monkeypatch.delattr(torch._C, "_current_graph_task_id")  # a torch that does not say: nothing raises in the script
    ask()
    assert heard == [False, False, True, False, False]


def test_the_collector_may_run_while_a_process_that_was_forked_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure would be printed into the script's output."""
    listener, failed, often = Listener(Identity("test")), [], gc.get_threshold()
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    gc.callbacks.append(listener.collecting)
    gc.set_threshold(1, 1, 1)
    try:
        listener.reset(Identity("test"))
    finally:
        gc.set_threshold(*often)
        gc.callbacks.remove(listener.collecting)
    assert not failed, failed[0].exc_value
    assert listener.clock.part.gc > 0, "it did run meanwhile"
