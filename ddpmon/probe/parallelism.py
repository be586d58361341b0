"""How this process trains in parallel: DDP, FSDP, DeepSpeed, tensor parallel, alone; and forwards that are not DDP's.

Told by what is seen at work, never by what was imported: a forward that was heard, the parameters of an optimizer that
steps. Nothing is imported here that the script has not imported itself. Most of it is private to torch or to others:
what is not there, or answers otherwise, counts as not known.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ddpmon.messages import (
    ALONE,
    DATA_PARALLEL,
    DDP,
    DEEPSPEED,
    FSDP,
    FSDP2,
    HYBRID,
    NOT_PARALLEL,
    TENSOR_PARALLEL,
)
from ddpmon.probe import hooks

if TYPE_CHECKING:
    from ddpmon.probe.listener import Listener

MOST_PARAMETERS = 10_000
"""Of an optimizer that are looked at."""


class Wrapper(NamedTuple):
    """A class that runs the forward of a model, its root's or a part's."""

    kind: str
    modules: tuple[str, ...]
    """Where it is now, and where it was in older versions."""
    name: str
    begins: str = "forward"
    """What is called when forward begins. Looked up on the class at each call."""
    ends: tuple[str, ...] = ()
    """What is called last in it, the first that there is; none: `begins` is all of forward."""


WRAPPERS = (
    Wrapper(
        FSDP2,
        ("torch.distributed.fsdp._fully_shard._fsdp_state", "torch.distributed._composable.fsdp._fsdp_state"),
        "FSDPState",
        # Its hooks on modules are bound before anyone can listen; what they call is not.
        "_root_pre_forward",
        ("_cast_output_dtype", "_register_pre_backward_hook"),
    ),
    Wrapper(FSDP, ("torch.distributed.fsdp.fully_sharded_data_parallel",), "FullyShardedDataParallel"),
    Wrapper(DEEPSPEED, ("deepspeed.runtime.engine",), "DeepSpeedEngine"),
    Wrapper(DATA_PARALLEL, ("torch.nn.parallel.data_parallel",), "DataParallel"),
)


class Parallelism:
    """Finds out how this process trains, and tells the listener of forwards that DDP has no part in."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._followed: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """Start from nothing: a new process."""
        self.unsettled = True
        """Whether there is more to know than was told."""
        self._kind = ""
        """Whose forward was heard."""
        self._model: Any = None
        """The first of them, until the kind is told."""
        self._running = 0
        """The one whose forward runs and is not inside of another's, by its id: it may be freed at any time."""
        self._counted = 0
        """The one whose inputs are this step's samples."""
        self._wrapped_in: list[str] = []
        self._optimizer: Any = None
        self._tensor_parallel = False
        """Whether parameters of a DDP model were."""

    def wrapped(self, model: Any) -> None:
        """A model was wrapped in DDP."""
        self._tensor_parallel |= any(map(_is_sharded, model.parameters()))
        self._listener.identity.trains(DDP, [])
        self.unsettled = True

    def follow(self) -> None:
        """Listen to the wrappers that the script has imported by now, each once."""
        for wrapper in WRAPPERS:
            for module in wrapper.modules:
                owner = getattr(sys.modules.get(module), wrapper.name, None)
                if owner is not None and hasattr(owner, wrapper.begins) and wrapper.kind not in self._followed:
                    self._followed.add(wrapper.kind)
                    self._follow(wrapper, owner)

    def _follow(self, wrapper: Wrapper, owner: Any) -> None:
        def forward_begins(model: Any, *inputs: Any, **named: Any) -> None:
            self._forward_begins(wrapper.kind, model, inputs, named)

        def hook_begins(state: Any, _module: Any, inputs: Any = (), named: Any = None) -> None:
            self._forward_begins(wrapper.kind, state, inputs, named or {})

        around: dict[str, Any] = {"after": self._forward_ends, "traced": True}
        if not wrapper.ends:
            failed = self._forward_fails
            hooks.replace(owner, wrapper.begins, self._listener, before=forward_begins, failed=failed, **around)
        elif last := next((name for name in wrapper.ends if hasattr(owner, name)), None):
            hooks.replace(owner, wrapper.begins, self._listener, before=hook_begins, traced=True)
            hooks.replace(owner, last, self._listener, **around)

    # --- forward -----------------------------------------------------------------------------------------------

    def _forward_begins(self, kind: str, model: Any, inputs: Any, named: Any) -> None:
        if self._running not in {0, id(model)} or torch._C._current_graph_task_id() != -1:
            return  # inside another's, or computed once more in backward
        self._running = id(model)
        if self._kind != kind:
            self._kind, self._model, self.unsettled = kind, model, True
        if not self._counted and torch.is_grad_enabled():
            self._counted = id(model)
        # Where blocks are sharded one by one, none is inside of another: the samples are what the first one gets.
        if self._counted == id(model):
            self._listener.parallel_begins(model, *inputs, **named)
        else:
            self._listener.parallel_begins(model)

    def _forward_ends(self, _result: Any, model: Any, *_args: Any) -> None:
        if self._running == id(model):
            self._running = 0
            self._listener.parallel_ends()

    def _forward_fails(self) -> None:
        self._running = 0
        self._listener.phase_fails()

    # --- what it is --------------------------------------------------------------------------------------------

    def steps(self, optimizer: Any) -> None:
        """An optimizer steps."""
        self._running = self._counted = 0  # a forward that raised may never have ended
        if self.unsettled:
            self._optimizer = optimizer

    def settle(self) -> None:
        """A step ended: tell what is known by now of how this process trains, and of what that leaves unmeasured."""
        self.unsettled = False
        listener, optimizer = self._listener, self._optimizer
        parameters = _parameters(optimizer)
        replicas = list(listener.replicas.values())
        alone = listener.identity.world_size == 1
        try:
            kind = " + ".join(self._kinds(optimizer, parameters, bool(replicas), alone))
        except Exception:
            kind = ""
        self._optimizer = self._model = None
        unmeasured = [] if self._kind or any(replica.expected_at for replica in replicas) else ["forward"]
        # A GPU's timeline is followed for DDP only, and by the host's clock nobody waits for a collective on it.
        on_gpu = any(parameter.is_cuda for parameter in parameters[:1]) and listener.events is None
        if (alone and not replicas) or on_gpu:
            unmeasured += ["wait", "transfer"]
        listener.identity.trains(kind, unmeasured)

    def _kinds(self, optimizer: Any, parameters: Sequence[Any], ddp: bool, alone: bool) -> list[str]:
        if self._model is not None:
            self._wrapped_in = _wrapped_in(self._kind, self._model, parameters)
        kinds = list(self._wrapped_in)
        if type(optimizer).__module__.startswith("deepspeed."):
            kinds = [DEEPSPEED]
        elif not kinds and any(getattr(parameter, "_fsdp_flattened", False) for parameter in parameters):
            kinds = [FSDP]
        elif not kinds and ddp:
            kinds = [DDP]
        if self._kind != FSDP2 and (self._tensor_parallel or any(map(_is_sharded, parameters))):
            kinds.append(TENSOR_PARALLEL)
        return kinds or [ALONE if alone else NOT_PARALLEL]


