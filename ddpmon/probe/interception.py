"""Puts listening around calls of torch's, one by one.

Nothing here changes what is computed. Every wrapper calls the original with the arguments it got, returns what it
returned and lets its exceptions through without a frame of ours in the traceback; the listening around it may fail,
and then the probe leaves while the call goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ddpmon.probe.hearing import Hearing


def offers(owner: Any, *names: str, listener: Hearing) -> bool:
    """Whether this torch has all of these places; what it lacks is said once, and not listened to."""
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        where = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", "torch")
        listener.identity.note(
            f"torch {torch.__version__} has no {where}.{missing[0]}: what is measured there is missing"
        )
    return not missing


def guarded(listener: Hearing, listen: Callable[..., None]) -> Callable[..., None]:
    """A hook for torch to call that never raises."""

    def hook(*args: Any) -> None:
        if listener.listening:
            try:
                listen(*args)
            except Exception as error:
                listener.leave(error)

    return hook


def replace(
    owner: Any,
    name: str,
    listener: Hearing,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
    failed: Callable[[], None] | None = None,
    hears: Callable[[], bool] | None = None,
    traced: bool = False,
) -> None:
    """Put a listening wrapper in the place of `owner.name`.

    before(*args, **kwargs) hears the arguments, after(result, *args) the result and the positional ones, failed()
    that the original raised. They are only called where hears() says so: on the training thread.
    traced: torch.compile may look into it from a function of the script, and must see nothing but the original.
    """
    if not offers(owner, name, listener=listener):
        return
    original = getattr(owner, name)
    hears = hears or listener.hears

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if traced and torch.compiler.is_compiling():
            return original(*args, **kwargs)
        heard = hears()
        if heard and before is not None:
            try:
                before(*args, **kwargs)
            except Exception as error:
                listener.leave(error)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if heard and failed is not None and listener.listening:
                try:
                    failed()
                except Exception as failure:  # after an error of CUDA every further call of it fails, an event's too
                    listener.leave(failure)
            # Without our frame; a bare raise does not add it again.
            error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
            raise
        if heard and after is not None and listener.listening:
            try:
                after(result, *args)
            except Exception as error:
                listener.leave(error)
        return result

    setattr(owner, name, wrapper)
