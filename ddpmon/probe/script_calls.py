"""Handles a script's own calls of ddpmon: values to log, begin and end of steps, and named spans in them.

A script may pass anything. A number in any form of Python, NumPy or torch is accepted. Any other value is ignored and
reported once. Nothing raises into the script.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import torch

from ddpmon.messages import MAX_LOGGED, MAX_NAME, MAX_STEP
from ddpmon.probe.account import Account
from ddpmon.probe.thread_listener import ThreadListener

_Arguments = ParamSpec("_Arguments")


def _harmless(
    call: Callable[Concatenate[ScriptCalls, _Arguments], None],
) -> Callable[Concatenate[ScriptCalls, _Arguments], None]:
    """Wrap a method that the script calls, so that an error in ddpmon disables the probe and does not raise."""

    @functools.wraps(call)
    def wrapper(self: ScriptCalls, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            call(self, *args, **kwargs)
        except Exception as error:
            self.disable(error)

    return wrapper


class ScriptCalls(ThreadListener, ABC):
    """The part of a listener that `ddpmon.log`, `ddpmon.step` and `ddpmon.phase` call."""

    @abstractmethod
    def start(self) -> None:
        """Start the sender, because this process is a rank."""

    @_harmless
    def log(self, values: dict[str, Any]) -> None:
        numbers: list[tuple[str, object]] = []
        for name, value in values.items():
            if not (0 < len(name) <= MAX_LOGGED and name.isprintable()):
                self._left_out(f"ddpmon.log needs a name of 1 to {MAX_LOGGED} printable characters")
            elif isinstance(value, torch.Tensor) and value.is_cuda and value.numel() == 1 and not value.is_complex():
                numbers.append((name, self.readings.start_copy(value)))
            elif (number := _number(value)) is not None:
                numbers.append((name, number))
            else:
                self._left_out(f"ddpmon.log({name}=…) needs a number; {_kind(value)}")
        self.record(Account.store_values, numbers)

    @_harmless
    def enter_step(self, samples: Any, total: Any) -> None:
        if self.on_training_thread():
            counted = self._count("samples", samples, least=0)
            self.record(Account.step_entered, counted, self._count("total", total, least=1))

    def _count(self, name: str, value: Any, *, least: int) -> int | None:
        """Return an argument of `ddpmon.step` as a whole number; None if it is missing or not a whole number."""
        if value is None:
            return None
        # Reading a value on a GPU would have to wait for it.
        number = None if isinstance(value, torch.Tensor) and value.is_cuda else _number(value)
        if number is not None and number.is_integer() and least <= number < MAX_STEP:
            return int(number)
        self._left_out(f"ddpmon.step({name}=…) needs a whole number from {least} on; {_kind(value)}")
        return None

    def _left_out(self, why: str) -> None:
        """Report, only once, that ddpmon ignores a value of the script. why: the reason."""
        if self.identity.add_note(f"{why}, and ddpmon ignores it"):
            with contextlib.suppress(Exception):  # The script may have replaced stderr.
                print(f"ddpmon: {why}, and ddpmon ignores it", file=sys.stderr)

    @_harmless
    def exit_step(self) -> None:
        if self.on_training_thread():
            self.start()
            self.record(Account.step_left)

    @_harmless
    def enter_phase(self, name: str) -> None:
        if self.on_training_thread():
            if isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable():
                self.record(Account.phase_entered, name)
            else:
                self.identity.add_note(
                    f"ddpmon.phase needs a name of 1 to {MAX_NAME} printable characters, and ignores other names"
                )

    @_harmless
    def exit_phase(self, name: str) -> None:
        if self.on_training_thread() and isinstance(name, str):
            self.record(Account.phase_left, name)


def _number(value: Any) -> float | None:
    """Return the number in a value of any form; None if the value is not exactly one number."""
    try:
        one = getattr(value, "item", None)  # Tensors and arrays with one element have it, whatever their shape.
        return float(one() if callable(one) else value)
    except Exception:  # A class of the script's own may raise anything.
        return None


def _kind(value: Any) -> str:
    """Return a description of a value that was passed instead of a number."""
    if isinstance(value, torch.Tensor):
        return f"the script passed a tensor of {value.numel():,} values on {value.device}"
    if isinstance(value, (int, float)):
        return f"the script passed {value!r:.40}"
    if value is None:
        return "the script passed None"
    return f"the script passed a value of type {type(value).__name__:.40}"
