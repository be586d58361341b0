"""Puts hooks around single functions of torch.

No hook changes a result. Every wrapper calls the original function with the same arguments, returns its result, and
lets its exceptions pass without a frame of ddpmon in the traceback. If a hook fails, the probe disarms itself, and the
call continues.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from ddpmon.probe.thread_listener import ThreadListener


def has_attributes(listener: ThreadListener, owner: Any, *names: str) -> bool:
    """Return whether this torch has all these attributes. Adds a note about the first one that is missing."""
    missing = next((name for name in names if not hasattr(owner, name)), None)
    if missing is not None:
        where = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", "torch")
        listener.identity.add_note(
            f"torch {torch.__version__} has no {where}.{missing}, so some measurements are missing"
        )
    return missing is None


def guarded_hook(
    listener: ThreadListener, listen: Callable[[Any], None], *, claims: Callable[[], bool] | None = None
) -> Callable[..., None]:
    """Return a hook that calls `listen` on the training thread and never raises. claims: see `wrap_attribute`."""
    hot = listener.hot

    def hook(heard: Any, *_args: object) -> None:
        if get_ident() == hot.thread or (claims is not None and claims()):
            try:
                listen(heard)
            except Exception as error:
                listener.disable(error)

    return hook


def wrap_attribute(
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
    """Replace `owner.path` by a wrapper that calls hooks. The hooks run on the training thread only.

    Args:
        listener: Knows the training thread; it is disabled if a hook raises.
        owner: A module or class.
        path: Name of a function in it, or of a class in it and a method, joined by a dot.
        before: Called first, with the positional and the named arguments.
        after: Called with the result and the positional arguments.
        failed: Called if the original raised.
        claims: Called on any other thread; returns True if the hooks run on that thread too. Must not raise.
        traced: True if torch.compile may trace this function in the script. No hook runs while it is traced.

    """
    holder, _, name = path.rpartition(".")
    if holder and not has_attributes(listener, owner, holder):
        return
    owner = getattr(owner, holder) if holder else owner
    if not has_attributes(listener, owner, name):
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


def passed_argument(arguments: tuple[Any, ...], named: dict[str, Any], place: int, name: str) -> Any:
    """Return an argument that may be passed by position or by name; None if it was not passed."""
    return arguments[place] if len(arguments) > place else named.get(name)


def _failed(error: BaseException, listener: ThreadListener, failed: Callable[[], object] | None) -> None:
    """Call `failed`, and remove the wrapper's frame from the error's traceback. A bare raise does not add it again."""
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
    if failed is not None and listener.listening:
        try:
            failed()
        except Exception as failure:  # After a CUDA error, every further CUDA call of the probe fails too.
            listener.disable(failure)


def when_imported(
    listener: ThreadListener, modules: tuple[str, ...], name: str, method: str, install: Callable[[type], None]
) -> None:
    """Install hooks into a class once the script has imported it; never import it.

    The class is looked up when a model or an optimizer is set up, because the script has imported its training library
    by then. The class or the method may be missing in other versions of the library.

    Args:
        listener: Calls the functions in its `on_set_up` whenever something is set up.
        modules: The class's module, and its modules in older versions.
        name: Name of the class.
        method: A method that the class must have.
        install: Called with the class, once per process.

    """
    waiting = [install]

    def install_if_imported() -> None:
        for module in modules:
            owner = getattr(sys.modules.get(module), name, None)
            if isinstance(owner, type) and callable(getattr(owner, method, None)) and waiting:
                waiting.pop()(owner)

    listener.on_set_up.append(install_if_imported)
    install_if_imported()
