"""Hear what averages the weights of ranks now and then (local SGD): they are meant to differ in between.

Nothing is imported for it: when a process group, a model or an optimizer is set up, what trains with it is there
already. Names inside these libraries are looked for, never assumed.
"""

from __future__ import annotations

import sys

from torch.nn.parallel import DistributedDataParallel

from ddpmon.probe.interception import replace
from ddpmon.probe.listener import Listener

AVERAGERS = (
    ("torch.distributed.algorithms.model_averaging.averagers", "ModelAverager", "__init__"),
    ("accelerate.local_sgd", "LocalSGD", "__enter__"),
)
"""Modules, their classes, and the methods that are called where one is used."""
HOOK_STATE = "PostLocalSGDState"
"""The class of a communication hook's state that reduces gradients among some of the ranks only."""


def install(listener: Listener) -> None:
    """Hear of averagers as soon as they are there, and of DDP's communication hooks; once in a process."""
    replaced: set[type] = set()

    def averages(_result: object, averager: object, *_args: object) -> None:
        if getattr(averager, "enabled", True):
            listener.parallelism.averages_weights()

    def hook_registered(_model: object, state: object = None, *_args: object, **_named: object) -> None:
        if type(state).__name__ == HOOK_STATE:
            listener.parallelism.averages_weights()

    def hear_imported() -> None:
        for module, name, method in AVERAGERS:
            averager = getattr(sys.modules.get(module), name, None)
            if isinstance(averager, type) and averager not in replaced and callable(getattr(averager, method, None)):
                replaced.add(averager)
                replace(averager, method, listener, after=averages)

    replace(DistributedDataParallel, "register_comm_hook", listener, before=hook_registered)
    listener.on_set_up.append(hear_imported)
