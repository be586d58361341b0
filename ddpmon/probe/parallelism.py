"""Finds out how this process trains in parallel: DDP, FSDP, DeepSpeed, tensor parallel, alone.

Concluded from what is seen at work, never from what was imported: forwards, and the parameters of an optimizer that
steps. Most of it is private to torch or to others: what is not there, or answers otherwise, counts as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from ddpmon.messages import (
    ALONE,
    DDP,
    DEEPSPEED,
    FSDP,
    FSDP2,
    HYBRID,
    LOCAL_SGD,
    NOT_PARALLEL,
    PARALLEL_JOIN,
    TENSOR_PARALLEL,
)

MAX_PARAMETERS = 10_000
"""Most parameters of an optimizer that are examined."""


def in_backward() -> bool:
    """Return whether autograd runs on this thread; False where this torch does not say."""
    graph_task = getattr(torch._C, "_current_graph_task_id", None)
    return graph_task is not None and graph_task() != -1


class Parallelism:
    """Concludes how this process trains from what is seen of forwards, DDP's models and optimizers."""

    def __init__(self) -> None:
        self.unsettled = True
        """True if more was seen since it was last settled."""
        self.unsure = True
        """True if an optimizer's step can still add to it."""
        self._kind = ""
        """The wrapper whose forward was heard, by its kind; "": none."""
        self._model: Any = None
        """The first model with that wrapper, until the kind is settled."""
        self._running = 0
        """The model whose outermost forward runs now, by its id: the model may be freed at any time; 0: none."""
        self._counted = 0
        """The model whose inputs count as this step's samples, by its id; 0: none yet."""
        self._wrapped_in: list[str] = []
        self._stepped: tuple[str, list[Any]] = "", []
        """Module and parameters of the last optimizer that stepped until the kind is settled.

        Not the optimizer itself: it would live on here, and its end be noted late.
        """
        self._averages = False
        """True if ranks average their weights now and then."""
        self._tensor_parallel = False
        """True if parameters of a DDP model were sharded."""

    def unsettle(self) -> None:
        """Something was set up that may change it."""
        self.unsettled = self.unsure = True

    def wrapped(self, model: Any) -> None:
        """A model was wrapped in DDP."""
        self._tensor_parallel |= any(map(is_sharded, model.parameters()))
        self.unsettle()

    @property
    def is_wrapped(self) -> bool:
        """Return whether the forward of a wrapper was heard that is not DDP's."""
        return bool(self._kind)

    def averages_weights(self) -> None:
        """Something was set up that averages the weights of ranks now and then: they are meant to differ in between."""
        self._averages = True
        self.unsettle()

    def forward_begins(self, kind: str, model: object) -> bool:
        """A forward begins of a model that something else than DDP runs; says whether it is one to be measured.

        One inside another's forward, or computed once more in backward, is not.
        """
        if self._running not in {0, id(model)} or in_backward():
            return False
        self._running = id(model)
        self.unsure = True
        if self._kind != kind:
            self._kind, self._model, self.unsettled = kind, model, True
        if not self._counted and torch.is_grad_enabled():
            self._counted = id(model)
        return True

    def is_counted(self, model: object) -> bool:
        """Return whether the samples of a step are what this model is given.

        Where blocks are sharded one by one, none is inside of another: the samples are what the first one gets.
        """
        return self._counted == id(model)

    def forward_ends(self, model: object) -> bool:
        """A forward ended; says whether it was one to be measured."""
        measured = self._running == id(model)
        if measured:
            self._running = 0
        return measured

    def forward_fails(self) -> None:
        """A forward raised."""
        self._running = 0

    def steps(self, optimizer: Any) -> None:
        """An optimizer steps."""
        self._running = self._counted = 0  # a forward that raised may never have ended
        self.unsure = self.unsettled
        if self.unsettled:
            self._stepped = type(optimizer).__module__, list(islice(parameters_of(optimizer), MAX_PARAMETERS))

    def settle(
        self, world_size: int, *, ddp: bool, forward: bool, on_device: bool
    ) -> tuple[str, list[str], torch.device | None]:
        """Return how this process trains, by all that was seen, now that a step has ended.

        Args:
            world_size: Count of ranks.
            ddp: There are DDP models.
            forward: Their forward was heard.
            on_device: Steps lie on a GPU's timeline.

        Returns:
            The kind, "" where nothing decides it; the phases that this leaves unmeasured; the GPU of the parameters.

        """
        self.unsettled = False  # first: what the training thread adds from here on is for the next time
        (module, parameters), self._stepped = self._stepped, ("", [])
        model, self._model = self._model, None
        alone = world_size == 1
        try:
            kind = PARALLEL_JOIN.join(self._kinds(module, model, parameters, ddp, alone))
        except Exception:
            kind = ""
        unmeasured = [] if self._kind or forward else ["forward"]
        # A GPU's timeline is followed for DDP only, and by the host's clock nobody waits for a collective on it.
        device = next((parameter.device for parameter in parameters[:1] if parameter.is_cuda), None)
        if (alone and not ddp) or (device is not None and not on_device):
            unmeasured += ["wait", "transfer"]
        return kind, unmeasured, device

    def _kinds(self, module: str, model: Any, parameters: Sequence[Any], ddp: bool, alone: bool) -> list[str]:
        if model is not None:
            self._wrapped_in = _wrapped_in(self._kind, model, parameters)
        kinds = list(self._wrapped_in)
        if module.startswith("deepspeed."):
            kinds = [DEEPSPEED]
        elif not kinds and any(getattr(parameter, "_fsdp_flattened", False) for parameter in parameters):
            kinds = [FSDP]
        elif not kinds and ddp:
            kinds = [DDP]
        if self._kind != FSDP2 and (self._tensor_parallel or any(map(is_sharded, parameters))):
            kinds.append(TENSOR_PARALLEL)
        if self._averages:
            kinds.append(LOCAL_SGD)
        return kinds or [ALONE if alone else NOT_PARALLEL]


