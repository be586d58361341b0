"""Test the calls of Hugging Face's and Lightning's trainers, in a process that trains nothing."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer
from torch.utils.data.distributed import DistributedSampler

from ddpmon.probe import trainers
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import Listener


class CallbackHandler:
    """The calls that Hugging Face's Trainer makes."""

    def call_event(self, event, args, state, control, **named):
        if event == "on_log":
            raise ValueError("wrong on purpose")
        return control, named


class _FitLoop:
    """The loop that Lightning runs."""

    def __init__(self, **trainer) -> None:
        facts = dict(
            current_epoch=0, max_epochs=-1, max_steps=-1, num_training_batches=float("inf"), global_step=0,
            accumulate_grad_batches=1, lightning_module=SimpleNamespace(automatic_optimization=True),
        )  # fmt: skip
        self.trainer = SimpleNamespace(**facts | trainer)

    def on_advance_start(self):
        return "begun"


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """Hears two trainers that were imported, and an optimizer that was made."""
    for owner, name in (
        (DistributedDataParallel, "_ddp_init_helper"),
        (Optimizer, "_patch_step_function"),
        (DistributedSampler, "set_epoch"),
        (CallbackHandler, "call_event"),
        (_FitLoop, "on_advance_start"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end
    for path, held in zip(("transformers.trainer_callback", "pytorch_lightning.loops.fit_loop"),
                          (CallbackHandler, _FitLoop), strict=True):  # fmt: skip
        module = ModuleType(path)
        setattr(module, held.__name__, held)
        monkeypatch.setitem(sys.modules, path, module)
    listener = Listener(Identity("test"))
    trainers.install(listener)
    for _ in range(2):
        SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    return listener


def state(**facts) -> SimpleNamespace:
    return SimpleNamespace(**{"global_step": 0, "max_steps": 30, "num_train_epochs": 3, "epoch": 0.0, **facts})


def told(listener: Listener) -> tuple[int | None, int | None, int | None]:
    return tuple(listener.loops.progress(listener.clock.step, 0.0))


def test_hugging_faces_trainer_tells_total_and_epochs(listener: Listener) -> None:
    handler = CallbackHandler()
    assert handler.call_event("on_train_begin", "args", state(), "control", logs=1) == ("control", {"logs": 1})
    assert told(listener) == (30, 1, 3)
    listener.clock.step = 10
    handler.call_event("on_step_end", "args", state(global_step=10, epoch=1.0), "control")
    assert told(listener) == (30, 1, 3), "the last step of an epoch is of that epoch"
    handler.call_event("on_epoch_begin", "args", state(global_step=10, epoch=1.0), "control")
    assert told(listener) == (30, 2, 3)
    listener.clock.step = 11
    handler.call_event("on_optimizer_step", "args", state(global_step=10, epoch=1.0), "control")
    assert told(listener) == (30, 2, 3), "between a step and its count nothing is concluded"


def test_a_resumed_trainer_has_fewer_steps_to_make(listener: Listener) -> None:
    CallbackHandler().call_event("on_train_begin", "args", state(global_step=12, epoch=1.2), "control")
    assert told(listener) == (18, 2, 3)


def test_a_dataset_without_a_length_has_a_total_and_no_epochs(listener: Listener) -> None:
    CallbackHandler().call_event("on_step_end", "args", state(num_train_epochs=sys.maxsize, epoch=0.1), "control")
    assert told(listener) == (30, None, None)


@pytest.mark.parametrize("odd", [None, object(), state(max_steps="many", epoch=float("nan")), state(max_steps=-1)])
def test_a_state_that_says_nothing_is_no_trouble(listener: Listener, odd: object) -> None:
    assert CallbackHandler().call_event("on_step_end", "args", odd, "control") == ("control", {})
    assert listener.listening
    assert told(listener)[0] is None


def test_what_a_callback_raises_has_no_frame_of_ours(listener: Listener) -> None:
    with pytest.raises(ValueError, match="on purpose") as raised:
        CallbackHandler().call_event("on_log", "args", state(), "control")
    files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert files == [__file__, __file__]


@pytest.mark.parametrize(
    ("trainer", "progress"),
    [
        (dict(max_epochs=3, num_training_batches=21, accumulate_grad_batches=2), (33, 1, 3)),
        (dict(max_epochs=3, num_training_batches=20, current_epoch=2), (20, 3, 3)),
        (dict(max_steps=50), (50, 1, None)),
        (dict(max_steps=50, global_step=30, max_epochs=9, num_training_batches=10), (20, 1, 9)),
        (dict(max_steps=5000, max_epochs=3, num_training_batches=10), (30, 1, 3)),
        (dict(max_epochs=3), (None, 1, 3)),
        (dict(), (None, 1, None)),
        (dict(max_epochs=3, num_training_batches=8, lightning_module=SimpleNamespace()), (None, 1, 3)),
    ],
)
def test_lightnings_trainer_tells_total_and_epochs(listener: Listener, trainer: dict, progress: tuple) -> None:
    assert _FitLoop(**trainer).on_advance_start() == "begun"
    assert told(listener) == progress


def test_a_trainer_goes_before_the_sampler(listener: Listener) -> None:
    sampler = DistributedSampler(range(8), num_replicas=2, rank=0)
    sampler.set_epoch(epoch=1)
    sampler.set_epoch(4)
    assert sampler.epoch == 4
    assert told(listener) == (None, 4, None), "one that begins at 1 counts from one"
    _FitLoop(max_epochs=3, num_training_batches=8).on_advance_start()
    assert told(listener) == (24, 1, 3)


def test_each_method_is_replaced_once(listener: Listener) -> None:
    assert not hasattr(CallbackHandler.call_event.__wrapped__, "__wrapped__")
    assert not hasattr(_FitLoop.on_advance_start.__wrapped__, "__wrapped__")
