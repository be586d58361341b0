"""Tracking of the slowdowns of a run: they are detected in its steps and described at each judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpmon.analysis.slowness.describe import describe_slowdowns
from ddpmon.analysis.slowness.detector import Detector
from ddpmon.analysis.slowness.past import Past
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.steps.world import World


class Engine:
    """Detects and describes the slowdowns of a run, whose ranks may change."""

    def __init__(self) -> None:
        self._detector = Detector(())
        self._past = Past()
        self._slowdowns: Sequence[Slowdown] = ()
        """The result of the last judgement."""
        self._has_new = False
        """True if steps were appended after the last judgement."""

    def append(self, part: World) -> None:
        """Append further steps. If they have other ranks, start anew."""
        if part.ranks != self._detector.ranks:
            self._detector, self._past, self._slowdowns = Detector(part.ranks), Past(), ()
        self._detector.append(part)
        self._past.append(part)
        self._has_new = True

    def judge(self, world: World | None, hosts: Mapping[int, str]) -> Sequence[Slowdown]:
        """Return descriptions of the slowdowns so far, lasting ones first."""
        if world is None or world.ranks != self._detector.ranks:
            return ()
        if self._has_new:  # The hub calls this twice a second, even if no step has finished since.
            self._slowdowns = describe_slowdowns(
                world, self._past, self._detector.recent_signals(), hosts, self._slowdowns
            )
            self._has_new = False
        return self._slowdowns