def _wrapped_in(kind: str, model: Any, parameters: Sequence[Any]) -> list[str]:
    """Return what a wrapper is, by its first model and what an optimizer steps on."""
    if kind == FSDP2:
        hybrid, tensor_parallel = _meshes(model, parameters)
        return [FSDP2 + HYBRID * hybrid, TENSOR_PARALLEL][: 1 + tensor_parallel]
    strategy = getattr(getattr(model, "sharding_strategy", None), "name", "")
    return [kind + HYBRID * (kind == FSDP and "HYBRID" in strategy)]


def _meshes(state: Any, parameters: Sequence[Any]) -> tuple[bool, bool]:
    """Return for FSDP2 whether the ranks are replicas of a few that shard, and whether more ranks shard parameters."""
    states = [state, *getattr(getattr(state, "_state_ctx", None), "all_states", ())]
    groups = [group for one in states for group in getattr(one, "_fsdp_param_groups", None) or (one._fsdp_param_group,)]
    mesh = next((group.mesh_info for group in groups if group is not None), None)
    if mesh is None:
        return False, False
    hybrid = mesh.shard_mesh_dim is not None and mesh.replicate_mesh_dim is not None
    most = max((one.device_mesh.ndim for one in parameters if type(one).__name__ == "DTensor"), default=0)
    return hybrid, most > mesh.mesh.ndim


def is_sharded(parameter: Any) -> bool:
    """Return whether a parameter is a DTensor, or was one before DDP took its local part."""
    return type(parameter).__name__ == "DTensor" or hasattr(parameter, "_st_info")


def parameters_of(*optimizers: Any) -> Iterator[Any]:
    """Yield all parameters that optimizers update."""
    for optimizer in optimizers:
        for group in getattr(optimizer, "param_groups", None) or ():
            yield from group["params"]
