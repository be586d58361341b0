"""Notices pauses in training: evaluations and compilations."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from ddpmon.messages import COMPILATION
from ddpmon.probe.account import Account
from ddpmon.probe.parallelism import parameters_of
from ddpmon.probe.thread_listener import ThreadListener


class Pauses:
    """Writes notes when a script begins to evaluate a trained model, or compiles."""

    def __init__(self, listener: ThreadListener) -> None:
        self._listener = listener
        self._skipped = False
        """True if the compiler has been told to skip the probe's own code."""
        self.reset()

    def reset(self) -> None:
        """Reset all state, as in a new process."""
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._in_compiler = False

    def optimizer_made(self, optimizer: Any) -> None:
        """Register an optimizer. Modules that it updates count as trained."""
        self._optimizers.add(optimizer)

    def evaluation_begins(self, _result: object, arguments: tuple[Any, ...]) -> None:
        """Handle `module.eval()`, if the module is trained here."""
        module = arguments[0]
        listener = self._listener
        replicas = listener.replicas
        if (not replicas or replicas.contains_module(module)) and updates_module(self._optimizers, module):
            listener.digest_soon()
            listener.record(Account.evaluation_begins)

    def optimizers(self) -> list[Any]:
        """Return the living optimizers."""
        return list(self._optimizers)

    def ids_sharing_parameters(self, optimizer: Any) -> list[int]:
        """Return the ids of other optimizers that share parameters with `optimizer`, such as its wrapper."""
        mine = set(map(id, parameters_of(optimizer)))
        others = [one for one in self._optimizers if one is not optimizer]
        return [id(one) for one in others if not mine.isdisjoint(map(id, parameters_of(one)))]

    def compiler_there(self, _result: object, _arguments: object) -> None:
        """Handle torch.compile: notice compilations from now on, and prevent the compilation of the probe itself."""
        if not self._skipped:
            self._skipped = True
            _skip(getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None))
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is not None and self._compiling not in handler.start_callbacks:
            handler.register_start_callback(self._compiling)
            handler.register_end_callback(self._compiled)
            self._listener.changes.undone_by(lambda: handler.remove_start_callback(self._compiling))
            self._listener.changes.undone_by(lambda: handler.remove_end_callback(self._compiled))

    def _compiling(self, *_args: object) -> None:
        if self._listener.on_training_thread():
            self._in_compiler = True
            self._listener.record(Account.pause_begins, COMPILATION)

    def _compiled(self, *_args: object) -> None:
        if self._listener.on_training_thread() and self._in_compiler:
            self._in_compiler = False
            self._listener.record(Account.pause_ends)


def updates_module(optimizers: Iterable[Any], module: Any) -> bool:
    """Return whether any of the optimizers updates a module or a part of it."""
    updated = {id(group["params"][0]) for one in optimizers for group in one.param_groups if group["params"]}
    return any(id(parameter) in updated for parameter in module.parameters())


def _skip(skip: Callable[[CodeType], object] | None) -> None:
    """Make Dynamo skip every function of the probe, which it would otherwise compile, and recompile often."""
    if skip is None:
        return
    ours = [module for name, module in sys.modules.items() if name.startswith("ddpmon.")]
    owners = [*ours, *(one for module in ours for one in vars(module).values() if isinstance(one, type))]
    for owner in owners:
        for one in list(vars(owner).values()):
            if isinstance(one, FunctionType) and one.__module__.startswith("ddpmon."):
                for code in _nested(one.__code__):
                    skip(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
