"""One DDP model, as the probe remembers it: its bytes, and when its last gradient was ready."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Container
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from ddpmon.probe.cuda import Events
from ddpmon.probe.records import Event


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
        "expected_at",
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
        self.expected_at = 0
        """When the reducer was told that the next backward is to be synchronised."""
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

        The reducer notes each gradient's ready time, in ns after it was told to expect the backward; the list keeps
        its old values until the next synchronised backward. A static graph notes none in its first one, where it only
        looks at the graph and reduces at the end.
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
        return self.expected_at + ready

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

    def __init__(self) -> None:
        super().__init__()
        self._by_reducer: dict[int, int] = {}
        """Id of a reducer: id of its model."""

    def of(self, model: DistributedDataParallel) -> Replica:
        """What is remembered of a model; its number counts the models of this rank in the order they were wrapped."""
        key = id(model)
        replica = self.get(key)
        if replica is None:
            replica = self[key] = Replica(self._wrapped, model, lambda _ref: self.pop(key, None))
            self._wrapped += 1
        return replica

    def of_reducer(self, reducer: object) -> Replica | None:
        """The one that a reducer serves."""
        replica = self.get(self._by_reducer.get(id(reducer), 0))
        model = replica.model() if replica is not None else None
        if model is None or model.reducer is not reducer:
            self._by_reducer = {id(m.reducer): id(m) for one in self.values() if (m := one.model()) is not None}
            replica = self.get(self._by_reducer.get(id(reducer), 0))
        return replica

    def trains(self, module: object) -> bool:
        """Whether a module is one of the models, wrapped or bare."""
        models = [model for replica in self.values() if (model := replica.model()) is not None]
        return any(module is model or module is model.module for model in models)

    def name_of(self, parameter: object, taken: Container[str], shared: bool) -> str:
        """A name for what an optimizer updates, by its first parameter: the model's class.

        taken: names of others. shared: several optimizers may update parts of one model; then it is the part's name.
        """
        for replica in self.values():
            model = replica.model()
            if model is None or not any(one is parameter for one in model.parameters()):
                continue
            name = type(model.module).__name__
            if shared:
                name = next(
                    (
                        part
                        for part, child in model.module.named_children()
                        if any(one is parameter for one in child.parameters())
                    ),
                    name,
                )
            return _not_taken(name, taken)
        return _not_taken("model", taken)


def _not_taken(name: str, taken: Container[str]) -> str:
    numbers = itertools.count(2)
    wanted = name
    while wanted in taken:
        wanted = f"{name} {next(numbers)}"
    return wanted


def reduced_parameters(model: DistributedDataParallel) -> list[Any]:
    """The parameters whose gradients DDP reduces, in the order of the reducer's list."""
    reduced: dict[Any, None] = {}
    for module_name, module in model.module.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and f"{module_name}.{name}" not in model.parameters_to_ignore:
                reduced.setdefault(parameter)
    return list(reduced)
