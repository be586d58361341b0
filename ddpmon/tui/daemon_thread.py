"""Reading that takes seconds, beside the screen: who leaves the dashboard meanwhile does not wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def on_daemon_thread(work: Callable[[], Result]) -> Result:
    """Return what `work` returns or raises. It must change nothing: where the dashboard ends before it, it is dropped.

    On a daemon thread of its own: asyncio waits for the threads of its executor before it ends, and so does Python.
    """
    result: Future[Result] = Future()
    result.set_running_or_notify_cancel()  # it is not cancelled with who awaits it

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, name="ddpmon-reading", daemon=True).start()
    return await asyncio.wrap_future(result)
