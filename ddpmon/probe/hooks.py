"""The places in torch where the probe listens: DDP, DataLoader, backward, optimizers, torch.distributed.

Nothing here changes what is computed. Every wrapper calls the original with the arguments it got, returns what it
returned and lets its exceptions through without a frame of ours in the traceback; the listening around it may fail,
and then the probe leaves while the call goes on. Where torch offers an inner function, it is that one which is wrapped:
a warning that torch raises for its caller then still names the script's line.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer
from torch.utils.data import dataloader

if TYPE_CHECKING:
    from ddpmon.probe.listener import Listener

COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
"""Calls of torch.distributed in which ranks wait for each other, as far as this torch has them."""


def install(listener: Listener) -> None:
    """Listen to torch in this process, once."""
    replace(DistributedDataParallel, "_ddp_init_helper", listener, after=listener.model_wrapped)
    if _offers(DistributedDataParallel, "_pre_forward", "_post_forward", listener=listener):
        replace(DistributedDataParallel, "_pre_forward", listener, before=listener.forward_begins)
        replace(DistributedDataParallel, "_post_forward", listener, after=listener.forward_ends)
    replace(
        DistributedDataParallel,
        "_sync_buffers",
        listener,
        before=listener.synchronisation_begins,
        after=listener.buffers_synchronised,
        failed=listener.synchronisation_fails,
    )
    if _offers(dataloader, "_BaseDataLoaderIter", listener=listener):  # others' loaders have iterators of their own
        replace(
            dataloader._BaseDataLoaderIter,
            "__next__",
            listener,
            before=listener.fetch_begins,
            after=listener.fetch_ends,
            failed=listener.fetch_fails,
        )
    replace(
        torch.autograd,
        "_engine_run_backward",
        listener,
        before=listener.backward_begins,
        after=listener.backward_ends,
        failed=listener.phase_fails,
    )
    listener.parallelism.follow()
    if _offers(dist, "Reducer", listener=listener):
        replace(dist.Reducer, "prepare_for_backward", listener, after=listener.backward_expected)
    if _offers(torch.amp, "GradScaler", listener=listener):
        replace(torch.amp.GradScaler, "scale", listener, after=listener.loss_scaled)
        replace(torch.amp.GradScaler, "step", listener, before=listener.scaler_steps)
    replace(optimizer.Optimizer, "_patch_step_function", listener, after=listener.optimizer_made)
    if _offers(
        optimizer, "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook", listener=listener
    ):  # fmt: skip
        optimizer.register_optimizer_step_pre_hook(_guarded(listener, listener.optimizer_begins))
        optimizer.register_optimizer_step_post_hook(_guarded(listener, listener.optimizer_ends))
    _install_besides(listener)
    gc.callbacks.append(listener.collecting)
    _replace_function("init_process_group", listener, after=listener.group_ready)
    collective: dict[str, Any] = {
        "hears": listener.hears_collective,
        "before": listener.synchronisation_begins,
        "after": listener.collective_done,
        "failed": listener.synchronisation_fails,
        "traced": True,
    }
    for name in COLLECTIVES:
        if hasattr(distributed_c10d, name):
            _replace_function(name, listener, **collective)
    # Where asynchronous ones are waited for; the second is what the tensor of a functional one calls.
    if _offers(dist, "Work", listener=listener) and _offers(dist.Work, "wait", listener=listener):
        dist.Work.wait = _as_inherited(dist.Work.wait)
        replace(dist.Work, "wait", listener, **collective)
    replace(functional, "wait_tensor", listener, **collective)


def _install_besides(listener: Listener) -> None:
    """Listen to what a script does besides training."""
    besides = listener.besides
    replace(torch.nn.Module, "eval", listener, after=besides.evaluation_begins, traced=True)
    saving: dict[str, Any] = {"before": besides.saving_begins, "after": besides.saving_ends}
    replace(torch, "save", listener, **saving, failed=besides.saving_ends)
    torch.serialization.save = torch.save
    replace(torch, "compile", listener, after=besides.compiler_there)


def _offers(owner: Any, *names: str, listener: Listener) -> bool:
    """Whether this torch has all of these places; what it lacks is said once, and not listened to."""
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        where = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", "torch")
        listener.identity.note(
            f"torch {torch.__version__} has no {where}.{missing[0]}: what is measured there is missing"
        )
    return not missing


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


def _guarded(listener: Listener, listen: Callable[..., None]) -> Callable[..., None]:
    """A hook for torch to call that never raises."""

    def hook(*args: Any) -> None:
        if listener.listening:
            try:
                listen(*args)
            except Exception as error:
                listener.leave(error)

    return hook


def replace(
    owner: Any,
    name: str,
    listener: Listener,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
    failed: Callable[[], None] | None = None,
    hears: Callable[[], bool] | None = None,
    traced: bool = False,
) -> None:
    """Put a listening wrapper in the place of `owner.name`.

    before(*args, **kwargs) hears the arguments, after(result, *args) the result and the positional ones, failed()
    that the original raised. They are only called where hears() says so: on the training thread.
    traced: torch.compile may look into it from a function of the script, and must see nothing but the original.
    """
    if not _offers(owner, name, listener=listener):
        return
    original = getattr(owner, name)
    hears = hears or listener.hears

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if traced and torch.compiler.is_compiling():
            return original(*args, **kwargs)
        heard = hears()
        if heard and before is not None:
            try:
                before(*args, **kwargs)
            except Exception as error:
                listener.leave(error)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if heard and failed is not None and listener.listening:
                try:
                    failed()
                except Exception as failure:  # after an error of CUDA every further call of it fails, an event's too
                    listener.leave(failure)
            # Without our frame; a bare raise does not add it again.
            error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
            raise
        if heard and after is not None and listener.listening:
            try:
                after(result, *args)
            except Exception as error:
                listener.leave(error)
        return result

    setattr(owner, name, wrapper)
