"""Runs slow reads on a daemon thread, so that the screen stays usable and the user can leave at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def on_daemon_thread(work: Callable[[], Result]) -> Result:
    """Run `work` on its own daemon thread. Return its result, or raise its exception.

    If the dashboard ends first, `work` is abandoned, so `work` must not change anything. A daemon thread is needed
    because asyncio and Python wait for all other threads before they end.
    """
    result: Future[Result] = Future()
    result.set_running_or_notify_cancel()  # cancelling the caller must not cancel it

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, name="ddpmon-reading", daemon=True).start()
    return await asyncio.wrap_future(result)
