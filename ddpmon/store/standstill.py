"""Finds where ranks are in a run without progress (a standstill), from their last stacks and from /proc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from ddpmon.analysis.evidence import Wait
from ddpmon.analysis.processes.gpus import GpuSigns
from ddpmon.analysis.processes.hangs import Standstill, missing_ranks
from ddpmon.analysis.processes.loaders import Worker
from ddpmon.analysis.processes.starts import Starting, shared_line, start_still_s
from ddpmon.analysis.run_state import STARTING_S, Signs, derive_state, stalled_after_s
from ddpmon.messages import END_STATES, OWN_PHASES, STAGE_MODEL, STARTING_WORKERS, Stack
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry

STACK_S = 8.0
"""Greatest age in seconds of a stack that still shows where a rank is."""


def start_stands_s(registry: Registry, idle: AbstractSet[int], now: float) -> float | None:
    """Return the seconds without progress before the first step, or None if the run seems to make progress.

    Args:
        registry: The run's processes.
        idle: Ranks whose processes are idle.
        now: Seconds of the hub's own clock.

    """
    return start_still_s(_starting(registry, idle, now), registry.world_size)


def start_line(registry: Registry, now: float) -> tuple[str, float]:
    """Return the line of code in which all ranks are before the first step, and the seconds in it. "": ranks differ."""
    return shared_line(_starting(registry, frozenset(), now), registry.world_size) or ("", 0.0)


def _starting(registry: Registry, idle: AbstractSet[int], now: float) -> dict[int, Starting]:
    ranks = {}
    for rank, process in registry.process_of_rank.items():
        silent = process.health(now) == "silent"
        stack = None if silent else _latest(process, now)
        since = process.heard_at if silent else process.still_since
        ranks[rank] = Starting(
            still_s=now - since if since is not None and (silent or stack) else 0.0,
            idle=rank in idle and not _may_start_workers(process, now),
            has_model=process.stage >= STAGE_MODEL,
            gone=process.left or process.dead,
            stack=stack,
        )
    return ranks


def _may_start_workers(process: RankProcess, now: float) -> bool:
    """Return whether a rank waits for its DataLoader workers to start, and has not waited for too long."""
    return process.pausing == STARTING_WORKERS and now - process.pausing_since < STARTING_S.enter


def standstill(registry: Registry, signs: Signs, now: float, gone: Sequence[int]) -> Standstill | None:
    """Return where every rank is, if none makes progress, or none did when the run was ended.

    Args:
        registry: The run's processes.
        signs: Observations from which the state of the run follows.
        now: Seconds of the hub's own clock.
        gone: Ranks that have ended without an exception, before they were asked to end.

    Returns:
        The standstill, or None if the run makes progress or ended in another way.

    """
    by_rank, run_state = registry.process_of_rank, derive_state(signs)
    if run_state == "stalled":
        return _now(registry, signs.still_s, now, gone)
    if run_state not in END_STATES or run_state in {"done", "detached"}:
        return None
    gone = gone if run_state == "stopped" else ()  # otherwise the launcher may have asked them to end
    stuck_us = stalled_after_s(signs.step_s, signs.pause_s, starts_workers=signs.starts_workers) * 1e6
    last = {
        rank: stack
        for rank, p in by_rank.items()
        # Before the first step, a rank counts only if the run was stalled before its end, or a rank had ended.
        if rank not in gone
        and (stack := p.last_stand if signs.steps or gone else p.stood)
        and stack.step >= p.steps
        and stack.time_us - stack.since_us >= stuck_us
    }
    stood = all(process.stood and process.stood.step >= process.steps for process in by_rank.values())
    if not last or not (stood or any(stack.blocked for stack in last.values())):
        return None
    idle_us = max(stack.time_us - stack.since_us for stack in last.values())
    unheard = [rank for rank, process in by_rank.items() if rank not in last and not process.left]
    silent = [] if gone or missing_ranks(last) else unheard
    left = {rank: by_rank[rank].steps for rank in gone if by_rank[rank].left}
    world, workers, gpus = registry.world_size, _workers(registry, last), _gpus(registry)
    return Standstill(idle_us / 1e6, last, gone, left, silent, world_size=world, over=True, workers=workers, gpus=gpus)


def next_timeout(registry: Registry, now: float, unix: float, gone: Sequence[int] = ()) -> Wait | None:
    """Return the wait whose timeout will expire first, or None if no rank waits or no timeout is known.

    Args:
        registry: The run's processes.
        now: Seconds of the hub's own clock.
        unix: The same time in Unix seconds.
        gone: Ranks that have ended without an exception, before they were asked to end.

    """
    waits = [
        (now - since, stack.timeout_s)
        for process in registry.process_of_rank.values()
        if not (process.left or process.dead)
        and (stack := _latest(process, now)) is not None
        and stack.timeout_s is not None
        and (since := _waits_since(process)) is not None
    ]
    if not waits:
        return None
    waited_s, timeout_s = min(waits, key=lambda wait: wait[1] - wait[0])
    return Wait(waited_s, timeout_s, unix + timeout_s - waited_s, _now(registry, waited_s, now, gone))


def needs_peers(registry: Registry) -> bool:
    """Return whether a rank needs all others, because it is in a step or a collective, or has not connected yet."""
    if len(registry.process_of_rank) < registry.world_size:
        return True
    live = (process for process in registry.process_of_rank.values() if not process.gone)
    return any(OWN_PHASES[process.phase] != "other" or _waits_since(process) is not None for process in live)


def _waits_since(process: RankProcess) -> float | None:
    """Return when a process began to wait in a collective, or None if its latest stack shows no such wait.

    The time, by the hub's clock, is that of the last sign of life or of the last stack at another place.
    """
    if process.stack is None or not process.stack.blocked or process.beat_at > process.stack_at:
        return None
    return max(process.beat_at, process.elsewhere_at) or process.still_since


def _now(registry: Registry, idle_s: float, now: float, ended: Sequence[int]) -> Standstill:
    """Return where every rank is now.

    Args:
        registry: The run's processes.
        idle_s: Seconds without progress.
        now: Seconds of the hub's own clock.
        ended: Ranks that have ended without an exception.

    """
    by_rank = registry.process_of_rank
    unheard = {
        rank: process.hello.host if process else ""
        for rank in range(registry.world_size)
        if (process := by_rank.get(rank)) is None or registry.host_is_silent(process)
    }
    silent = [rank for rank, p in by_rank.items() if p.health(now) == "silent" and rank not in unheard]
    # An exception may come from the broken connection to a rank that had ended before.
    gone = list(ended) or [rank for rank, p in by_rank.items() if p.left or p.dead]
    stacks = {rank: s for rank, p in by_rank.items() if not (p.left or p.dead) and (s := _latest(p, now))}
    held_by = {rank: held for rank in silent if (held := by_rank[rank].held)}
    workers = _workers(registry, stacks)
    left = {rank: by_rank[rank].steps for rank in ended if by_rank[rank].left}
    world = registry.world_size
    return Standstill(
        idle_s, stacks, gone, left, silent, held_by, unheard, world, workers=workers, gpus=_gpus(registry)
    )


def _workers(registry: Registry, stacks: Mapping[int, Stack]) -> dict[int, Worker]:
    """Return the DataLoader workers that ranks wait for, if they were examined."""
    known = {rank: registry.process_of_rank[rank].worker for rank in stacks}
    return {rank: worker for rank, worker in known.items() if worker and worker.pid == stacks[rank].worker}


def _gpus(registry: Registry) -> dict[int, GpuSigns]:
    """Return the latest errors, utilization and power of each rank's GPU."""
    return {
        rank: GpuSigns(process.hello.device, tuple(process.hello.gpu_errors), sample.gpu_percent, sample.gpu_power_w)
        for rank, process in registry.process_of_rank.items()
        if process.hello.device.startswith("cuda") and (sample := process.sample)
    }


def _latest(process: RankProcess, now: float) -> Stack | None:
    """Return the latest stack of a rank, or None if it is out of date."""
    stack = process.stack
    if stack is None or stack.step < process.steps or now - process.stack_at >= STACK_S:
        return None
    # A silent rank's last stack is outdated, unless it is the answer to a signal, which is newer than its last message.
    return stack if process.health(now) == "ok" or process.stack_at > process.heard_at else None
