"""Records every bucket's all-reduce if requested (--buckets): when DDP launched it, when it ended, and its parameters.

DDP shows its buckets only to a communication hook. So the probe registers a hook that computes the same bits that DDP
computes without a hook, or it wraps the script's own hook. Every communication hook costs one more pass over the
gradients.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from time import monotonic_ns
from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from ddpmon.messages import BUCKETS, Layout
from ddpmon.probe.account import Account
from ddpmon.probe.interception import wrap_attribute
from ddpmon.probe.records import BUCKET_END
from ddpmon.probe.thread_listener import ThreadListener

NAMES_CHARS = 8000
CPU_ONLY = "--buckets: ddpmon records the buckets only for models on the CPU"


class Buckets:
    """Records the buckets of all models in this process."""

    def __init__(self, listener: ThreadListener) -> None:
        self.listener = listener
        self.layouts: deque[Layout] = deque(maxlen=10_000)
        """Layouts that the background thread has not sent yet."""
        self.joining: Any = None
        """Handle of the all-reduce with which Join counts the ranks that still have inputs; None without Join."""
        self._hooks: weakref.WeakKeyDictionary[Any, Hook | None] = weakref.WeakKeyDictionary()
        """Hook of each model; None if the model's buckets cannot be recorded."""
        self._count = 0

    def install(self) -> None:
        """Intercept the registration of communication hooks in this process. Called once."""
        listener = self.listener
        wrap_attribute(listener, DistributedDataParallel, "_register_builtin_comm_hook", before=self._builtin)
        wrap_attribute(listener, Join, "notify_join_context", after=self._joins)
        listener.changes.patch(Join, "notify_join_context", staticmethod(Join.notify_join_context))
        register = dist._register_comm_hook

        def register_around(reducer: Any, state: Any, hook: Any) -> None:
            replica = listener.replicas.of_reducer(reducer)
            model = None if replica is None else replica.model()
            if model is None or not listener.listening or _on_gpu(model):
                register(reducer, state, hook)
                return
            ours = self._hooks.get(model)
            if ours is None:
                ours = Hook(self, model)
                register(reducer, state, ours)
                self._hooks[model] = ours
            elif ours.user is not None:
                register(reducer, state, hook)  # torch raises its usual error about a second hook.
            ours.user = (state, hook)

        listener.changes.patch(dist, "_register_comm_hook", register_around)
        self._register = register

    def _builtin(self, arguments: tuple[Any, ...], _named: object) -> None:
        """Note that the script registered a communication hook in C++, which cannot be wrapped."""
        model = arguments[0]
        if self._hooks.get(model) is None:
            self._hooks[model] = None
            self.listener.identity.set_missing(
                BUCKETS, "--buckets: ddpmon cannot record the buckets of a model with a built-in communication hook"
            )

    def _joins(self, work: Any, _arguments: object) -> None:
        self.joining = work

    def register_hook(self, model: Any) -> None:
        """Register our hook before a model's first forward, unless the script has registered its own."""
        if model in self._hooks:
            return
        if _on_gpu(model):
            self._hooks[model] = None
            self.listener.identity.set_missing(BUCKETS, CPU_ONLY)
            return
        hook = Hook(self, model)
        self._register(model.reducer, None, hook)
        self._hooks[model] = hook

    def backward_begins(self) -> None:
        """Record the address of each model's gradients, before a backward changes the addresses."""
        for hook in self._hooks.values():
            if hook is not None:
                hook.remember_gradients()

    def queue_layout(self, model: int, index: int, payload_bytes: int, names: list[str]) -> int:
        """Queue a new layout of a bucket for the hub; return its number."""
        self._count += 1
        kept: list[str] = []
        length = 0
        for name in names:
            length += len(name)
            if length > NAMES_CHARS:
                kept.append(f"and {len(names) - len(kept)} more")
                break
            kept.append(name)
        self.layouts.append(Layout(self._count, model, index, payload_bytes, kept))
        return self._count


