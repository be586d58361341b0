"""The whole run in bounded memory: the window's single steps, and before them means over blocks that grow with their
age.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.slowness.detector import Signal
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.steps.world import World

YOUNGEST_BLOCK_STEPS = 4
"""Number of steps in the youngest blocks."""
BLOCKS_OF_A_SIZE = 64
"""Number of blocks of each size. The length of a block is at most 1/64 of its age; a million steps need 800 blocks."""


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Means over some consecutive steps."""

    first: int
    """Number of the first step."""
    last: int
    """Number of the last step."""
    steps: int
    end_us: int
    length_ms: float
    """Mean length of a step."""
    transfer_ms: float
    """Transfer time of the rank that waited least. The transfer times of other ranks may include waits for that
    rank."""
    phases_ms: NDArray[np.float32]
    """[R, 5] Mean time in each phase."""

    def __add__(self, after: StepBlock) -> StepBlock:
        steps = self.steps + after.steps
        mine, its = self.steps / steps, after.steps / steps
        return StepBlock(
            self.first,
            after.last,
            steps,
            after.end_us,
            mine * self.length_ms + its * after.length_ms,
            mine * self.transfer_ms + its * after.transfer_ms,
            np.float32(mine) * self.phases_ms + np.float32(its) * after.phases_ms,
        )


class Past:
    """Phase times of a fixed set of ranks since the start, as means of blocks."""

    def __init__(self) -> None:
        self._pending: StepBlock | None = None
        self._sizes: list[deque[StepBlock]] = []
        """One queue of blocks for each size, the smallest and youngest first. In each queue, the oldest block is
        first."""

    def append(self, part: World) -> None:
        """Append the same steps that are appended to the window."""
        begin = 0
        while begin < len(part):
            left = YOUNGEST_BLOCK_STEPS - (self._pending.steps if self._pending else 0)
            block = _block(part, slice(begin, begin + left))
            begin += left
            self._pending = self._pending + block if self._pending else block
            if self._pending.steps == YOUNGEST_BLOCK_STEPS:
                self._add(self._pending, 0)
                self._pending = None

    def _add(self, block: StepBlock, size: int) -> None:
        if size == len(self._sizes):
            self._sizes.append(deque())
        blocks = self._sizes[size]
        blocks.append(block)
        if len(blocks) > BLOCKS_OF_A_SIZE:
            self._add(blocks.popleft() + blocks.popleft(), size + 1)

    def blocks_before(self, step: int) -> list[StepBlock]:
        """Return the blocks that end before a step, oldest first."""
        return [block for block in chain.from_iterable(reversed(self._sizes)) if block.last < step]


def _block(part: World, rows: slice) -> StepBlock:
    length, transfer = part.step_ms[rows].mean(), part.transfer_ms[rows].min(axis=1).mean()
    step, phases = part.step[rows], part.phases_ms[rows].mean(axis=0).astype(np.float32)
    end = int(part.end_us[rows][-1])
    return StepBlock(int(step[0]), int(step[-1]), len(step), end, float(length), float(transfer), phases)


class RunRows:
    """The whole run as rows, oldest first: blocks of steps before the window, then the window's single steps."""

    def __init__(
        self, world: World, past: Past, signals: Sequence[Signal], hosts: Mapping[int, str], before: Sequence[Slowdown]
    ) -> None:
        self.world, self.hosts = world, hosts
        self.signals = signals
        """The changes that the detector is certain of."""
        self.before = before
        """The result of the last judgement."""
        self.blocks = blocks = past.blocks_before(int(world.step[0]))
        """The blocks before the window."""
        self.first: Ints = np.concatenate([np.array([block.first for block in blocks], np.int64), world.step])
        """[N] Number of the first step of each row."""
        self.steps: Ints = np.array([block.steps for block in blocks] + [1] * len(world))
        """[N] Number of steps in each row."""
        self.length_ms: Floats = np.concatenate([[block.length_ms for block in blocks], world.step_ms])
        """[N] Mean length of a step in each row."""
        least = world.transfer_ms.min(axis=1)
        self.transfer_ms: Floats = np.concatenate([[block.transfer_ms for block in blocks], least])
        """[N] Mean transfer of a step in each row."""
        end_us = np.concatenate([[block.end_us for block in blocks], world.end_us])
        self.begin_s: Floats = end_us / 1e6 - self.length_ms * self.steps / 1e3
        """[N] Moment at which each row begins, in seconds."""

    def __len__(self) -> int:
        return len(self.first)

    def begin_us(self, steps: tuple[int, int]) -> tuple[int, int]:
        """Return the moments at which two steps began, in µs. Before the window, they are exact to a block's length."""
        first, second = (np.interp(steps, self.first, self.begin_s) * 1e6).astype(np.int64).tolist()
        return first, second

    def phases_ms(self, columns: Sequence[int], begin: int = 0, end: int | None = None) -> Floats:
        """Return the phases of some ranks in the rows `begin` to before `end`: [rows, columns, 5]."""
        chosen, end, old = np.asarray(columns), len(self) if end is None else end, len(self.blocks)
        new: Floats = self.world.phases_ms[max(0, begin - old) : max(0, end - old), chosen]
        if begin >= old:
            return new
        blocks = np.array([block.phases_ms[chosen] for block in self.blocks[begin:end]], np.float64)
        return np.concatenate([blocks, new])

    def index(self, step: int) -> int:
        """Return the index of the row that contains a step."""
        return max(0, int(np.searchsorted(self.first, step, side="right")) - 1)

    def last_step(self, row: int) -> int:
        """Return the number of the last step of a row."""
        return self.blocks[row].last if row < len(self.blocks) else int(self.world.step[row - len(self.blocks)])
