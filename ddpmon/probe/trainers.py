"""Reads progress from the trainers of Hugging Face and Lightning in processes that have imported them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from torch.utils.data.distributed import DistributedSampler

from ddpmon.messages import MAX_STEP
from ddpmon.probe.account import Account
from ddpmon.probe.interception import passed_argument, when_imported, wrap_attribute
from ddpmon.probe.listener import Listener
from ddpmon.probe.loop_progress import Progress

COUNTED_EVENTS = frozenset({"on_train_begin", "on_epoch_begin", "on_step_end"})
"""Events of Hugging Face's trainer at which its `global_step` includes every finished step."""
_STATE = attrgetter("global_step", "max_steps", "num_train_epochs", "epoch")


def install(listener: Listener) -> None:
    """Hook `set_epoch`, and trainers once the script has imported them. Called once per process."""

    def set_epoch(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        # Look up `listener.loops` at each call, because a forked process has another object.
        listener.loops.set_epoch(passed_argument(arguments, named, 1, "epoch"))

    wrap_attribute(listener, DistributedSampler, "set_epoch", before=set_epoch)
    for modules, name, method, after in (
        (("transformers.trainer_callback",), "CallbackHandler", "call_event", _transformers(listener)),
        (("lightning.pytorch.loops.fit_loop",), "_FitLoop", "on_advance_start", _lightning(listener)),
        (("pytorch_lightning.loops.fit_loop",), "_FitLoop", "on_advance_start", _lightning(listener)),
    ):
        when_imported(listener, modules, name, method, partial(wrap_attribute, listener, path=method, after=after))


def _transformers(listener: Listener) -> Callable[[Any, tuple[Any, ...]], None]:
    def event_called(_result: object, arguments: tuple[Any, ...]) -> None:
        # This hook runs several times per step, so the progress is computed only when it is requested.
        if len(arguments) > 3 and arguments[1] in COUNTED_EVENTS:
            try:
                listener.record(Account.trainer_counted, partial(_counted, arguments[1], *_STATE(arguments[3])))
            except AttributeError:
                pass  # Another version of the trainer has other attributes.

    return event_called


def _counted(event: object, done: object, most: object, epochs: object, epoch: object, step: int) -> Progress:
    """Return the progress from the fields of a TrainerState. step: number of steps that ddpmon counted until then."""
    made, limit, passes = _count(done), _count(most), _count(epochs)
    total = None if made is None or not limit else step + limit - made
    if passes is None or not isinstance(epoch, (int, float)) or not 0 <= epoch <= passes:
        return Progress(total)  # For a dataset without a length, the number of epochs is missing or sys.maxsize.
    # The step that ends an epoch still belongs to it.
    return Progress(total, max(1, math.ceil(epoch)) if event == "on_step_end" else int(epoch) + 1, passes)


def _lightning(listener: Listener) -> Callable[[Any, tuple[Any, ...]], None]:
    def epoch_begins(_result: object, arguments: tuple[Any, ...]) -> None:
        trainer: Any = getattr(arguments[0], "trainer", None)
        epoch, epochs = _count(getattr(trainer, "current_epoch", None)), _count(getattr(trainer, "max_epochs", None))
        batches = _count(getattr(trainer, "num_training_batches", None))
        together = _count(getattr(trainer, "accumulate_grad_batches", None))
        more = []
        # A loop that calls the optimizers itself may make any number of steps per batch.
        if getattr(getattr(trainer, "lightning_module", None), "automatic_optimization", False):
            if batches and together and epochs and epoch is not None and epoch < epochs:
                more.append((epochs - epoch) * -(-batches // together))
            done, most = _count(getattr(trainer, "global_step", None)), _count(getattr(trainer, "max_steps", None))
            if most and done is not None and done < most:
                more.append(most - done)
        running = None if epoch is None else epoch + 1

        def at(step: int) -> Progress:
            return Progress(step + min(more) if more else None, running, epochs or None)

        listener.record(Account.trainer_counted, at)

    return epoch_begins


def _count(value: object) -> int | None:
    """Return a trainer's value as a number; None if it is not a number, means no limit, or is impossibly large."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < MAX_STEP else None
