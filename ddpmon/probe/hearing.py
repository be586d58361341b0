"""The training thread of this process: which one it is, whether it is heard, and its clock, models and optimizers.

What every part of the probe that hears or reads the training thread stands on.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from typing import Any

import torch

from ddpmon import api
from ddpmon.probe.identity import Identity
from ddpmon.probe.iteration import Iteration
from ddpmon.probe.replica import Replicas
from ddpmon.probe.stepclock import StepClock


class Hearing:
    """Hears the training thread, until something in the probe fails."""

    def begin(self, identity: Identity) -> None:
        """Start from nothing: a new process."""
        self.identity = identity
        self.listening = True
        self.thread = threading.main_thread().ident
        """The training thread: the one that set up the process group or wrapped a model."""
        self.native_thread = threading.main_thread().native_id
        self.beats = 0
        """Rises with what is heard of the training thread."""
        self.clock = StepClock()
        self.iteration = Iteration(self.clock, self._name_of)
        self.replicas = Replicas()
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        """Of optimizers: what each updates."""
        self._backward_depth = 0

    def hears(self) -> bool:
        """Whether this call is on the training thread of a process that is watched."""
        return self.listening and threading.get_ident() == self.thread

    def hears_collective(self) -> bool:
        """The same for a collective: inside backward, autograd calls it on a thread of its own for each GPU."""
        if not self.listening:
            return False
        if threading.get_ident() == self.thread:
            return True
        return self._backward_depth > 0 and torch._C._current_graph_task_id() != -1

    def leave(self, error: BaseException) -> None:
        """Something in the probe went wrong: say so once, and stop listening. Training goes on."""
        if not self.listening:
            return
        self.listening = False
        api.detach()
        with contextlib.suppress(Exception):  # whatever the script has put there, or a full disk
            print(
                f"ddpmon: the probe failed ({type(error).__name__}: {error}) and has left this process; "
                "training goes on unwatched",
                file=sys.stderr,
            )

    def _on_training_thread(self) -> None:
        self.thread = threading.get_ident()
        self.native_thread = threading.get_native_id()

    def _name_of(self, optimizer: Any) -> str:
        """What an optimizer updates."""
        name = self._names.get(optimizer)
        if name is None:
            first = next((p for group in optimizer.param_groups for p in group["params"]), None)
            shared = self.iteration.optimizers > len(self.replicas)
            name = self._names[optimizer] = self.replicas.name_of(first, set(self._names.values()), shared)
        return name
