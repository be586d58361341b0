"""Arms the probe in a process that trains already, and removes it again. The job goes on in both cases.

Whoever attaches runs these two on the main thread, between two bytecodes. Each answers with a JSON file, and raises
nothing into the job. Nothing of torch or of the other parts of the probe is imported before it is certain that this
process trains.
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
"""Folders that were appended to `sys.path` for the probe; whoever attaches sets it before `arm`."""
UNMEASURED = (
    "the all-reduce of each bucket, because a model that already trains accepts no communication hook",
    "functions of torch that the script imported by name, because the script calls the original functions",
    "output, losses and steps from before the attach",
)
"""What cannot be measured in a process that was running before."""


def arm(socket: str, run_id: str, folder: str, reply: str, ranks: int = 0, *, hub_given: bool = False) -> None:
    """Watch this process from now on. Harmless where the same run watches it already.

    Args:
        socket: Address of the run's hub.
        run_id: The run's id.
        folder: The run's folder.
        reply: File that gets the answer: {"ok": true, "rank": …} or {"ok": false, "error": "one line"}. It may come
            some milliseconds after this returns, as some moments of an optimizer's step are not interrupted.
        ranks: Count of ranks on this machine that are entered; 0: all of the job.
        hub_given: The run has ranks on other machines, whose hubs were given a place to meet.

    """

    def act() -> None:
        settings = RunSettings(run_id, socket, folder, alone=not hub_given, hub_given=hub_given, attached=True)
        _answer(reply, lambda: _arm(settings, ranks))

    _when_quiet(reply, act)


def disarm(reply: str) -> None:
    """Leave this process as it was: the answer comes once nothing of the probe is left."""

    def act() -> None:
        try:
            _disarm(reply)
        except Exception as error:
            _write(reply, _refusal(error))

    _when_quiet(reply, act)


def _when_quiet(reply: str, act: Callable[[], None]) -> None:
    def give_up() -> None:
        _write(reply, {"ok": False, "error": "ddpmon could not add its hooks to an optimizer; try again"})

    try:
        from ddpmon.probe.quiet import when_quiet

        when_quiet(act, give_up)
    except Exception as error:
        _write(reply, _refusal(error))


def _answer(reply: str, act: Callable[[], dict[str, Any]]) -> None:
    try:
        facts = {"ok": True, **act()}
    except Exception as error:
        facts = _refusal(error)
    _write(reply, facts)


def _refusal(error: Exception) -> dict[str, Any]:
    text = str(error) if isinstance(error, _CannotWatchError) else f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = [] if isinstance(error, _CannotWatchError) else [f"{one.filename}:{one.lineno}" for one in frames]
    return {"ok": False, "error": " ".join(text.split()), "where": where}


def _write(reply: str, facts: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # whoever waits for it has gone
        draft = f"{reply}.new"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), **facts}, file)
        os.replace(draft, reply)


class _CannotWatchError(Exception):
    """This process cannot be watched: the message says why, and what to do."""


def _check_torch() -> None:
    torch = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        raise _CannotWatchError("this process has not imported torch; attach when it trains")


def _arm(settings: RunSettings, ranks: int) -> dict[str, Any]:
    """Return what the answer to an attach says of this rank."""
    _check_torch()
    from ddpmon.probe import arm as arming
    from ddpmon.probe import existing, run_settings

    listener = arming.armed()
    if listener is not None and run_settings.current() == settings and listener.listening:
        return _facts(listener, existing.find())
    if listener is not None:
        watching = run_settings.current().run_id
        raise _CannotWatchError(
            f"the run {watching} already watches this process; open its dashboard with ddpmon attach {watching}"
        )
    run_settings.give(settings)
    try:
        found = existing.find()
        listener = arming.listen()
        existing.hear(listener, found)
        listener.found_running(ranks)
        if not (found.models or found.optimizers or listener.has_group or "RANK" in os.environ):
            raise _CannotWatchError("this process does not train yet; attach when it has a model and an optimizer")
        listener.start()
        listener.hot.start = listener.account.start  # now that another thread reads the notes
    except BaseException:
        arming.leave(lambda: None)
        run_settings.give(None)
        raise
    return _facts(listener, found)


def _facts(listener: Any, found: Any) -> dict[str, Any]:
    identity = listener.identity
    return {
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "world": identity.world_size,
        "models": len(found.models),
        "optimizers": len(found.optimizers),
        "loaders": len(found.iterators),
        "wrappers": found.wrappers,
        "torch": identity.torch_version,
        "unmeasured": list(UNMEASURED),
    }


def _disarm(reply: str) -> None:
    arming = sys.modules.get("ddpmon.probe.arm")
    listener = arming.armed() if arming is not None else None
    if arming is None or listener is None:
        _remove_paths()
        _write(reply, {"ok": True, "watched": False})
        return
    from ddpmon.probe import run_settings

    if not run_settings.current().attached:
        raise _CannotWatchError("ddpmon run started this process and watches it until its end")

    def ended() -> None:
        run_settings.give(None)
        _remove_paths()
        _write(reply, {"ok": True, "watched": True, "left": listener.changes.left})

    arming.leave(ended)


def _remove_paths() -> None:
    for path in added_paths:
        if path in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(path)]  # it was appended
    added_paths.clear()
