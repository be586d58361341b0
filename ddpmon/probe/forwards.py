"""Hooks on forwards that are not DDP's: FSDP's, DeepSpeed's, DataParallel's.

Nothing is imported here that the script has not imported itself: when something is set up, what trains with it is there
already. Names inside these libraries are looked for, never assumed.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from ddpmon.messages import DATA_PARALLEL, DEEPSPEED, FSDP, FSDP2
from ddpmon.probe.interception import replace
from ddpmon.probe.listener import Listener


class Wrapper(NamedTuple):
    """A class that runs the forward of a model, its root's or a part's."""

    kind: str
    modules: tuple[str, ...]
    """Its module now, and in older versions."""
    name: str
    begins: str = "forward"
    """Name of the method that begins forward. Looked up on the class at each call."""
    ends: tuple[str, ...] = ()
    """Names of the method that is called last in it; the first that exists counts. Empty: `begins` is all of forward.
    """


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


def install(listener: Listener) -> None:
    """Hear the wrappers that the script has imported by now, and others when something is set up; once in a process."""
    heard: set[str] = set()

    def hear_imported() -> None:
        for wrapper in WRAPPERS:
            for module in wrapper.modules:
                owner = getattr(sys.modules.get(module), wrapper.name, None)
                if owner is not None and hasattr(owner, wrapper.begins) and wrapper.kind not in heard:
                    heard.add(wrapper.kind)
                    _hear(wrapper, owner, listener)

    listener.on_set_up.append(hear_imported)
    hear_imported()


def _hear(wrapper: Wrapper, owner: Any, listener: Listener) -> None:
    def forward_begins(model: Any, *inputs: Any, **named: Any) -> None:
        listener.parallel_begins(wrapper.kind, model, inputs, named)

    def hook_begins(state: Any, _module: Any, inputs: Any = (), named: Any = None) -> None:
        listener.parallel_begins(wrapper.kind, state, inputs, named or {})

    around: dict[str, Any] = {"after": listener.parallel_ends, "traced": True}
    claims = listener.trains_here
    if not wrapper.ends:
        replace(
            owner,
            wrapper.begins,
            listener,
            before=forward_begins,
            failed=listener.parallel_fails,
            claims=claims,
            **around,
        )
    elif last := next((name for name in wrapper.ends if hasattr(owner, name)), None):
        replace(owner, wrapper.begins, listener, before=hook_begins, traced=True, claims=claims)
        replace(owner, last, listener, **around)
