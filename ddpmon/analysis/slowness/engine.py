"""Keep track of the slowdowns of a run: detect them in its steps and describe them at each judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpmon.analysis.slowness.describe import describe
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
        """Steps came since then."""

    def append(self, part: World) -> None:
        """Add the steps that the window adds. A change of the ranks begins anew."""
        if part.ranks != self._detector.ranks:
            self._detector, self._past, self._slowdowns = Detector(part.ranks), Past(), ()
        self._detector.append(part)
        self._past.append(part)
        self._has_new = True

    def judge(self, world: World | None, hosts: Mapping[int, str]) -> Sequence[Slowdown]:
        """Describe the slowdowns up to now, the present ones first.

        Args:
            world: The window.
            hosts: Host of each rank.

        """
        if world is None or world.ranks != self._detector.ranks:
            return ()
        if self._has_new:  # a hub judges twice a second, however long a step takes
            self._slowdowns = describe(world, self._past, self._detector.signals(), hosts, self._slowdowns)
            self._has_new = False
        return self._slowdowns