def _wrapped_in(kind: str, model: Any, parameters: Sequence[Any]) -> list[str]:
    """What a wrapper is, by its first model and what an optimizer steps on."""
    if kind == FSDP2:
        hybrid, tensor_parallel = _meshes(model, parameters)
        return [FSDP2 + HYBRID * hybrid, TENSOR_PARALLEL][: 1 + tensor_parallel]
    strategy = getattr(getattr(model, "sharding_strategy", None), "name", "")
    return [kind + HYBRID * (kind == FSDP and "HYBRID" in strategy)]


def _meshes(state: Any, parameters: Sequence[Any]) -> tuple[bool, bool]:
    """Of FSDP2: whether the ranks are replicas of a few that shard, and whether parameters are sharded by more."""
    states = [state, *getattr(getattr(state, "_state_ctx", None), "all_states", ())]
    groups = [group for one in states for group in getattr(one, "_fsdp_param_groups", None) or (one._fsdp_param_group,)]
    mesh = next((group.mesh_info for group in groups if group is not None), None)
    if mesh is None:
        return False, False
    hybrid = mesh.shard_mesh_dim is not None and mesh.replicate_mesh_dim is not None
    most = max((one.device_mesh.ndim for one in parameters if type(one).__name__ == "DTensor"), default=0)
    return hybrid, most > mesh.mesh.ndim


def _is_sharded(parameter: Any) -> bool:
    """Whether it is a DTensor, or was one before DDP took its local part."""
    return type(parameter).__name__ == "DTensor" or hasattr(parameter, "_st_info")


def _parameters(optimizer: Any) -> list[Any]:
    """Of an optimizer, some of them where there are very many."""
    groups = getattr(optimizer, "param_groups", None) or ()
    return list(islice((parameter for group in groups for parameter in group["params"]), MOST_PARAMETERS))
