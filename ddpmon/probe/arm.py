"""Arming the probe in this process, and disarming it where it must not be."""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
from multiprocessing import util
from typing import TYPE_CHECKING

from ddpmon import api
from ddpmon.probe import hooks, leaving, output, parallel_wrappers, stack_signal, trainers
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import Listener
from ddpmon.probe.stack import places

if TYPE_CHECKING:
    from ddpmon.probe.sender import Sender

_listener: Listener | None = None
_sender: Sender | None = None


def from_environment() -> None:
    """Arm if the environment says that a hub listens, once per process.

    A rank that torchrun started tells the hub of itself at once. Any other process is only a rank once it sets up
    a process group, wraps a model or steps an optimizer: a DataLoader worker or a script's own subprocess inherits
    the same environment.
    """
    global _listener
    address = os.environ.get("DDPMON_SOCKET")
    if not address or _listener is not None:
        return
    listener = Listener(Identity(os.environ.get("DDPMON_RUN_ID", "")))
    _listener = listener
    _prepare(listener, address)
    api.attach(listener)
    hooks.install(listener)
    parallel_wrappers.install(listener)
    trainers.install(listener)
    if os.environ.get("DDPMON_BUCKETS") == "1":
        from ddpmon.probe.buckets import Buckets

        listener.record_buckets(Buckets(listener))
    os.register_at_fork(after_in_child=lambda: _forked(listener, address))
    if os.environ.get("DDPMON_AGENT_PID") == str(os.getppid()) and "RANK" in os.environ:
        listener.start()


def _prepare(listener: Listener, address: str) -> None:
    """Have the listener start a sender in this process once it is a rank."""

    def start() -> None:
        global _sender
        from ddpmon.probe.sender import Sender

        output.keep_apart(listener.identity.rank, listener.identity.restart)
        if not faulthandler.is_enabled():
            faulthandler.enable(2)  # compiled code that crashes then prints the line of Python that called it
        stack_signal.arm(places())
        _sender = sender = Sender(listener, address)
        sender.start()
        # Forked and forkserver children of multiprocessing run only the latter, everyone else atexit.
        atexit.register(sender.finish)
        util.Finalize(None, sender.finish, exitpriority=100)
        leaving.install(sender.finish, listener.disable)
        atexit.register(_write_error_file)

    listener.on_start = start


def _forked(listener: Listener, address: str) -> None:
    """A forked child starts unheard: most are DataLoader workers. It is a rank only if it turns out to be one."""
    global _sender
    api.detach()
    stack_signal.forked()
    if _sender is not None:
        _sender.forked()
        _sender = None
    listener.reset(Identity(os.environ.get("DDPMON_RUN_ID", "")))
    _prepare(listener, address)


def _write_error_file() -> None:
    """Leave torchrun the exception that nobody caught, as its @record would, so that its summary names the cause.

    Whole or not at all: torchrun ends the other ranks at the first failure, and one that is killed while it writes
    would leave it a file that it cannot read, which ends torchrun itself.
    """
    error = getattr(sys, "last_value", None)
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if error is None or not path or os.path.exists(path):
        return
    try:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        trace = error.__traceback__
        try:
            raise error
        except BaseException:  # it records the exception that is being handled
            error.__traceback__ = trace
            os.environ["TORCHELASTIC_ERROR_FILE"] = f"{path}.part"  # where its handler writes
            get_error_handler().record_exception(error)
            os.replace(f"{path}.part", path)
    except Exception as failure:
        print(f"ddpmon: no error file for torchrun: {failure}", file=sys.stderr)
