"""Arming the probe in this process, and disarming it where it must not be."""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
from collections.abc import Callable
from multiprocessing import util
from typing import TYPE_CHECKING

from ddpmon import api
from ddpmon.probe import hooks, leaving, output, parallel_wrappers, run_settings, stack_signal, stack_timer, trainers
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import Listener
from ddpmon.probe.stack import places

if TYPE_CHECKING:
    from ddpmon.probe.sender import Sender

_listener: Listener | None = None
_sender: Sender | None = None
_hears_forks = False


def from_environment() -> None:
    """Arm if the environment says that a hub listens, once per process.

    A rank that torchrun started tells the hub of itself at once. Any other process is only a rank once it sets up
    a process group, wraps a model or steps an optimizer: a DataLoader worker or a script's own subprocess inherits
    the same environment.
    """
    if not run_settings.current().socket or _listener is not None:
        return
    listener = listen()
    if os.environ.get("DDPMON_BUCKETS") == "1":
        from ddpmon.probe.buckets import Buckets

        listener.record_buckets(Buckets(listener))
    if os.environ.get("DDPMON_AGENT_PID") == str(os.getppid()) and "RANK" in os.environ:
        listener.start()


def listen() -> Listener:
    """Hook into torch for the run of the present settings, and return what listens."""
    global _listener, _hears_forks
    listener = Listener(Identity(run_settings.current().run_id))
    _listener = listener
    _prepare(listener)
    api.attach(listener)
    hooks.install(listener)
    parallel_wrappers.install(listener)
    trainers.install(listener)
    if not _hears_forks:  # Python has no way to take this back
        _hears_forks = True
        os.register_at_fork(after_in_child=_forked)
    return listener


def armed() -> Listener | None:
    """Return what listens in this process; None: nothing does."""
    return _listener


def leave(then: Callable[[], object]) -> Listener | None:
    """Leave a process that goes on: undo every change at once, and have a thread hand over what was measured.

    then: called when that thread is about to end, and nothing of the probe is left besides. Returns what listened.
    """
    global _listener, _sender
    listener, sender = _listener, _sender
    _listener = _sender = None
    if listener is None:
        return None
    listener.let_go()
    api.detach()
    listener.changes.undo_all()
    stack_signal.withdraw()

    def ended() -> None:
        stack_signal.disarm()
        stack_timer.disarm()
        then()

    if sender is None:
        ended()
    else:
        sender.leave(ended)
    return listener


def _prepare(listener: Listener) -> None:
    """Have the listener start a sender in this process once it is a rank."""
    settings = run_settings.current()

    def start() -> None:
        global _sender
        from ddpmon.probe.sender import Sender

        if not settings.attached:
            output.keep_apart(listener.identity.rank, listener.identity.restart)
            if not faulthandler.is_enabled():
                faulthandler.enable(2)  # compiled code that crashes then prints the line of Python that called it
            atexit.register(_write_error_file)
        stack_signal.arm(places())
        _sender = sender = Sender(listener, settings.socket)
        sender.start()
        # Forked and forkserver children of multiprocessing run only the latter, everyone else atexit.
        atexit.register(sender.finish)
        listener.changes.undone_by(lambda: atexit.unregister(sender.finish))
        listener.changes.undone_by(util.Finalize(None, sender.finish, exitpriority=100).cancel)
        leaving.install(listener.changes, sender.finish, listener.disable)

    listener.on_start = start


def _forked() -> None:
    """A forked child starts unheard: most are DataLoader workers. It is a rank only if it turns out to be one.

    A child of a process that was attached to never is.
    """
    global _sender
    if _listener is None:
        return
    api.detach()
    stack_signal.forked()
    if _sender is not None:
        _sender.forked()
        _sender = None
    settings = run_settings.current()
    _listener.reset(Identity(settings.run_id))
    if settings.attached:
        _listener.hot.thread = 0
    else:
        _prepare(_listener)


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
        print(f"ddpmon: cannot write the error file for torchrun: {failure}", file=sys.stderr)
