"""Looks up facts that explain a known failure and that only the failing rank has, such as ports or parameter names.

Each function gets the exception and its message, and returns values by the names that `KNOWN_FAILURES` uses. The
functions run once, after the exception. Facts that cannot be looked up are left out.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from multiprocessing import connection
from pathlib import Path
from types import FrameType
from typing import Any

from ddpmon import proc

MAX_FACT = 8192
"""Largest number of characters in a fact, enough for the names and shapes of about 200 parameters."""
MAX_NAMED_PARAMETERS = 6
"""Largest number of parameters to name in a sentence."""
WORKER_END_S = 0.5
"""Longest time in seconds to wait for the end of a DataLoader worker whose connection broke."""
MIN_FREE_BYTES = 1 << 20
LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""
_MIB = 1 << 20


def facts_of(error: BaseException) -> dict[str, str]:
    """Return the facts that can be looked up about an exception."""
    message = "\n".join(str(one) for one in _chain(error))
    found: dict[str, str] = {}
    for look_up in (_port, _unused, _ready_twice, _model, _workers, _disk, _open_files, _interpreter, _made_path):
        with contextlib.suppress(Exception):  # The exception itself must still be reported.
            found |= look_up(error, message)
    return {name: value[:MAX_FACT] for name, value in found.items()}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and those that it was raised from or during."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of an exception and of its causes, the innermost frame of each first."""
    for one in _chain(error):
        frames = []
        trace = one.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
        yield from reversed(frames)


def _port(_: BaseException, message: str) -> dict[str, str]:
    port = re.search(r"\bport:? (\d+)", message)
    if not port or not re.search("EADDRINUSE|address already in use", message, re.IGNORECASE):
        return {}
    holder = _holder_of(int(port[1]))
    return {"port": port[1], "holder": holder} if holder else {"port": port[1]}


def _holder_of(port: int) -> str:
    """Return the process that listens on a port; "" if no process listens any more, or another user's process does."""
    from ddpmon.redaction import redact_words

    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in map(str.split, proc.read(table).decode().splitlines()[1:]):
            if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{row[9]}]")
    for pid in proc.pids() if inodes else ():
        if any(link in inodes for _, link in proc.descriptors(pid)):
            return f"process {pid} ({' '.join(redact_words(proc.arguments(pid)))})"
    return ""


def _unused(error: BaseException, message: str) -> dict[str, str]:
    told = re.search(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)", message)
    return {"parameters": _named(error, map(int, told[1].split()))} if told else {}


def _ready_twice(error: BaseException, message: str) -> dict[str, str]:
    told = re.search(r"Parameter at index (\d+)\b.* has been marked as ready twice", message)
    return {"parameters": _named(error, [int(told[1])])} if told else {}


def _named(error: BaseException, places: Iterable[int]) -> str:
    """Return the names of the parameters that have these numbers in DDP's reducer."""
    names = [name for name, _ in _trainable(_ddp_model(error))]
    return _listed([names[place] for place in places])


def _listed(names: list[str]) -> str:
    shown = [f"`{name}`" for name in names[:MAX_NAMED_PARAMETERS]]
    more = [f"{len(names) - MAX_NAMED_PARAMETERS} more"] if len(names) > MAX_NAMED_PARAMETERS else []
    *first, last = [*shown, *more]
    return f"{', '.join(first)} and {last}" if first else last


def _trainable(model: Any) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in model.module.named_parameters() if one.requires_grad]


def _ddp_model(error: BaseException) -> Any:
    """Return the DDP model in which the exception was raised, or else the only one; raise if there are several."""
    from torch.nn.parallel import DistributedDataParallel

    inside = (frame.f_locals.get("self") for frame in _frames(error))
    models = [one for one in inside if isinstance(one, DistributedDataParallel)]
    models = models[:1] or [one for one in gc.get_objects() if issubclass(type(one), DistributedDataParallel)]
    (model,) = models
    return model


def _model(error: BaseException, message: str) -> dict[str, str]:
    if "DDP expects same model" not in message and "appears not to match" not in message:
        return {}
    model = _ddp_model(error)
    trainable = [f"{name} {tuple(one.shape)}" for name, one in _trainable(model)]
    frozen = [name for name, one in model.module.named_parameters() if not one.requires_grad]
    return {"model": "\n".join(trainable), **({"frozen": _listed(frozen)} if frozen else {})}


def _workers(error: BaseException, message: str) -> dict[str, str]:
    """Return the first worker that a signal killed, among those of the DataLoader that raised the exception."""
    workers = next((found for frame in _frames(error) if (found := _workers_of(frame.f_locals.get("self")))), [])
    if not workers or "Original Traceback (most recent call last)" in message:
        return {}
    if isinstance(error, OSError | EOFError) and all(worker.exitcode is None for worker in workers):
        connection.wait([worker.sentinel for worker in workers], WORKER_END_S)
    killed = next((worker for worker in workers if (worker.exitcode or 0) < 0), None)
    if killed is None:
        return {}
    return {"worker": str(killed.pid), "worker_signal": signal.Signals(-killed.exitcode).name, **_shared_memory()}


def _workers_of(iterator: Any) -> list[Any]:
    is_torchs = type(iterator).__module__ == "torch.utils.data.dataloader"
    return list(getattr(iterator, "_workers", ())) if is_torchs else []


def _shared_memory() -> dict[str, str]:
    usage = shutil.disk_usage("/dev/shm")  # noqa: S108  # torch passes tensors between processes there
    return {"shared_memory": f"{usage.used / _MIB:,.1f} of its {usage.total / _MIB:,.1f} MiB are in use now"}


def _disk(error: BaseException, message: str) -> dict[str, str]:
    codes = {one.errno for one in _chain(error) if isinstance(one, OSError)}
    if errno.ENOSPC not in codes and "No space left on device" not in message:
        return {}
    names = [getattr(one, "filename", None) for one in _chain(error)]
    files = [os.path.dirname(name) for name in names if isinstance(name, str)]
    places = [*files, os.getcwd(), tempfile.gettempdir(), "/dev/shm", str(Path.home())]  # noqa: S108
    full = [place for place in places if place and shutil.disk_usage(place).free < MIN_FREE_BYTES]
    return {"full": full[0]} if full else {}


def _open_files(_: BaseException, message: str) -> dict[str, str]:
    if "Too many open files" not in message and "items of ancdata" not in message:
        return {}
    import resource

    return {"open_files": str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])}


def _interpreter(error: BaseException, _: str) -> dict[str, str]:
    return {"python": sys.executable} if isinstance(error, ImportError) else {}


def _made_path(error: BaseException, _: str) -> dict[str, str]:
    """Return the path that already exists, if it was changed after this process began."""
    if not isinstance(error, FileExistsError) or not isinstance(error.filename, str):
        return {}
    began = os.stat(f"/proc/{os.getpid()}").st_ctime
    return {"path": error.filename} if os.lstat(error.filename).st_mtime >= began else {}