class Hook:
    """A DDP comm hook that records each bucket and changes nothing else."""

    def __init__(self, buckets: Buckets, model: Any) -> None:
        self.user: tuple[Any, Any] | None = None
        """State and hook that the script registered itself."""
        self._buckets = buckets
        self._model = weakref.ref(model)
        self._group = model.process_group
        self._names: dict[int, str] = {}
        self._layouts: dict[tuple[int, int, int], int] = {}
        self._storages: dict[int, int] = {}
        """Address of each parameter's gradient when the backward began."""
        size = self._group.size()
        self._in_place = model.gradient_as_bucket_view and size & (size - 1) != 0
        """True if DDP uses both x * (1/n) and x / n, and the results can differ because n is not a power of two."""

    def __call__(self, _state: Any, bucket: Any) -> Any:
        launch = monotonic_ns()
        if self.user is not None:
            state, hook = self.user
            future = hook(state, bucket)
        else:
            future = self._average(bucket)
        listener = self._buckets.listener
        if listener.listening:
            try:
                self._note(bucket, launch, future)
            except Exception as error:
                listener.disable(error)
        return future

    def remember_gradients(self) -> None:
        """Record before a backward where each gradient is stored: in its bucket or elsewhere."""
        model = self._model()
        if self._in_place and model is not None:
            self._storages = {
                id(parameter): 0 if parameter.grad is None else parameter.grad.untyped_storage().data_ptr()
                for parameter in model.parameters()
            }

    def _average(self, bucket: Any) -> Any:
        """Average gradients as DDP does without a hook: scale each as it enters the bucket, and sum.

        DDP multiplies a gradient by 1/n when it copies it into the bucket. DDP divides a gradient that is stored in the
        bucket by n.
        """
        buffer = bucket.buffer()
        size = self._divisor()
        if buffer.is_sparse:
            buffer.div_(size)
        elif self._in_place:
            here = buffer.untyped_storage().data_ptr()
            for parameter, view in zip(bucket.parameters(), bucket.gradients(), strict=True):
                if self._storages.get(id(parameter)) == here:
                    view.div_(size)
                else:
                    view.mul_(1.0 / size)
        else:
            buffer.mul_(1.0 / size)
        return self._group.allreduce([buffer]).get_future().then(_first)

    def _divisor(self) -> int:
        """Return the number of ranks that DDP divides by: all, unless Join counts those that still have inputs."""
        model = self._model()
        joining = self._buckets.joining
        if joining is None or model is None or getattr(model, "_divide_by_initial_world_size", True):
            return int(self._group.size())
        return int(joining.result()[0].item())

    def _note(self, bucket: Any, launch: int, future: Any) -> None:
        times = [self._layout(bucket), launch, 0]
        self._buckets.listener.hot.note((Account.bucket_launched, launch, None, times, None, None))
        future.add_done_callback(functools.partial(_ended, times))

    def _layout(self, bucket: Any) -> int:
        buffer = bucket.buffer()
        key = (bucket.index(), buffer.numel(), 0 if buffer.is_sparse else buffer.data_ptr())
        number = self._layouts.get(key)
        if number is None:
            model = self._model()
            if not self._names and model is not None:
                self._names = {id(parameter): name for name, parameter in model.module.named_parameters()}
            names = [self._names.get(id(parameter), "?") for parameter in bucket.parameters()]
            replica = self._buckets.listener.replicas.replica_of(model).number if model is not None else 0
            number = self._buckets.queue_layout(replica, key[0], key[1] * buffer.element_size(), names)
            self._layouts[key] = number
        return number


def _first(future: Any) -> Any:
    return future.value()[0]


def _ended(bucket: list[int], _future: Any) -> None:
    bucket[BUCKET_END] = monotonic_ns()


def _on_gpu(model: Any) -> bool:
    return any(parameter.is_cuda for parameter in model.parameters())
