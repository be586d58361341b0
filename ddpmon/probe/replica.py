"""Records about one DDP model: its sizes, and when its last gradient was ready."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Container, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parallel import DistributedDataParallel

from ddpmon.probe.cuda import Events
from ddpmon.probe.graph_search import UnusedSearch
from ddpmon.probe.records import DeviceEvent, Reduction


@dataclass(slots=True, eq=False)
class Replica:
    """Measures when a model's gradients were ready for the all-reduce, on the host and on a GPU's timeline."""

    number: int
    """Number of the model, in the order in which this rank's models were wrapped."""
    wrapped: InitVar[DistributedDataParallel]
    """The model, of which only a weak reference is kept."""
    forget: InitVar[Callable[[object], object]]
    """Called once the model has been freed."""
    model: weakref.ref[DistributedDataParallel] = field(init=False)
    inner: dict[str, Any] = field(init=False)
    """Attributes of the wrapped module, among them whether it is in training mode."""
    parameters: list[Any] = field(init=False)
    """Parameters whose gradients DDP reduces."""
    reduced_ids: frozenset[int] = field(init=False)
    """Ids of `parameters`. No other object gets one of these ids while the model exists."""
    gradient_bytes: int = field(init=False)
    buffer_bytes: int = field(init=False)
    others: list[Any] = field(init=False)
    """Parameters that DDP did not reduce when they were last searched for."""
    mode_matters: bool = field(init=False)
    """True if the model has layers that behave differently in evaluation mode."""
    search: UnusedSearch | None = None
    """Measurement of DDP's search for unused parameters; None if DDP does not search."""
    stats: Callable[[], list[int]] | None = None
    """The reducer's `get_backward_stats`."""
    strays: list[Any] = field(default_factory=list)
    """Parameters of `others` that had gradients when digests were last due."""
    held_out: bool = False
    """True if the last forward with gradients was in evaluation mode."""
    expected: bool = False
    """True if the next backward is expected to reduce the model's gradients."""
    expected_at: int = 0
    """Time at which the reducer was prepared for the next backward."""
    event: DeviceEvent | None = None
    """Event at which gradient number `_latest` was ready in this step."""
    digest_in: bool | None = None
    """Mode (True is training) of the next forward that is to take a digest; None if none is due."""
    events: Events | None = None
    """Pool of device events; None if the model's arrivals are not measured on a GPU."""
    _latest: int = -1
    """Index, in the reducer's list, of the gradient that was ready last in the previous step; used on a GPU only."""
    _times: list[int] = field(default_factory=list)
    _examined: bool = False
    _watched: int = -1
    _hook: Any = None

    def __post_init__(self, wrapped: DistributedDataParallel, forget: Callable[[object], object]) -> None:
        self.model = weakref.ref(wrapped, functools.partial(self._gone, forget))
        self.inner = vars(wrapped.module)
        self.parameters = reduced_parameters(wrapped)
        self.reduced_ids = frozenset(map(id, self.parameters))
        self.gradient_bytes = sum(p.numel() * p.element_size() for p in wrapped.parameters() if p.requires_grad)
        self.buffer_bytes = sum(b.numel() * b.element_size() for b in wrapped.modules_buffers)
        self.others = [parameter for _, parameter in self.not_reduced(wrapped)]
        self.mode_matters = any(map(_depends_on_mode, wrapped.modules()))

    @property
    def is_training(self) -> bool:
        """Return whether the wrapped module is in training mode. Frameworks may leave the wrapper's mode unchanged."""
        mode = self.inner.get("training")
        if mode is None:  # In a module of torch.compile, `training` is a property.
            model = self.model()
            mode = model is None or model.module.training
        return bool(mode)

    def _gone(self, forget: Callable[[object], object], model: object) -> None:
        """Drop all references to the model's parameters, because the model has been freed."""
        self.inner, self.stats = {}, None
        self.parameters, self.others, self.strays = [], [], []
        forget(model)

    def not_reduced(self, model: DistributedDataParallel) -> Iterator[tuple[str, Any]]:
        """Yield (name, parameter) of each parameter that DDP does not reduce although the script did not exclude it."""
        for name, parameter in model.module.named_parameters():
            if id(parameter) not in self.reduced_ids and name not in model.parameters_to_ignore:
                yield name, parameter

    def own_buffers(self) -> tuple[list[Any], list[Any]]:
        """Return the buffers that DDP does not broadcast: the running statistics of BatchNorm, and all others."""
        model = self.model()
        if model is None or getattr(model, "broadcast_buffers", True):
            return [], []
        layers = [
            m for m in model.module.modules() if isinstance(m, _BatchNorm) and not isinstance(m, nn.SyncBatchNorm)
        ]
        statistics = [one for layer in layers for one in layer.buffers(recurse=False)]
        known = set(map(id, statistics))
        named = model.module.named_buffers()
        ignored = model.parameters_to_ignore
        return statistics, [one for name, one in named if id(one) not in known and name not in ignored]

    def take_reduction(self) -> Reduction | None:
        """Return the reduction of the last backward; None if it reduced no gradients of this model.

        The reducer records when each gradient is ready, and keeps these times until the next synchronised backward.
        With static_graph, it records no times in the first backward, in which DDP examines the graph.
        """
        if self.stats is None:  # The model and its gradients were freed.
            return None
        times = self.stats()
        # Compare all times: in short steps, the largest time may be the same to the nanosecond twice in a row.
        if times == self._times:
            return None
        event = None
        if not self._times and not any(times):
            model = self.model()
            first_time = model is not None and model.static_graph and not self._examined
            self._examined = True
            if not first_time:
                return None
            times = []
        else:
            self._times = times
            if self.events is not None:
                self._latest = times.index(max(times))
                event, self.event = self.event, None
        self.expected = False
        held_out = self.number if self.held_out and self.mode_matters else None
        return self.gradient_bytes, times, self.expected_at, event, held_out

    def reduced_by(self, reducer: Any) -> None:
        """Set the model's reducer, which has not reduced any gradients yet."""
        self.stats = reducer.get_backward_stats
        self._times = []

    def mark_gradients(self) -> None:
        """Hook the gradient that was ready last, to record a device event before DDP launches its bucket again."""
        model = self.model()
        if self._latest == self._watched or model is None:
            return
        self._watched = self._latest
        if self._hook is not None:
            self._hook.remove()
        self._hook = self.parameters[self._watched].register_post_accumulate_grad_hook(self._mark)

    def unmark_gradients(self) -> None:
        """Remove the hook of `mark_gradients`, and use no device events any more."""
        self.events = None
        if self._hook is not None:
            self._hook.remove()

    def _mark(self, _parameter: object) -> None:
        if self.events is not None:
            self.event = self.events.event()


