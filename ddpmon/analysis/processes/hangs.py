"""Decide which ranks did not arrive in a hang, from the position of every rank's training thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddpmon.analysis.processes.disagreements import Disagreement, disagreement, line_of
from ddpmon.analysis.processes.gpus import GpuSigns, broken_gpus
from ddpmon.analysis.processes.loaders import Worker
from ddpmon.analysis.words import format_count, named_ranks
from ddpmon.messages import Stack

POINT_TO_POINT = {"send", "recv"}
NONE_MISSING = (
    "Every rank has issued this collective. Look at the network between the ranks, and at the log of the backend (NCCL"
    " or gloo)."
)
"""Advice if all ranks wait in the same collective."""
NOT_MET = (
    "The ranks cannot connect to each other. After a restart, ranks may wait for ranks of the previous attempt. Stop "
    "the run and start it again. If the run hangs at the same place again, look at the network between the ranks."
)
"""Advice if all ranks wait in a call that makes a process group."""

_LOCKS = ("filelock/", "FileLock")
"""Parts of the places at which libraries wait for a lock file."""


@dataclass(frozen=True)
class Held:
    """A process that the kernel keeps from running."""

    pid: int
    how: str
    """"stopped", "traced" (by a debugger), or "kernel": it waits in the kernel and cannot be interrupted."""
    where: str = ""
    """The kernel's function in which the process waits, if it can be read."""


@dataclass(frozen=True)
class Standstill:
    """The state of every rank while no rank makes progress."""

    idle_s: float
    stacks: Mapping[int, Stack]
    """Stacks of the ranks that could report them, by rank."""
    gone: Sequence[int] = ()
    """Ranks that have left or died."""
    left: Mapping[int, int] = field(default_factory=dict)
    """Number of finished steps of each gone rank whose script ended in order."""
    silent: Sequence[int] = ()
    """Ranks that are alive, but of which even the background thread sends nothing. `stacks` may contain them."""
    held: Mapping[int, Held] = field(default_factory=dict)
    """Silent ranks that the kernel does not let run."""
    unheard: Mapping[int, str] = field(default_factory=dict)
    """Host of each rank that sends nothing and whose state is unknown; "": the host is unknown too."""
    world_size: int = 0
    over: bool = False
    """True if the run has ended since."""
    workers: Mapping[int, Worker] = field(default_factory=dict)
    """The DataLoader workers that ranks wait for, by rank."""
    gpus: Mapping[int, GpuSigns] = field(default_factory=dict)
    """Reports of the driver about GPUs, by rank."""

    @property
    def next_step(self) -> int | None:
        """Return the step that no rank finishes; None if no rank reported its stack."""
        return max(stack.step for stack in self.stacks.values()) + 1 if self.stacks else None

    @property
    def disagreement(self) -> Disagreement | None:
        """Return the ranks that wait for each other in different calls; None if there are none, or some ranks did not
        arrive.
        """
        return None if self.gone or self.silent or self.unheard else disagreement(self.stacks)


def absent_ranks(standstill: Standstill) -> list[int]:
    """Return the ranks that did not arrive, the most certain first; empty if that is uncertain."""
    sure = [*standstill.gone, *standstill.silent] or missing_ranks(standstill.stacks, all_heard=not standstill.unheard)
    waits = any(stack.blocked for stack in standstill.stacks.values())
    return sure or sorted(standstill.unheard) or (broken_gpus(standstill.gpus) if waits else [])


def missing_ranks(stacks: Mapping[int, Stack], *, all_heard: bool = True) -> list[int]:
    """Return the ranks that did not arrive where the others wait; empty if that is uncertain.

    A rank that is not blocked has not arrived. If all ranks are blocked in different calls, ranks in another call than
    the others have not arrived. Otherwise, torch's count of collectives decides: missing ranks have issued fewer
    collectives in some process group than another rank. The count also includes point-to-point messages, so it proves
    nothing in a script that sends such messages. It also proves nothing if some ranks send no messages to ddpmon,
    because a cut link may end a collective on some ranks only.

    Args:
        stacks: Stacks of the ranks, by rank.
        all_heard: True if every rank has sent messages recently.

    """
    if all_heard and (differ := disagreement(stacks)):
        return sorted(differ.odd.ranks)
    free = {rank for rank, stack in stacks.items() if not stack.blocked}
    behind: set[int] = set()
    if all_heard and not any(stack.collective and stack.collective.name in POINT_TO_POINT for stack in stacks.values()):
        behind = _behind(stacks)
    if free and len(free) < len(stacks):
        return sorted(free & behind or free)
    return sorted(behind) or idle_gpus(stacks)


def idle_gpus(stacks: Mapping[int, Stack]) -> list[int]:
    """Return the ranks whose GPU lags behind other GPUs, although all ranks have issued the same collective.

    The list is empty if most GPUs lag, or if not all ranks report the progress of their GPU.
    """
    calls = {(one.group, one.sequence, one.operation) for stack in stacks.values() if (one := stack.collective)}
    if len(calls) != 1 or not all(stack.device and stack.collective for stack in stacks.values()):
        return []
    least = min(stack.device for stack in stacks.values())
    behind = sorted(rank for rank, stack in stacks.items() if stack.device == least)
    return behind if 2 * len(behind) < len(stacks) + (len(stacks) == 2) else []


