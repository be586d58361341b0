"""Searches /proc for ranks that torchrun has started, and for processes of a run that have torch but no probe."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

from ddpmon import command_lines, proc
from ddpmon.analysis.processes.starts import ENVIRONMENT, FLAGS, LATE, Unarmed
from ddpmon.runs import Process

_TORCH = b"/libtorch_python.so"
_PROBE = b"/msgspec/"
"""Path of a library that the probe loads before it is armed, and that hardly any script loads."""
_INJECT = "/ddpmon/inject"
"""Folder of ddpmon's sitecustomize."""
_IGNORES = frozenset("EIS")
"""Flags with which Python does not run ddpmon's sitecustomize."""


class Unwatched:
    """Finds descendants of a run's command that have loaded torch but not the probe, and for how many seconds.

    Time in which a process waits for a CPU core does not count.
    """

    def __init__(self, speaks_at_once: bool) -> None:
        """Begin without observations.

        Args:
            speaks_at_once: True if torchrun starts the ranks, whose probes send a message as soon as they are armed.
                Ranks of another launcher send a message only when they set up a process group or train.

        """
        self._speaks_at_once = speaks_at_once
        self._since: dict[Process, float] = {}
        self._armed: set[Process] = set()
        self._last: list[Unarmed] = []

    def find_unarmed(self, command: Process, rank_pids: Container[int], now: float) -> list[Unarmed]:
        """Return the processes that run torch without the probe. If all have ended, return the last ones, marked as
        gone.

        This reads the memory maps of all processes below the command, so call it only while the run waits for ranks.

        Args:
            command: The run's command.
            rank_pids: Ranks that the probe reports. These ranks and their descendants are skipped.
            now: Seconds of the hub's clock.

        """
        unwatched: dict[int, Unarmed] = {}
        children = proc.children()
        unseen = [command.pid]
        while unseen:
            pid = unseen.pop()
            if pid in rank_pids:
                continue
            if (unarmed := self._unarmed(pid, now)) is not None:
                unwatched[pid] = unarmed
                if unarmed.rank is not None:
                    continue  # The descendants of a rank are its DataLoader workers.
            unseen += children.get(pid, ())
        ranks = [process for process in unwatched.values() if process.rank is not None]
        gone = [
            dataclasses.replace(process, gone=True)
            for process in self._last
            if process.pid not in rank_pids and not proc.exists(process.pid)
        ]
        self._last = ranks or list(unwatched.values()) or gone
        return self._last

    def _unarmed(self, pid: int, now: float) -> Unarmed | None:
        process = Process.of(pid)
        if process is None or process in self._armed:
            return None
        maps = proc.mapped(pid)
        if _TORCH not in maps:
            return None
        has_probe = _PROBE in maps
        if has_probe and not self._speaks_at_once:
            self._armed.add(process)
            return None
        words, environment = proc.arguments(pid), proc.environment(pid)
        if not words or "torch.distributed.run" in words[1:4]:
            return None  # The process has ended meanwhile, or is torchrun itself.
        rank = environment.get("RANK", "")
        # Leave out waits for a core: imports take long if other programs use the cores.
        had_cores_s = now - (proc.core_wait_ns(pid) or 0) / 1e9
        since = self._since.setdefault(process, had_cores_s)
        why = LATE if has_probe else _why(words, environment)
        return Unarmed(pid, int(rank) if rank.isdecimal() else None, why, had_cores_s - since)


def _why(words: list[str], environment: dict[str, str]) -> str:
    if command_lines.split(words)[0] & _IGNORES:
        return FLAGS
    return LATE if _INJECT in environment.get("PYTHONPATH", "") else ENVIRONMENT


def started_ranks(agent: Process) -> frozenset[int]:
    """Return the ranks that torchrun started, according to their environment, or no ranks if torchrun has ended.

    This reads the environment of all child processes, so call it only while the run waits for ranks.
    """
    ranks: set[int] = set()
    for pid in proc.children().get(agent.pid, ()) if agent.alive() else ():
        rank = proc.environment(pid).get("RANK", "")
        ranks.update([int(rank)] if rank.isdecimal() else [])
    return frozenset(ranks)
