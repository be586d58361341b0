"""Hooks the alternatives to DDP: FSDP, DeepSpeed, DataParallel, and averaging of weights (local SGD)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from torch.nn.parallel import DistributedDataParallel

from ddpmon.messages import DATA_PARALLEL, DEEPSPEED, FSDP, FSDP2
from ddpmon.probe.interception import passed_argument, when_imported, wrap_attribute
from ddpmon.probe.listener import Listener


class Wrapper(NamedTuple):
    """A class that runs the forward of a model or of a part of it."""

    kind: str
    modules: tuple[str, ...]
    """The class's module, and its modules in older versions."""
    name: str
    begins: str = "forward"
    """Name of the method that begins a forward. torch looks it up on the class at each call, so it can be replaced."""
    ends: tuple[str, ...] = ()
    """Possible names of the method that a forward calls last. Empty if the forward ends when `begins` returns."""


WRAPPERS = (
    Wrapper(
        FSDP2,
        ("torch.distributed.fsdp._fully_shard._fsdp_state", "torch.distributed._composable.fsdp._fsdp_state"),
        "FSDPState",
        # FSDP2 binds its module hooks too early to be replaced, but looks up the methods that they call each time.
        "_root_pre_forward",
        ("_cast_output_dtype", "_register_pre_backward_hook"),
    ),
    Wrapper(FSDP, ("torch.distributed.fsdp.fully_sharded_data_parallel",), "FullyShardedDataParallel"),
    Wrapper(DEEPSPEED, ("deepspeed.runtime.engine",), "DeepSpeedEngine"),
    Wrapper(DATA_PARALLEL, ("torch.nn.parallel.data_parallel",), "DataParallel"),
)
AVERAGERS = (
    ("torch.distributed.algorithms.model_averaging.averagers", "ModelAverager", "__init__"),
    ("accelerate.local_sgd", "LocalSGD", "__enter__"),
)
"""Classes that sometimes average the ranks' weights: (module, class, method whose call shows that it is used)."""
HOOK_STATE = "PostLocalSGDState"
"""Class of the state of a communication hook that reduces gradients only among some of the ranks."""


def hook_wrappers(listener: Listener) -> None:
    """Hook wrappers and averagers once the script has imported them, and DDP's registration of communication hooks."""
    for wrapper in WRAPPERS:
        hear = partial(_hear, listener, wrapper)
        when_imported(listener, wrapper.modules, wrapper.name, wrapper.begins, hear)

    def averages(_result: object, arguments: tuple[Any, ...]) -> None:
        if getattr(arguments[0], "enabled", True):
            listener.parallelism.averages_weights()

    def hook_registered(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if type(passed_argument(arguments, named, 1, "state")).__name__ == HOOK_STATE:
            listener.parallelism.averages_weights()

    for module, name, method in AVERAGERS:
        when_imported(listener, (module,), name, method, partial(wrap_attribute, listener, path=method, after=averages))
    wrap_attribute(listener, DistributedDataParallel, "register_comm_hook", before=hook_registered)


def _hear(listener: Listener, wrapper: Wrapper, owner: type) -> None:
    def forward_begins(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        listener.parallel_begins(wrapper.kind, arguments[0], arguments[1:], named)

    def hook_begins(arguments: tuple[Any, ...], _named: object) -> None:
        state, _, inputs, named = (*arguments, (), {})[:4]
        listener.parallel_begins(wrapper.kind, state, inputs, named)

    around = partial(wrap_attribute, listener, owner, traced=True)
    claims, ends = listener.trains_here, listener.parallel_ends
    if not wrapper.ends:
        fails = listener.parallel_fails
        around(wrapper.begins, before=forward_begins, after=ends, failed=fails, claims=claims)
    elif last := next((name for name in wrapper.ends if hasattr(owner, name)), None):
        around(wrapper.begins, before=hook_begins, claims=claims)
        around(last, after=ends)
