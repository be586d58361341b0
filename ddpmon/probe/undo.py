"""Records everything that the probe changes in this process, so that it can be undone when ddpmon leaves the job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

_INHERITED = object()


class Changes:
    """Makes changes, and remembers how to undo each of them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        self.left: list[str] = []
        """Names of attributes that other code replaced after the probe did. They keep the probe's wrapper, which does
        nothing any more."""

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or class; `undo_all` restores it."""
        before = vars(owner).get(name, _INHERITED)
        setattr(owner, name, value)
        self._undo.append(partial(self._restore, owner, name, vars(owner)[name], before))

    def undone_by(self, undo: Callable[[], object]) -> None:
        """Remember a change, which `undo` reverts when it is called."""
        self._undo.append(undo)

    def undo_all(self) -> None:
        """Undo all changes, the latest first. A change that cannot be undone does not stop the others."""
        while self._undo:
            undo = self._undo.pop()
            try:
                undo()
            except Exception as error:
                self.left.append(f"{type(error).__name__}: {error}")

    def _restore(self, owner: Any, name: str, value: Any, before: Any) -> None:
        if vars(owner).get(name) is not value:
            self.left.append(f"{getattr(owner, '__qualname__', owner.__name__)}.{name}")
        elif before is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
