"""One DDP model, as the probe remembers it: its bytes, and when its last gradient was ready."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from ddpmon.probe.cuda import Events
from ddpmon.probe.stepclock import Event


class Replica:
    """Tells when a model's gradients were ready for the all-reduce, by the host's clock and on a GPU's timeline."""

    __slots__ = (
        "__weakref__",
        "_events",
        "_hook",
        "_latest",
        "_looked",
        "_times",
        "buffer_bytes",
        "digested",
        "event",
        "forward_end",
        "gradient_bytes",
        "model",
        "number",
    )

    def __init__(self, number: int, model: DistributedDataParallel, forget: Callable[[object], object]) -> None:
        self.number = number
        """Counts the models of this rank in the order they were wrapped."""
        self.model = weakref.ref(model, forget)
        self.gradient_bytes = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
        self.buffer_bytes = sum(b.numel() * b.element_size() for b in model.modules_buffers)
        self.forward_end = 0
        """When its last forward that will be synchronised ended."""
        self.event: Event | None = None
        """On the GPU's timeline: the moment the gradient that was last in the step before was ready in this one."""
        self.digested = 0
        """The step before which a digest was last taken."""
        self._times: list[int] = []
        self._looked = False
        self._events: Events | None = None
        self._latest = -1
        self._hook: Any = None

    def follow(self, events: Events) -> None:
        """Mark arrivals on the GPU's timeline too."""
        self._events = events

    def arrival(self, ended: int) -> int | None:
        """When the last gradient was ready for the all-reduce, if that was in the backward that `ended` just now.

        The reducer notes each gradient's ready time, in ns after the end of DDP's forward; the list keeps its old
        values until the next synchronised backward. A static graph notes none in its first one, where it only looks
        at the graph and reduces at the end.
        """
        model = self.model()
        if model is None:
            return None
        times: list[int] = model.reducer.get_backward_stats()
        # All of them: in short steps two in a row may have the same latest one, to the nanosecond.
        ready = max(times, default=0)
        if not ready or times == self._times:
            first_look = not ready and model.static_graph and not self._looked
            self._looked = True
            return ended if first_look else None
        self._times = times
        if self._events is not None:
            self._watch(model, times.index(ready))
        return self.forward_end + ready

    def _watch(self, model: DistributedDataParallel, latest: int) -> None:
        """Have the gradient that came last leave a mark the next time, just before DDP hands over its bucket."""
        if latest == self._latest:
            return
        self._latest = latest
        if self._hook is not None:
            self._hook.remove()
        self._hook = reduced_parameters(model)[latest].register_post_accumulate_grad_hook(self._mark)

    def _mark(self, _parameter: object) -> None:
        if self._events is not None:
            self.event = self._events.event()


class Replicas(dict[int, Replica]):
    """The DDP models of this rank by their id, as long as they live."""

    _wrapped = 0

    def of(self, model: DistributedDataParallel) -> Replica:
        """What is remembered of a model; its number counts the models of this rank in the order they were wrapped."""
        key = id(model)
        replica = self.get(key)
        if replica is None:
            replica = self[key] = Replica(self._wrapped, model, lambda _ref: self.pop(key, None))
            self._wrapped += 1
        return replica


def reduced_parameters(model: DistributedDataParallel) -> list[Any]:
    """The parameters whose gradients DDP reduces, in the order of the reducer's list."""
    found: dict[Any, None] = {}
    for module_name, module in model.module.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and f"{module_name}.{name}" not in model.parameters_to_ignore:
                found.setdefault(parameter)
    return list(found)
