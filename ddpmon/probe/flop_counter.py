"""Counts the floating-point operations of a step's model, with the formulas of torch.utils.flop_counter.

torch's own FlopCounterMode also decomposes operators and hooks modules. This class only observes, so that the step
computes what it would compute without it.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class FlopCounter(TorchDispatchMode):  # type: ignore[misc]
    """Counts FLOPs of forward and backward in the thread that starts the counter, without evaluations or optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self._thread = get_ident()
        self._is_inside = self._is_over = False

    def end(self) -> None:
        """Stop counting. If called in another thread or inside an operator, the mode stays on, but does nothing."""
        self._is_over = True
        if get_ident() == self._thread and not self._is_inside:
            self.__exit__(None, None, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._is_inside = True
        try:
            result = func(*args, **(kwargs or {}))
            if not self._is_over and (torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1):
                formula = flop_registry.get(func._overloadpacket)
                self.flops += 0 if formula is None else formula(*args, **(kwargs or {}), out_val=result)
        finally:
            self._is_inside = False
        return result


def is_compiled() -> bool:
    """Return whether torch.compile has compiled anything here. Under the counter, such code would run uncompiled."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and dynamo.counters["stats"].get("unique_graphs", 0) > 0