def _behind(stacks: Mapping[int, Stack]) -> set[int]:
    most: dict[str, int] = {}
    for stack in stacks.values():
        for group, number in stack.issued.items():
            most[group] = max(number, most.get(group, 0))
    return {
        rank for rank, stack in stacks.items() if any(number < most[group] for group, number in stack.issued.items())
    }


def groups_by_stack(stacks: Mapping[int, Stack]) -> list[list[int]]:
    """Return groups of ranks with identical stacks. The smallest is first, as a single rank is most suspicious."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank in sorted(stacks):
        groups.setdefault(tuple(stacks[rank].frames), []).append(rank)
    return sorted(groups.values(), key=lambda ranks: (len(ranks), ranks))


def why_no_stack(
    rank: int, *, heard: bool, gone: bool = False, held: Held | None = None, unanswered: bool = False, host: str = ""
) -> str:
    """Return the reason why a rank cannot report its stack now, in one line; "" if nothing prevents it.

    Args:
        rank: The rank.
        heard: False if the rank never sent a message to this machine.
        gone: True if the rank has ended.
        held: How the kernel keeps the rank from running.
        unanswered: True if the rank did not answer a request.
        host: The host of a rank that sends nothing; "" otherwise.

    """
    if not heard:
        return f"rank {rank} sends nothing to this machine"
    if gone:
        return f"rank {rank} has ended"
    if host:
        return f"{host}, where rank {rank} runs, sends nothing"
    if held is not None:
        text, advice = explain_silence(Standstill(0.0, {}, silent=[rank], held={rank: held}))
        return f"{text}. {advice}"
    return f"rank {rank} is alive but did not answer" if unanswered else ""


def lock_advice(stack: Stack) -> str:
    """Return advice about a rank that waits for a lock file; "" if it does not wait for a lock file."""
    place = stack.frames[0] if stack.frames else ""
    if "file_baton.py" in place:
        return (
            "The rank waits for a lock file: another process builds the same extension, or a killed run left the file"
            " behind. If no process builds the extension, delete the file (usually `lock` in"
            " ~/.cache/torch_extensions/…)."
        )
    if any(part in place for part in _LOCKS):
        return (
            "The rank waits for a lock file: another process has the lock, or a killed run left the file behind. Delete"
            " the file if a killed run left it."
        )
    return ""


def _silent(standstill: Standstill) -> tuple[Held | None, list[int]]:
    """Return how the kernel keeps silent ranks from running (None if it does not), and the ranks concerned.

    If the kernel keeps ranks from running in different ways, return only the ranks with the same way as the first.
    """
    held = next((standstill.held[rank] for rank in standstill.silent if rank in standstill.held), None)
    ranks = [
        rank
        for rank in standstill.silent
        if not held or (rank in standstill.held and standstill.held[rank].how == held.how)
    ]
    return held, ranks


def silence_line(standstill: Standstill) -> str | None:
    """Return the line of a silent rank if the kernel does not keep it from running; None if the line is unknown."""
    held, ranks = _silent(standstill)
    if held or standstill.over:
        return None
    return next((line_of(standstill.stacks[rank]) for rank in ranks if rank in standstill.stacks), None)


def explain_silence(standstill: Standstill) -> tuple[str, str]:
    """Return why ranks are silent although their processes live, and what to do about it."""
    held, ranks = _silent(standstill)
    who = named_ranks(ranks, standstill.world_size)
    alone = len(ranks) == 1
    be = "is" if alone else "are"
    if held and held.how == "stopped":
        pids = " ".join(str(standstill.held[rank].pid) for rank in ranks)
        return f"{who} {be} stopped (SIGSTOP or Ctrl-Z)", f"Resume {'it' if alone else 'them'}: kill -CONT {pids}"
    if held and held.how == "traced":
        return f"a debugger holds {who}", f"A debugger has stopped process {held.pid}: let it continue."
    if held:
        inside = f" ({held.where})" if held.where else ""
        return (
            f"{who} hang{'s' * alone} in the kernel{inside}, where no signal reaches",
            "Look at the disk or network file system that the process reads, and at the kernel log (dmesg).",
        )
    if standstill.over:
        return f"{who} fell silent", f"Look at the last output of {who}."
    text = f"{who} {be} silent though {'its process is' if alone else 'their processes are'} alive"
    if line := silence_line(standstill):
        return text, f"Look at the compiled code called in {line}: it does not release Python's lock (the GIL)."
    return text, f"Look for compiled code on {who} that does not release Python's lock (the GIL)."


def not_heard(standstill: Standstill) -> tuple[str, str]:
    """Return the sentence that names the hosts (or ranks, if hosts are unknown) that send nothing, and advice."""
    ranks = sorted(standstill.unheard)
    who = named_ranks(ranks, standstill.world_size)
    hosts = list(dict.fromkeys(standstill.unheard[rank] for rank in ranks))
    if not all(hosts):
        send, does = ("sends", "it runs") if len(ranks) == 1 else ("send", "they run")
        where = f"Look at {who} where {does} (run ddpmon status there), and at the network to that machine."
        return f"{who} {send} nothing to this machine", where
    those = hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {format_count(len(hosts) - 1, 'other host')}"
    be, send, its = ("is", "sends", "its") if len(hosts) == 1 else ("are", "send", "their")
    return (
        f"{those} {send} nothing ({named_ranks(ranks, standstill.world_size)})",
        f"Check whether {those} {be} up and can be pinged from here: the machine, {its} link or {its} ddpmon failed.",
    )
