"""Puts hooks around calls of torch's, one by one.

Nothing here changes what is computed. Every wrapper calls the original with the arguments it got, returns what it
returned and lets its exceptions through without a frame of ours in the traceback; the hooks around it may fail, and
then the probe leaves while the call goes on.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from ddpmon.probe.thread_listener import ThreadListener


def offers(listener: ThreadListener, owner: Any, *names: str) -> bool:
    """Return whether this torch has all of these places. The first that it lacks is reported once."""
    missing = next((name for name in names if not hasattr(owner, name)), None)
    if missing is not None:
        where = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", "torch")
        listener.identity.add_note(
            f"torch {torch.__version__} has no {where}.{missing}, so some measurements are missing"
        )
    return missing is None


def guarded(
    listener: ThreadListener, listen: Callable[[Any], None], *, claims: Callable[[], bool] | None = None
) -> Callable[..., None]:
    """Return a hook for torch to call that never raises; listens on the training thread. claims: see `replace`."""
    hot = listener.hot

    def hook(heard: Any, *_args: object) -> None:
        if get_ident() == hot.thread or (claims is not None and claims()):
            try:
                listen(heard)
            except Exception as error:
                listener.disable(error)

    return hook


def replace(
    listener: ThreadListener,
    owner: Any,
    path: str,
    *,
    before: Callable[[tuple[Any, ...], dict[str, Any]], object] | None = None,
    after: Callable[[Any, tuple[Any, ...]], object] | None = None,
    failed: Callable[[], object] | None = None,
    claims: Callable[[], bool] | None = None,
    traced: bool = False,
) -> None:
    """Put a wrapper that calls hooks in the place of `owner.path`. The hooks run on the training thread only.

    Args:
        listener: Knows the training thread; leaves where a hook raises.
        owner: A module or class.
        path: The name of a function in it, or of a class in it and its method.
        before: Gets the positional and the named arguments.
        after: Gets the result and the positional arguments.
        failed: Is called where the original raised.
        claims: Asked on any other thread: whether this call is heard there too. Must not raise.
        traced: torch.compile may look into it from a function of the script, and must see nothing but the original.

    """
    holder, _, name = path.rpartition(".")
    if holder and not offers(listener, owner, holder):
        return
    owner = getattr(owner, holder) if holder else owner
    if not offers(listener, owner, name):
        return
    original = getattr(owner, name)
    hot = listener.hot

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if traced and torch.compiler.is_compiling():
            return original(*args, **kwargs)
        heard = get_ident() == hot.thread or (claims is not None and claims())
        if heard and before is not None:
            try:
                before(args, kwargs)
            except Exception as error:
                listener.disable(error)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            _failed(error, listener, failed if heard else None)
            raise
        if heard and after is not None and hot.thread:
            try:
                after(result, args)
            except Exception as error:
                listener.disable(error)
        return result

    listener.changes.patch(owner, name, functools.update_wrapper(wrapper, original))


def argument(arguments: tuple[Any, ...], named: dict[str, Any], place: int, name: str) -> Any:
    """Return an argument that a caller may give by its place or by its name; None: it is not given."""
    return arguments[place] if len(arguments) > place else named.get(name)


def _failed(error: BaseException, listener: ThreadListener, failed: Callable[[], object] | None) -> None:
    """The original raised: say so, and take our frame out of its traceback, to which a bare raise does not add it."""
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
    if failed is not None and listener.listening:
        try:
            failed()
        except Exception as failure:  # after an error of CUDA every further call of it fails, an event's too
            listener.disable(failure)


def when_imported(
    listener: ThreadListener, modules: tuple[str, ...], name: str, method: str, install: Callable[[type], None]
) -> None:
    """Have hooks installed into a class once the script has imported it, and nothing where it never does.

    When something is set up, the library that trains with it is there already. Names in other libraries are looked for,
    never assumed.

    Args:
        listener: Calls what is in its `on_set_up` whenever something is set up.
        modules: The class's module now, and in older versions.
        name: The class.
        method: A method that it must have.
        install: Gets the class, once in a process.

    """
    waiting = [install]

    def install_if_imported() -> None:
        for module in modules:
            owner = getattr(sys.modules.get(module), name, None)
            if isinstance(owner, type) and callable(getattr(owner, method, None)) and waiting:
                waiting.pop()(owner)

    listener.on_set_up.append(install_if_imported)
    install_if_imported()
