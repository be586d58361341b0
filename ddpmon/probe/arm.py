"""Arms the probe in this process, and disarms it after a fork or a detach."""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
from collections.abc import Callable
from multiprocessing import util
from typing import TYPE_CHECKING

from ddpmon import api
from ddpmon.probe import early_exit, hooks, output, parallel_wrappers, run_settings, stack_signal, stack_timer, trainers
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import Listener
from ddpmon.probe.stack_report import places

if TYPE_CHECKING:
    from ddpmon.probe.sender import Sender

_listener: Listener | None = None
_sender: Sender | None = None
_hears_forks = False


def from_environment() -> None:
    """Arm the probe if the environment has the address of a hub. A second call in the process does nothing.

    A rank that torchrun started tells the hub about itself at once. Any other process counts as a rank only when it
    sets up a process group, wraps a model or steps an optimizer, because DataLoader workers and a script's own
    subprocesses inherit the same environment.
    """
    if not run_settings.in_force().socket or _listener is not None:
        return
    listener = hook_torch()
    if os.environ.get("DDPMON_BUCKETS") == "1":
        from ddpmon.probe.buckets import Buckets

        listener.record_buckets(Buckets(listener))
    if os.environ.get("DDPMON_AGENT_PID") == str(os.getppid()) and "RANK" in os.environ:
        listener.start()


def hook_torch() -> Listener:
    """Hook into torch for the run of the current settings, and return the listener."""
    global _listener, _hears_forks
    listener = Listener(Identity(run_settings.in_force().run_id))
    _listener = listener
    _prepare(listener)
    api.attach(listener)
    hooks.install_all(listener)
    parallel_wrappers.hook_wrappers(listener)
    trainers.install(listener)
    if not _hears_forks:  # Python cannot unregister this.
        _hears_forks = True
        os.register_at_fork(after_in_child=_forked)
    return listener


def current_listener() -> Listener | None:
    """Return the listener of this process; None if the probe is not armed."""
    return _listener


def leave(then: Callable[[], object]) -> Listener | None:
    """Disarm the probe in a process that continues, and return its listener.

    All changes are undone at once. The background thread still sends the remaining records. then: called when the
    background thread is about to end and nothing else of the probe is left.
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
        sender.finish_later(ended)
    return listener


def _prepare(listener: Listener) -> None:
    """Prepare the listener to start a sender once this process turns out to be a rank."""
    settings = run_settings.in_force()

    def start() -> None:
        global _sender
        from ddpmon.probe.sender import Sender

        if not settings.attached:
            output.keep_apart(listener.identity.facts.rank, listener.identity.facts.restart)
            if not faulthandler.is_enabled():
                faulthandler.enable(2)  # A crash in compiled code then prints the line of Python that called it.
            atexit.register(_write_error_file)
        stack_signal.arm(places())
        _sender = sender = Sender(listener, settings.socket)
        sender.start()
        # Children that multiprocessing forks run only util.Finalize at their end. All other processes run atexit.
        atexit.register(sender.finish)
        listener.changes.undone_by(lambda: atexit.unregister(sender.finish))
        listener.changes.undone_by(util.Finalize(None, sender.finish, exitpriority=100).cancel)
        early_exit.install_exit_hooks(listener.changes, sender.finish, listener.disable)

    listener.on_start = start


def _forked() -> None:
    """Reset the probe in a forked child, which most often is a DataLoader worker.

    The child counts as a rank only if it starts to train. A child of a process that ddpmon attached to is never a rank.
    """
    global _sender
    if _listener is None:
        return
    api.detach()
    stack_signal.forked()
    if _sender is not None:
        _sender.close_in_child()
        _sender = None
    settings = run_settings.in_force()
    _listener.reset(Identity(settings.run_id))
    if settings.attached:
        _listener.hot.thread = 0
    else:
        _prepare(_listener)


def _write_error_file() -> None:
    """Write an uncaught exception into torchrun's error file, as torchrun's @record would, for its summary.

    The file is written under another name and renamed: torchrun kills the other ranks at the first failure, and fails
    itself if it reads a file that a killed rank has written in part.
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
        except BaseException:  # The handler records the exception that is being handled.
            error.__traceback__ = trace
            os.environ["TORCHELASTIC_ERROR_FILE"] = f"{path}.part"  # The handler writes to this path.
            get_error_handler().record_exception(error)
            os.replace(f"{path}.part", path)
    except Exception as failure:
        print(f"ddpmon: cannot write the error file for torchrun: {failure}", file=sys.stderr)
