"""Reads how the script has set up its training, on the background thread. It reads attributes and computes nothing.

Models and optimizers are examined every minute. In addition, they are examined when a model or an optimizer is new,
when a pass over a DataLoader begins, and when parameters that DDP does not reduce get gradients. The configuration that
should be the same on all ranks is read once: script, arguments, and environment variables for communication.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from ddpmon.messages.setup import (
    ANOMALY,
    DETAIL,
    LAUNCH_BLOCKING,
    MAX_MODELS,
    MAX_PARAMETER_NAMES,
    Model,
    Setup,
)
from ddpmon.messages.step_counter import UPDATES
from ddpmon.messages.vocabulary import MAX_NAME
from ddpmon.probe.listener import Listener
from ddpmon.probe.parallelism import parameters_of
from ddpmon.probe.replica import Replica

PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "UCX_")
OF_A_MACHINE = ("IFNAME", "HCA", "DEBUG", "FILE", "HOSTID", "COMM_ID", "NET_DEVICES", "TLS")
"""Suffixes of variables that may differ between machines, as they depend on hardware or paths."""
MAX_ENTRIES, MAX_VALUE = 64, 120
MAX_SCRIPT_BYTES = 1 << 20
GIVEN = "(given)"
"""Value that is shown for an option that has no value."""


def configuration() -> dict[str, str]:
    """Return this process's variables, script, options and arguments by name, with secrets hidden."""
    from ddpmon.redaction import redact_variables, redact_words  # Only the background thread imports this.

    chosen = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PREFIXES) and not name.endswith(OF_A_MACHINE)
    }
    found = {"Python": platform.python_version(), "script": _script(sys.argv[0]) if sys.argv else ""}
    found |= redact_variables(chosen) | _arguments(redact_words(sys.argv[1:]))
    return {name[:MAX_VALUE]: value[:MAX_VALUE] for name, value in list(found.items())[:MAX_ENTRIES] if value}


def _arguments(words: Sequence[str]) -> dict[str, str]:
    """Return the values of a command line by option. All words between two options belong to the first one."""
    found: dict[str, str] = {}
    option = ""
    for place, word in enumerate(words, 1):
        if word.startswith("-") and not word[1:2].isdecimal():
            option, _, value = word.partition("=")
            found[option] = value or GIVEN
        elif option:
            found[option] = word if found[option] == GIVEN else f"{found[option]} {word}"
        else:
            found[f"argument {place}"] = word
    return found


def _script(path: str) -> str:
    """Return a script's name with a checksum of its text; "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_SCRIPT_BYTES)
    except OSError:
        return ""
    return f"{os.path.basename(path)} (checksum {zlib.crc32(text):08x})"


READ_AGAIN_S = 60.0
LOOKS, MIN_LOOKS = 5, 3
"""torch's anomaly detection counts as on if 3 of the last 5 readings found it on, as some scripts toggle it in each
step."""


class SetupReader:
    """Reads the models, optimizers and DataLoaders that the probe has seen in this process, and describes them."""

    def __init__(self, listener: Listener) -> None:
        self.settled = False
        """True if the setup was read after an optimizer first stepped."""
        self._listener = listener
        self._models: list[Model] = []
        self._joins = False
        """True if a model has trained under Join. Only a reading during Join shows that."""
        self._worker_cores: list[int] = []
        self._read_of: object = None
        self._read_at = float("-inf")
        self._anomaly: deque[bool] = deque(maxlen=LOOKS)

    def read(self) -> Setup:
        """Return the current setup. If the script has deleted all models, their last description is returned."""
        listener = self._listener
        hot, passes, now = listener.hot, listener.passes, time.monotonic()
        optimizers = {key for key, name in list(hot.optimizers.items()) if name}
        checks = [one.search.checks for one in list(listener.replicas.values()) if one.search]
        strays = [len(one.strays) for one in list(listener.replicas.values())]
        state = passes.begun, listener.joined, optimizers, list(listener.replicas), checks, strays
        if state != self._read_of or now - self._read_at >= READ_AGAIN_S:
            self._read_of, self._read_at = state, now
            try:
                self._models = self._of_models(optimizers) or self._models
            except RuntimeError:  # The script changed a collection during the iteration.
                self._read_of = None
            self._worker_cores = sorted({core for pid in passes.worker_pids() for core in _affinity(pid)})
        # While torch.compile traces, it switches anomaly detection on, without the check for NaN.
        self._anomaly.append(torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled())
        self.settled = self.settled or bool(optimizers)
        return Setup(
            loaders=passes.training_loaders(hot.updates[UPDATES]),
            models=self._models,
            reductions=listener.account.reductions if len(listener.replicas) == 1 else 0,
            debugging=list(self._debugging()),
            cores=sorted(_affinity(listener.native_thread or 0)),
            worker_cores=self._worker_cores,
        )

    def _of_models(self, stepping: set[int]) -> list[Model]:
        optimizers = self._listener.pauses.optimizers()
        stepped = set(map(id, parameters_of(*(one for one in optimizers if id(one) in stepping))))
        updated = set(map(id, parameters_of(*optimizers)))
        replicas = list(self._listener.replicas.values())[:MAX_MODELS]
        models = [made for replica in replicas if (made := _model(replica, stepped, updated))]
        self._joins = self._joins or self._listener.joined or any(model.joins for model in models)
        for model in models:
            model.joins = self._joins
        return models

    def _debugging(self) -> Iterator[str]:
        if sum(self._anomaly) >= MIN_LOOKS:
            yield ANOMALY
        if dist.is_available() and dist.is_initialized() and dist.get_debug_level() is dist.DebugLevel.DETAIL:
            yield DETAIL
        if self._listener.identity.cuda_device is not None and os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
            yield LAUNCH_BLOCKING


def _model(replica: Replica, stepped: set[int], updated: set[int]) -> Model | None:
    """Return the description of a model, or None if it was freed.

    Args:
        replica: The model's record.
        stepped: Ids of the parameters of optimizers that have stepped.
        updated: Ids of the parameters of all optimizers.

    """
    model = replica.model()
    if model is None:
        return None
    made = Model(replica.number, ranks=model.process_group.size(), parameters=len(replica.reduced_ids))
    made.joins = bool(getattr(getattr(model, "_join_config", None), "enable", False))
    for name, parameter in model.module.named_parameters():
        if id(parameter) in replica.reduced_ids:
            made.stepped += id(parameter) in stepped
            if stepped and id(parameter) not in updated:
                made.idle_count += 1
                made.idle = [*made.idle, name[:MAX_NAME]][:MAX_PARAMETER_NAMES]
    others = list(replica.not_reduced(model))
    replica.others = [parameter for _, parameter in others]
    for name, parameter in others:
        if parameter.requires_grad and id(parameter) in stepped:
            made.unreduced_count += 1
            made.unreduced = [*made.unreduced, name[:MAX_NAME]][:MAX_PARAMETER_NAMES]
    search = replica.search
    if search is not None:
        search.evaluate_copies(made.ranks)
        made.search_us, made.searches, made.unused = search.cost_us(made.parameters), search.checked, search.unused
    return made


def _affinity(thread: int) -> set[int]:
    try:
        return os.sched_getaffinity(thread)
    except OSError:  # The thread has ended.
        return set()
