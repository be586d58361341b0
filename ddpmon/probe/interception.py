"""Puts listening around calls of torch's, one by one.

Nothing here changes what is computed. Every wrapper calls the original with the arguments it got, returns what it
returned and lets its exceptions through without a frame of ours in the traceback; the listening around it may fail,
and then the probe leaves while the call goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from ddpmon.probe.hearing import Hearing


def offers(owner: Any, *names: str, listener: Hearing) -> bool:
    """Return whether this torch has all of these places; those that it lacks are reported once, and not listened to."""
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        where = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", "torch")
        listener.identity.note(
            f"torch {torch.__version__} has no {where}.{missing[0]}: what is measured there is missing"
        )
    return not missing


def guarded(
    listener: Hearing, listen: Callable[[Any], None], *, claims: Callable[[], bool] | None = None
) -> Callable[..., None]:
    """A hook for torch to call that never raises; listens on the training thread. claims: see `replace`."""
    pen = listener.pen

    def hook(heard: Any, *_args: object) -> None:
        if get_ident() == pen.thread or (claims is not None and claims()):
            try:
                listen(heard)
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
    first: bool = False,
    packed: bool = False,
    claims: Callable[[], bool] | None = None,
) -> None:
    """Put a listening wrapper in the place of `owner.name`.

    before(*args, **kwargs) gets the arguments, after(result, *args) the result and the positional ones, failed()
    that the original raised. They are only called where hears() says so: on the training thread.
    traced: torch.compile may look into it from a function of the script, and must see nothing but the original.
    first: of the arguments, they only need the first one, before(first) and after(result, first): that is cheaper.
    packed: before(args, kwargs) and after(result) get them as they are; with kwargs, that is cheaper too.
    claims: asked on any other thread: whether this call makes it the training thread. Must not raise.
    """
    if not offers(owner, name, listener=listener):
        return
    original = getattr(owner, name)
    if first:
        wrapper = _first_wrapper(original, listener, before, after, failed)
    elif packed:
        wrapper = _packed_wrapper(original, listener, before, after, failed, claims)
    elif hears is None and not traced:
        wrapper = _wrapper(original, listener, before, after, failed, claims)
    else:
        wrapper = _asking_wrapper(original, listener, before, after, failed, _either(hears or listener.hears, claims))
    setattr(owner, name, functools.update_wrapper(wrapper, original))


def _either(hears: Callable[[], bool], claims: Callable[[], bool] | None) -> Callable[[], bool]:
    return hears if claims is None else lambda: hears() or claims()


def _wrapper(
    original: Any,
    listener: Hearing,
    before: Callable[..., None] | None,
    after: Callable[..., None] | None,
    failed: Callable[[], None] | None,
    claims: Callable[[], bool] | None,
) -> Callable[..., Any]:
    """Wrap a call of every step: the only check is which thread this is."""
    pen = listener.pen

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        heard = get_ident() == pen.thread or (claims is not None and claims())
        if heard and before is not None:
            try:
                before(*args, **kwargs)
            except Exception as error:
                listener.leave(error)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            _failed(error, listener, failed if heard else None)
            raise
        if heard and after is not None and pen.thread:
            try:
                after(result, *args)
            except Exception as error:
                listener.leave(error)
        return result

    return wrapper


def _packed_wrapper(
    original: Any,
    listener: Hearing,
    before: Callable[..., None] | None,
    after: Callable[[Any], None] | None,
    failed: Callable[[], None] | None,
    claims: Callable[[], bool] | None,
) -> Callable[..., Any]:
    """The same; the arguments are packed once, for the original and for who listens."""
    pen = listener.pen

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        heard = get_ident() == pen.thread or (claims is not None and claims())
        if heard and before is not None:
            try:
                before(args, kwargs)
            except Exception as error:
                listener.leave(error)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            _failed(error, listener, failed if heard else None)
            raise
        if heard and after is not None and pen.thread:
            try:
                after(result)
            except Exception as error:
                listener.leave(error)
        return result

    return wrapper


def _first_wrapper(
    original: Any,
    listener: Hearing,
    before: Callable[[Any], None] | None,
    after: Callable[[Any, Any], None] | None,
    failed: Callable[[], None] | None,
) -> Callable[..., Any]:
    """The same, where the first argument is all that is needed: nothing is packed or unpacked for it."""
    pen = listener.pen

    def wrapper(one: Any, *args: Any, **kwargs: Any) -> Any:
        heard = get_ident() == pen.thread
        if heard and before is not None:
            try:
                before(one)
            except Exception as error:
                listener.leave(error)
        try:
            result = original(one, *args, **kwargs) if args or kwargs else original(one)
        except BaseException as error:
            _failed(error, listener, failed if heard else None)
            raise
        if heard and after is not None and pen.thread:
            try:
                after(result, one)
            except Exception as error:
                listener.leave(error)
        return result

    return wrapper


def _failed(error: BaseException, listener: Hearing, failed: Callable[[], None] | None) -> None:
    """The original raised: say so, and take our frame out of its traceback, to which a bare raise does not add it."""
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
    if failed is not None and listener.listening:
        try:
            failed()
        except Exception as failure:  # after an error of CUDA every further call of it fails, an event's too
            listener.leave(failure)


def _asking_wrapper(
    original: Any,
    listener: Hearing,
    before: Callable[..., None] | None,
    after: Callable[..., None] | None,
    failed: Callable[[], None] | None,
    hears: Callable[[], bool],
) -> Callable[..., Any]:
    """Wrap a call that torch.compile may trace, or that comes on other threads."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
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
            _failed(error, listener, failed if heard else None)
            raise
        if heard and after is not None and listener.listening:
            try:
                after(result, *args)
            except Exception as error:
                listener.leave(error)
        return result

    return wrapper
