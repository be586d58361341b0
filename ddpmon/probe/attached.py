"""Arms the probe in a process that is already training, and removes it again. The job continues in both cases.

`ddpmon attach` makes the process call these two functions on its main thread, between two bytecodes. Each writes its
answer as a JSON file, and raises nothing into the job. Nothing of torch or of the other parts of the probe is imported
until it is certain that this process trains.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ddpmon.probe.run_settings import RunSettings

added_paths: list[str] = []
"""Folders that were appended to `sys.path` for the probe. The attaching code sets this before it calls `arm`."""
UNMEASURED = (
    "the all-reduce of each bucket, because a model that already trains accepts no communication hook",
    "functions of torch that the script imported by name, because the script calls the original functions",
    "output, losses and steps from before the attach",
)
"""Measurements that are impossible in a process that was running before the probe came."""


def arm(socket: str, run_id: str, folder: str, reply: str, ranks: int = 0, *, hub_given: bool = False) -> None:
    """Watch this process from now on. Does nothing if the same run already watches it.

    Args:
        socket: Address of the run's hub.
        run_id: Id of the run.
        folder: Folder of the run.
        reply: File for the answer, {"ok": true, "rank": …} or {"ok": false, "error": "one line"}. It may appear some
            milliseconds after `arm` returns, because some moments of an optimizer's step must not be interrupted.
        ranks: Number of ranks on this machine that ddpmon attaches to; 0 for all ranks of the job.
        hub_given: True if the run has ranks on other machines, whose hubs know the root hub's address.

    """
    settings = RunSettings(run_id, socket, folder, alone=not hub_given, hub_given=hub_given, attached=True)
    _when_quiet(reply, lambda: _write(reply, {"ok": True, **_arm(settings, ranks)}))


def disarm(reply: str) -> None:
    """Remove the probe from this process. The answer is written to `reply` once nothing of the probe is left."""
    _when_quiet(reply, lambda: _disarm(reply))


def _when_quiet(reply: str, act: Callable[[], None]) -> None:
    """Call `act` at the next moment at which the training may be interrupted. If it raises, answer with the error."""

    def refuse(error: Exception) -> None:
        expected = isinstance(error, _CannotWatchError)
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        frames = [] if expected else traceback.extract_tb(error.__traceback__)[-3:]
        where = [f"{one.filename}:{one.lineno}" for one in frames]
        _write(reply, {"ok": False, "error": " ".join(text.split()), "where": where})

    def attempt() -> None:
        try:
            act()
        except Exception as error:
            refuse(error)

    try:
        from ddpmon.probe.safe_moment import when_quiet

        busy = _CannotWatchError("ddpmon could not add its hooks to an optimizer; try again")
        when_quiet(attempt, lambda: refuse(busy))
    except Exception as error:
        refuse(error)


def _write(reply: str, facts: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # The attaching process may have gone.
        draft = f"{reply}.new"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), **facts}, file)
        os.replace(draft, reply)


class _CannotWatchError(Exception):
    """This process cannot be watched. The message says why, and what to do."""


def _check_torch() -> None:
    torch = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        raise _CannotWatchError("this process has not imported torch; attach when it trains")


def _arm(settings: RunSettings, ranks: int) -> dict[str, Any]:
    """Arm the probe; return the facts about this rank for the answer to the attach."""
    _check_torch()
    from ddpmon.probe import arm as arming
    from ddpmon.probe import existing_objects, run_settings

    listener = arming.current_listener()
    if listener is not None and run_settings.in_force() == settings and listener.listening:
        return _facts(listener, existing_objects.find_tracked())
    if listener is not None:
        watching = run_settings.in_force().run_id
        raise _CannotWatchError(
            f"the run {watching} already watches this process; open its dashboard with ddpmon attach {watching}"
        )
    run_settings.override_environment(settings)
    try:
        found = existing_objects.find_tracked()
        listener = arming.hook_torch()
        existing_objects.register_tracked(listener, found)
        listener.found_running(ranks)
        if not (found.models or found.optimizers or listener.has_group or "RANK" in os.environ):
            raise _CannotWatchError("this process does not train yet; attach when it has a model and an optimizer")
        listener.start()
        listener.hot.start = listener.account.start  # The sender's thread reads the notes from now on.
    except BaseException:
        arming.leave(lambda: None)
        run_settings.override_environment(None)
        raise
    return _facts(listener, found)


def _facts(listener: Any, found: Any) -> dict[str, Any]:
    identity = listener.identity
    return {
        "rank": identity.facts.rank,
        "local_rank": identity.facts.local_rank,
        "world": identity.facts.world_size,
        "models": len(found.models),
        "optimizers": len(found.optimizers),
        "loaders": len(found.iterators),
        "wrappers": found.wrappers,
        "torch": identity.facts.torch_version,
        "unmeasured": list(UNMEASURED),
    }


def _disarm(reply: str) -> None:
    arming = sys.modules.get("ddpmon.probe.arm")
    listener = arming.current_listener() if arming is not None else None
    if arming is None or listener is None:
        _remove_paths()
        _write(reply, {"ok": True, "watched": False})
        return
    from ddpmon.probe import run_settings

    if not run_settings.in_force().attached:
        raise _CannotWatchError("ddpmon run started this process and watches it until its end")

    def ended() -> None:
        run_settings.override_environment(None)
        _remove_paths()
        _write(reply, {"ok": True, "watched": True, "left": listener.changes.left})

    arming.leave(ended)


def _remove_paths() -> None:
    for path in added_paths:
        if path in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(path)]  # remove the last one, because it was appended
    added_paths.clear()