class Replicas(dict[int, Replica]):
    """The living DDP models of this rank, by their id."""

    _wrapped = 0

    def __init__(self) -> None:
        super().__init__()
        self.by_reducer: dict[int, Replica] = {}
        """Replicas by the id of their reducer, which stays alive while the entry exists."""

    def replica_of(self, model: DistributedDataParallel) -> Replica:
        """Return the record of a model. Creates it at the first call."""
        key = id(model)
        replica = self.get(key)
        if replica is None:
            replica = self[key] = Replica(self._wrapped, model, lambda _ref: self.pop(key, None))
            self._wrapped += 1
        return replica

    def of_reducer(self, reducer: Any) -> Replica | None:
        """Return the replica that a reducer serves; None if there is none."""
        replica = self.by_reducer.get(id(reducer))
        if replica is not None and replica.stats is not None:
            return replica
        replica = next((one for one in list(self.values()) if getattr(one.model(), "reducer", None) is reducer), None)
        self.by_reducer = {key: one for key, one in self.by_reducer.items() if one.stats and one is not replica}
        if replica is not None:
            replica.reduced_by(reducer)
            self.by_reducer[id(reducer)] = replica
        return replica

    def contains_module(self, module: object) -> bool:
        """Return whether a module is one of the models, wrapped or bare."""
        models = [model for replica in list(self.values()) if (model := replica.model()) is not None]
        return any(module is model or module is model.module for model in models)

    def name_of(self, parameter: object, taken: Container[str], shared: bool) -> str:
        """Return a name for the model that an optimizer updates: its class, numbered if the name is taken.

        Args:
            parameter: The optimizer's first parameter.
            taken: Names of other optimizers' models.
            shared: True if several optimizers may update parts of one model. Then the name is that of the part.

        """
        for replica in list(self.values()):
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


def _depends_on_mode(module: nn.Module) -> bool:
    """Return whether a module is a torch layer that behaves differently in evaluation mode."""
    if isinstance(module, _DropoutNd):
        return bool(module.p > 0)
    return isinstance(module, _BatchNorm) and bool(module.track_running_stats)


def _not_taken(name: str, taken: Container[str]) -> str:
    numbers = itertools.count(2)
    wanted = name
    while wanted in taken:
        wanted = f"{name} {next(numbers)}"
    return wanted


def reduced_parameters(model: DistributedDataParallel) -> list[Any]:
    """Return the parameters whose gradients DDP reduces, in the order of the reducer's list."""
    reduced: dict[Any, None] = {}
    for module_name, module in model.module.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and f"{module_name}.{name}" not in model.parameters_to_ignore:
                reduced.setdefault(parameter)
    return list(reduced)
