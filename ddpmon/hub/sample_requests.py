"""Requests stack samples of a slow rank and a peer. Their difference shows the line that makes the rank slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.steps.world import World
from ddpmon.messages import OWN_PHASES, Finding, SampleStacks
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

DEVICE_PHASES = {"forward", "backward", "optimizer"}
"""Phases that run on the GPU, if there is one, so that the Python stack does not explain their time."""
LEAST_S, MOST_S = 3.0, 120.0
STEPS = 8
"""Number of steps to sample, or of periods if the slowdown is periodic."""
IRREGULAR_S = 12.0
WAITS_S = (0.0, 20.0, 60.0)
"""Shortest waits in seconds before the first, second and third request about a finding. Requests are repeated because
samples may miss the slow steps."""


@dataclass
class _Asked:
    count: int = 0
    at: float = float("-inf")


class SampleRequests:
    """Decides which ranks must sample their stacks, and when."""

    def __init__(self, store: Store, ask: Callable[[RankProcess, SampleStacks], None]) -> None:
        """Start without requests. ask: sends a request to a rank."""
        self._store = store
        self._ask = ask
        self._asked: dict[tuple[object, ...], _Asked] = {}

    def send_requests(self, now: float) -> None:
        """Send the requests that the current findings need and that are due."""
        store = self._store
        if store.state != "slow" or store.world is None:
            return
        asked: dict[tuple[object, ...], _Asked] = {}
        for finding in store.findings:
            if not _wants_line(finding):
                continue
            about = finding.kind, finding.phase, *finding.ranks
            request = asked[about] = self._asked.get(about) or _Asked()
            if "line" in finding.evidence or request.count == len(WAITS_S):
                continue
            pair = self._pair(finding)
            if pair and now - request.at >= WAITS_S[request.count]:
                request.count, request.at = request.count + 1, now
                for process in pair:
                    self._ask(process, SampleStacks(self._seconds(finding)))
        self._asked = asked

    def _pair(self, finding: Finding) -> list[RankProcess]:
        """Return a slow rank and a peer, or only the slow rank if all are slow.

        Return [] if the slow work is not on the CPU, or no rank can be asked.
        """
        by_rank, world = self._store.registry.process_of_rank, self._store.world
        slow = by_rank.get(finding.ranks[0])
        if world is None or slow is None or slow.gone or finding.phase not in OWN_PHASES:
            return []
        if slow.hello.device_clock and finding.phase in DEVICE_PHASES:
            return []
        if len(finding.ranks) == len(world.ranks):
            return [slow]
        peer = _peer(self._store, slow, world)
        return [slow, peer] if peer else []

    def _seconds(self, finding: Finding) -> float:
        """Return the number of seconds to sample: the duration of STEPS steps, or of STEPS periods of a periodic
        slowdown.
        """
        world, pattern = self._store.world, finding.evidence.get("pattern")
        step_s = 0.0 if world is None else float(world.step_ms.mean()) / 1e3
        every = float(finding.evidence.get("every") or 1.0)
        seconds = STEPS * (every if pattern == "seconds" else every * step_s)
        least = LEAST_S if pattern in {"lasting", "ramp", None} else IRREGULAR_S
        return min(max(seconds, least), MOST_S)


def slow_rank_and_peer(store: Store) -> list[RankProcess]:
    """Return the rank that a finding names, or else the rank with the most own time, and one of its peers."""
    by_rank, world = store.registry.process_of_rank, store.world
    alive = [rank for rank in sorted(by_rank) if not by_rank[rank].gone]
    if world is None or not set(alive) & set(world.ranks):
        return [by_rank[rank] for rank in alive[:2]]
    own_ms = dict(zip(world.ranks, world.mean("own_ms").tolist(), strict=True))
    named = [rank for one in _about_some(store, world) for rank in one.ranks if rank in alive]
    slow = by_rank[named[0] if named else max((rank for rank in alive if rank in own_ms), key=own_ms.__getitem__)]
    peer = _peer(store, slow, world)
    return [slow, peer] if peer else [slow]


def _wants_line(finding: Finding) -> bool:
    """Return whether a finding is about the work of a rank's training thread, so that a line can explain it."""
    return kind_of(finding).names_line and finding.is_lasting and finding.severity != "info" and bool(finding.ranks)


def _about_some(store: Store, world: World) -> list[Finding]:
    """Return the findings about slow work of some ranks, but not of all ranks."""
    return [one for one in store.findings if len(one.ranks) < len(world.ranks) and _wants_line(one)]


def _peer(store: Store, slow: RankProcess, world: World) -> RankProcess | None:
    """Return the rank with the median own time among those that no finding names, on the same host if possible."""
    by_rank = store.registry.process_of_rank
    named = {slow.rank, *(rank for one in _about_some(store, world) for rank in one.ranks)}
    own_ms = dict(zip(world.ranks, world.mean("own_ms").tolist(), strict=True))
    peers = [rank for rank in own_ms if rank not in named and rank in by_rank and not by_rank[rank].gone]
    peers.sort(key=own_ms.__getitem__)
    beside = [rank for rank in peers if by_rank[rank].hello.host == slow.hello.host] or peers
    return by_rank[beside[len(beside) // 2]] if beside else None
