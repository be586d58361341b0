"""Determines how this process trains in parallel: DDP, FSDP, DeepSpeed, tensor parallel or alone.

The kind is inferred from forwards and from the parameters that optimizers update, never from imports. Most of the
attributes that this needs are private to torch or other libraries. If an attribute is missing or has another form, the
kind is unknown.
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
"""Largest number of an optimizer's parameters to examine."""


def in_backward() -> bool:
    """Return whether autograd is running on this thread; False if this version of torch cannot tell."""
    graph_task = getattr(torch._C, "_current_graph_task_id", None)
    return graph_task is not None and graph_task() != -1


class Parallelism:
    """Determines how this process trains from forwards, DDP models and optimizers."""

    def __init__(self) -> None:
        self.unsettled = True
        """True if there is new evidence since the last decision."""
        self.unsure = True
        """True if an optimizer's step can still add evidence."""
        self._kind = ""
        """Kind of the wrapper that ran a forward; "" if none has."""
        self._model: Any = None
        """First model with that wrapper; kept until the next decision."""
        self._running = 0
        """Id of the model whose outermost forward runs; 0 if none. The model itself may be freed at any time."""
        self._counted = 0
        """Id of the model whose inputs count as this step's samples; 0 if none yet."""
        self._wrapped_in: list[str] = []
        self._stepped: tuple[str, list[Any]] = "", []
        """Python module of the class, and parameters, of the last optimizer that stepped; kept until the next decision.

        A reference to the optimizer itself would delay its deletion, which the probe records.
        """
        self._averages = False
        """True if ranks sometimes average their weights."""
        self._tensor_parallel = False
        """True if parameters of a DDP model were sharded."""

    def invalidate_decision(self) -> None:
        """Request a new decision after the next step, because a model, an optimizer or a group was set up."""
        self.unsettled = self.unsure = True

    def examine_wrapped(self, model: Any) -> None:
        """Examine a model that was wrapped in DDP."""
        self._tensor_parallel |= any(map(is_sharded, model.parameters()))
        self.invalidate_decision()

    @property
    def is_wrapped(self) -> bool:
        """Return whether a wrapper other than DDP has run a forward."""
        return bool(self._kind)

    def averages_weights(self) -> None:
        """Record that ranks average their weights now and then. In between, the weights of ranks may differ."""
        self._averages = True
        self.invalidate_decision()

    def forward_begins(self, kind: str, model: object) -> bool:
        """Handle a forward that a wrapper other than DDP runs; return whether it is to be measured.

        A forward inside another forward, or recomputed in backward, is not measured.
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
        """Return whether the inputs of this model are the samples of the step.

        If blocks are sharded one by one without an outer model, the inputs of the first block are the samples.
        """
        return self._counted == id(model)

    def forward_ends(self, model: object) -> bool:
        """Handle the end of a forward; return whether it was measured."""
        measured = self._running == id(model)
        if measured:
            self._running = 0
        return measured

    def forward_fails(self) -> None:
        """Record that the running forward has ended, because it raised."""
        self._running = 0

    def handle_optimizer(self, optimizer: Any) -> None:
        """Handle an optimizer's step, and remember its parameters if a decision is due."""
        self._running = self._counted = 0  # Reset both, because a forward that raised may have left no note.
        self.unsure = self.unsettled
        if self.unsettled:
            self._stepped = type(optimizer).__module__, list(islice(parameters_of(optimizer), MAX_PARAMETERS))

    def decide_from_evidence(
        self, world_size: int, *, ddp: bool, forward: bool, on_device: bool
    ) -> tuple[str, list[str], torch.device | None]:
        """Return how this process trains, from all evidence, after a step has ended.

        Args:
            world_size: Number of ranks.
            ddp: True if there are DDP models.
            forward: True if a forward of a DDP model with gradients was recorded.
            on_device: True if steps are placed on a GPU's timeline.

        Returns:
            The kind ("" if unknown); the phases that cannot be measured; the GPU of the parameters, or None.

        """
        self.unsettled = False  # Reset it first, because the training thread may add evidence during the decision.
        (module, parameters), self._stepped = self._stepped, ("", [])
        model, self._model = self._model, None
        alone = world_size == 1
        try:
            kind = PARALLEL_JOIN.join(self._kinds(module, model, parameters, ddp, alone))
        except Exception:
            kind = ""
        unmeasured = [] if self._kind or forward else ["forward"]
        # Only DDP's steps are placed on the GPU's timeline. On the host's clock, a collective on a GPU does not block.
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
    """Return the kinds of parallelism of a wrapper, given its first model and an optimizer's parameters."""
    if kind == FSDP2:
        hybrid, tensor_parallel = _meshes(model, parameters)
        return [FSDP2 + HYBRID * hybrid, TENSOR_PARALLEL][: 1 + tensor_parallel]
    strategy = getattr(getattr(model, "sharding_strategy", None), "name", "")
    return [kind + HYBRID * (kind == FSDP and "HYBRID" in strategy)]


def _meshes(state: Any, parameters: Sequence[Any]) -> tuple[bool, bool]:
    """Return whether FSDP2 also replicates (hybrid sharding), and whether the parameters have other mesh dimensions."""
    states = [state, *getattr(getattr(state, "_state_ctx", None), "all_states", ())]
    groups = [group for one in states for group in getattr(one, "_fsdp_param_groups", None) or (one._fsdp_param_group,)]
    mesh = next((group.mesh_info for group in groups if group is not None), None)
    if mesh is None:
        return False, False
    hybrid = mesh.shard_mesh_dim is not None and mesh.replicate_mesh_dim is not None
    most = max((one.device_mesh.ndim for one in parameters if type(one).__name__ == "DTensor"), default=0)
    return hybrid, most > mesh.mesh.ndim


def is_sharded(parameter: Any) -> bool:
    """Return whether a parameter is a DTensor, or was one before DDP replaced it by its local shard."""
    return type(parameter).__name__ == "DTensor" or hasattr(parameter, "_st_info")


def parameters_of(*optimizers: Any) -> Iterator[Any]:
    """Yield all parameters that these optimizers update."""
    for optimizer in optimizers:
        for group in getattr(optimizer, "param_groups", None) or ():
            yield from group["params"]
