"""Hooks the probe into torch: DDP, DataLoader, backward, optimizers and torch.distributed.

Where a public function of torch calls an inner function, the probe wraps the inner one. A warning that torch attributes
to the caller of the public function then still names the script's line.
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

from ddpmon.messages import CHECKPOINT, OUT_OF_DATA
from ddpmon.probe.account import Account
from ddpmon.probe.collectives import COLLECTIVE_FUNCTIONS, MESSAGES
from ddpmon.probe.interception import guarded_hook, has_attributes, wrap_attribute
from ddpmon.probe.listener import Listener


def install_all(listener: Listener) -> None:
    """Install all hooks in this process. Called once."""
    around = functools.partial(wrap_attribute, listener)
    _install_ddp(listener)
    _install_loaders(listener)
    _install_optimizers(listener)
    around(
        torch.autograd,
        "_engine_run_backward",
        before=listener.backward_begins,
        after=listener.backward_ends,
        failed=listener.backward_fails,
    )
    around(torch.amp, "GradScaler.scale", after=listener.loss_scaled)
    around(torch.amp, "GradScaler.step", before=listener.scaler_steps)
    around(torch.nn.Module, "eval", after=listener.pauses.evaluation_begins, traced=True)
    ends = listener.noting(Account.pause_ends)
    around(torch, "save", before=listener.noting(Account.pause_begins, CHECKPOINT), after=ends, failed=ends)
    listener.changes.patch(torch.serialization, "save", torch.save)
    around(torch, "compile", after=listener.pauses.compiler_there)
    gc.callbacks.append(listener.collecting)
    listener.changes.undone_by(lambda: gc.callbacks.remove(listener.collecting))
    _install_collectives(listener)


def _install_ddp(listener: Listener) -> None:
    around = functools.partial(wrap_attribute, listener, DistributedDataParallel)
    sets_up = functools.partial(listener.claims_thread, trains=False)
    around("_ddp_init_helper", after=listener.model_wrapped, claims=sets_up)
    if has_attributes(listener, DistributedDataParallel, "_pre_forward", "_post_forward"):
        around("_pre_forward", before=listener.forward_begins, claims=listener.trains_here)
        around("_post_forward", after=listener.forward_ends)
    around(
        "_sync_buffers",
        before=listener.synchronisation_begins,
        after=listener.buffers_synchronised,
        failed=listener.synchronisation_fails,
    )
    around(  # Under Join, a rank without data calls this instead of a backward.
        "_match_all_reduce_for_bwd_pass",
        before=listener.noting(Account.pause_begins, OUT_OF_DATA),
        after=listener.note_joined_sync,
        failed=listener.noting(Account.pause_ends),
    )
    wrap_attribute(listener, dist, "Reducer.prepare_for_backward", after=listener.backward_expected)


def _install_loaders(listener: Listener) -> None:
    around = functools.partial(wrap_attribute, listener, dataloader)
    around(  # DataLoaders of other libraries have iterators of their own.
        "_BaseDataLoaderIter.__next__",
        before=listener.fetch_begins,
        after=listener.fetch_ends,
        failed=listener.fetch_fails,
    )
    # Do not wrap the base class: it attributes warnings to its caller, which must remain the DataLoader.
    around("_SingleProcessDataLoaderIter.__init__", after=listener.iterator_made)
    around(
        "_MultiProcessingDataLoaderIter.__init__",
        before=listener.noting(Account.workers_begin),
        after=listener.workers_started,
        failed=listener.noting(Account.pause_ends),
    )
    around("_MultiProcessingDataLoaderIter._reset", after=listener.iterator_reset)


def _install_optimizers(listener: Listener) -> None:
    made, sets_up = listener.optimizer_made, functools.partial(listener.claims_thread, trains=False)
    wrap_attribute(listener, optimizer, "Optimizer._patch_step_function", after=made, claims=sets_up)
    if has_attributes(listener, optimizer, "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"):
        begins = guarded_hook(listener, listener.optimizer_begins, claims=listener.claims_thread)
        ends = guarded_hook(listener, listener.optimizer_ends)
        listener.changes.undone_by(optimizer.register_optimizer_step_pre_hook(begins).remove)
        listener.changes.undone_by(optimizer.register_optimizer_step_post_hook(ends).remove)


def _install_collectives(listener: Listener) -> None:
    sets_up = functools.partial(listener.claims_thread, trains=False)
    _replace_function(listener, "init_process_group", after=listener.group_ready, claims=sets_up)
    collective: dict[str, Any] = {
        "before": listener.synchronisation_begins,
        "after": listener.collective_done,
        "failed": listener.synchronisation_fails,
        "claims": listener.hears_in_backward,
        "traced": True,
    }
    for name in COLLECTIVE_FUNCTIONS:
        if hasattr(distributed_c10d, name):
            passed = {"after": listener.barrier_passed} if "barrier" in name else {}
            _replace_function(listener, name, **collective | passed)
    for name in MESSAGES:
        _replace_function(listener, name, before=listener.messages_exchanged, traced=True)
    # Scripts wait for asynchronous collectives in Work.wait, and for functional collectives in wait_tensor.
    if hasattr(dist, "Work") and hasattr(dist.Work, "wait"):
        listener.changes.patch(dist.Work, "wait", _as_inherited(dist.Work.wait))
    wrap_attribute(listener, dist, "Work.wait", **collective)
    wrap_attribute(listener, functional, "wait_tensor", **collective)


def _as_inherited(original: Any) -> Any:
    """Return a `Work.wait` that works for classes of the script that inherit it.

    pybind11 treats the call as one of the base class only if it comes from a frame of this name and shape. From any
    other frame it would call the Python override, which is our wrapper, in an endless recursion.
    """

    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
            raise

    return functools.update_wrapper(wait, original)


def _replace_function(listener: Listener, name: str, **around: Any) -> None:
    """Replace a function in torch.distributed and in its module distributed_c10d, because scripts call both names."""
    wrap_attribute(listener, distributed_c10d, name, **around)
    if hasattr(distributed_c10d, name):
        listener.changes.patch(dist, name, getattr(distributed_c10d, name))
