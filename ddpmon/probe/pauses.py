"""What a script does besides training: it evaluates, writes checkpoints, has torch.compile compile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from ddpmon.messages import CHECKPOINT, COMPILATION
from ddpmon.probe.hearing import Hearing


class Pauses:
    """Tells the step clock when a script evaluates, saves or compiles instead of training."""

    def __init__(self, listener: Hearing) -> None:
        self._listener = listener
        self._skipped = False
        """Whether the compiler was told to leave the probe's own code alone."""
        self.begin()

    def begin(self) -> None:
        """Start from nothing: a new process."""
        self._in_compiler = False
        self._undecided = False
        """Whether the last forward was of a model in evaluation mode, with gradients."""
        self._trains_in_eval = False
        """Whether a model in evaluation mode was trained: then the mode tells nothing."""

    def evaluates(self, model: Any) -> bool:
        """Whether a forward that begins now is part of an evaluation."""
        clock = self._listener.clock
        # Of what is wrapped: frameworks put that back into training mode and leave the wrapper as it is.
        held_out = not getattr(getattr(model, "module", model), "training", True) and not self._trains_in_eval
        if not torch.is_grad_enabled():
            clock.evaluated()
            clock.evaluates(explained=held_out)
            return True
        # Some evaluate without switching gradients off, some train in evaluation mode: a backward will tell.
        self._undecided = held_out and clock.pausing is not None
        return self._undecided

    def trains(self) -> None:
        """A backward begins: the last forward was part of training."""
        self._trains_in_eval = self._trains_in_eval or self._undecided

    def evaluation_begins(self, _result: object, module: object) -> None:
        """`module.eval()` was called, perhaps on what is trained here."""
        listener = self._listener
        trained = listener.replicas.trains(module) if listener.replicas else listener.iteration.updates(module)
        if trained and not self._trains_in_eval:
            listener.clock.evaluates(explained=True)

    def saving_begins(self, *_args: object, **_named: object) -> None:
        self._listener.beats += 1
        self._listener.clock.begin_pause(CHECKPOINT)

    def saving_ends(self, *_args: object) -> None:
        self._listener.beats += 1
        self._listener.clock.end_pause()

    def compiler_there(self, _result: object, *_args: object) -> None:
        """torch.compile was called: from now on torch tells when it compiles, and leaves the probe as it is."""
        if not self._skipped:
            self._skipped = True
            _skip(getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None))
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is not None and self._compiling not in handler.start_callbacks:
            handler.register_start_callback(self._compiling)
            handler.register_end_callback(self._compiled)

    def _compiling(self, *_args: object) -> None:
        if self._listener.hears():
            self._in_compiler = True
            self._listener.clock.begin_pause(COMPILATION)

    def _compiled(self, *_args: object) -> None:
        if self._listener.hears() and self._in_compiler:
            self._in_compiler = False
            self._listener.beats += 1
            self._listener.clock.end_pause()


def _skip(skip: Callable[[CodeType], object] | None) -> None:
    """Have Dynamo run every function of the probe as it is: compiled, they would be compiled again at each change."""
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
