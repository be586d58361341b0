"""The places in torch where the probe listens: DDP, DataLoader, backward, optimizers, torch.distributed.

Where torch offers an inner function, it is that one which is wrapped: a warning that torch raises for its caller then
still names the script's line.
"""

from __future__ import annotations

import functools
import gc
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer
from torch.utils.data import dataloader

from ddpmon.probe.collectives import COLLECTIVES, MESSAGES
from ddpmon.probe.interception import guarded, offers, replace
from ddpmon.probe.listener import Listener


def install(listener: Listener) -> None:
    """Listen to torch in this process, once."""
    replace(
        DistributedDataParallel,
        "_ddp_init_helper",
        listener,
        after=listener.model_wrapped,
        claims=listener.sets_up_here,
    )
    if offers(DistributedDataParallel, "_pre_forward", "_post_forward", listener=listener):
        replace(
            DistributedDataParallel,
            "_pre_forward",
            listener,
            before=listener.forward_begins,
            packed=True,
            claims=listener.trains_here,
        )
        replace(DistributedDataParallel, "_post_forward", listener, after=listener.forward_ends, first=True)
    replace(
        DistributedDataParallel,
        "_sync_buffers",
        listener,
        before=listener.synchronisation_begins,
        after=listener.buffers_synchronised,
        failed=listener.synchronisation_fails,
    )
    replace(  # what a rank without data does under Join instead of a backward
        DistributedDataParallel,
        "_match_all_reduce_for_bwd_pass",
        listener,
        before=listener.pauses.shadowing_begins,
        after=listener.shadowed,
        failed=listener.pauses.pause_ends,
    )
    if offers(dataloader, "_BaseDataLoaderIter", listener=listener):  # others' loaders have iterators of their own
        replace(
            dataloader._BaseDataLoaderIter,
            "__next__",
            listener,
            before=listener.fetch_begins,
            after=listener.fetch_ends,
            failed=listener.fetch_fails,
            first=True,
        )
        for kind in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
            # Not of their base class: it warns about whoever calls it, which has to remain the DataLoader.
            if offers(dataloader, kind, listener=listener):
                replace(getattr(dataloader, kind), "__init__", listener, after=listener.iterator_made)
        if offers(dataloader, "_MultiProcessingDataLoaderIter", listener=listener):
            iterator = dataloader._MultiProcessingDataLoaderIter
            replace(iterator, "_reset", listener, after=listener.iterator_reset, first=True)
    replace(
        torch.autograd,
        "_engine_run_backward",
        listener,
        before=listener.backward_begins,
        after=listener.backward_ends,
        failed=listener.backward_fails,
        packed=True,
    )
    if offers(dist, "Reducer", listener=listener):
        replace(dist.Reducer, "prepare_for_backward", listener, after=listener.backward_expected, first=True)
    if offers(torch.amp, "GradScaler", listener=listener):
        replace(torch.amp.GradScaler, "scale", listener, after=listener.loss_scaled)
        replace(torch.amp.GradScaler, "step", listener, before=listener.scaler_steps)
    replace(
        optimizer.Optimizer,
        "_patch_step_function",
        listener,
        after=listener.optimizer_made,
        claims=listener.sets_up_here,
    )
    if offers(
        optimizer, "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook", listener=listener
    ):  # fmt: skip
        optimizer.register_optimizer_step_pre_hook(
            guarded(listener, listener.optimizer_begins, claims=listener.optimizes_here)
        )
        optimizer.register_optimizer_step_post_hook(guarded(listener, listener.optimizer_ends))
    _install_pauses(listener)
    gc.callbacks.append(listener.collecting)
    _replace_function("init_process_group", listener, after=listener.group_ready, claims=listener.sets_up_here)
    collective: dict[str, Any] = {
        "hears": listener.hears_collective,
        "before": listener.synchronisation_begins,
        "after": listener.collective_done,
        "failed": listener.synchronisation_fails,
        "traced": True,
    }
    for name in COLLECTIVES:
        if hasattr(distributed_c10d, name):
            passed = {"after": listener.barrier_passed} if "barrier" in name else {}
            _replace_function(name, listener, **collective | passed)
    for name in MESSAGES:
        _replace_function(name, listener, before=listener.messages_exchanged, traced=True)
    # Where asynchronous ones are waited for; the second is what the tensor of a functional one calls.
    if offers(dist, "Work", listener=listener) and offers(dist.Work, "wait", listener=listener):
        dist.Work.wait = _as_inherited(dist.Work.wait)
        replace(dist.Work, "wait", listener, **collective)
    replace(functional, "wait_tensor", listener, **collective)


def _install_pauses(listener: Listener) -> None:
    """Listen to what a script does besides training."""
    pauses = listener.pauses
    replace(torch.nn.Module, "eval", listener, after=pauses.evaluation_begins, traced=True)
    saving: dict[str, Any] = {"before": pauses.saving_begins, "after": pauses.pause_ends}
    replace(torch, "save", listener, **saving, failed=pauses.pause_ends)
    torch.serialization.save = torch.save
    if offers(dataloader, "_MultiProcessingDataLoaderIter", listener=listener):
        starting: dict[str, Any] = {"before": pauses.workers_begin, "after": pauses.pause_ends}
        replace(dataloader._MultiProcessingDataLoaderIter, "__init__", listener, **starting, failed=pauses.pause_ends)
    replace(torch, "compile", listener, after=pauses.compiler_there)


def _as_inherited(original: Any) -> Any:
    """`Work.wait` for a class of the script's own that inherits it.

    Only from a frame of this name and shape does pybind11 take the call for one of the base class; from any other it
    would call what it finds in Python, which is us, without end.
    """

    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
            raise

    return functools.update_wrapper(wait, original)


def _replace_function(name: str, listener: Listener, **around: Any) -> None:
    """Replace a function of torch.distributed under both names it is reached by."""
    replace(distributed_c10d, name, listener, **around)
    if hasattr(distributed_c10d, name):
        setattr(dist, name, getattr(distributed_c10d, name))
