"""The time by which some ranks are slower than their peers, and its noise, measured on the peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import CERTAIN_Z
from ddpmon.analysis.statistics.arrays import SIGMAS_PER_MAD, Floats, column_medians, row_medians, series_median
from ddpmon.messages import OWN_PHASES

PLAIN_Z = CERTAIN_Z / 3
"""Minimum excess in own time, in standard deviations, at which own time is used instead of a phase. Nine steps with
this excess are evidence for a change. Own time is preferred, because it stays high if the slowdown moves to another
phase."""
OWN = len(OWN_PHASES)
"""Column of own time, after the columns of the phases."""
FEW_PEERS = 2
"""Maximum number of peers whose noise is measured against their own past. The deviations of two peers from their median
would always be equal."""
PEERS = 16
"""Number of sampled peers: the standard error of their median is a third of one peer's deviation (1.25 / sqrt(16))."""
NOISE_ROWS = 32
"""Number of rows over which the spread of noise is treated as constant."""
BLOCKS = (4, 16, 64)
"""Lengths in steps of the blocks whose means show how long noise lasts."""
SHOWN_STEPS = 72
"""Number of steps after a change that decide which series shows the change most clearly."""


@dataclass(frozen=True)
class Excess:
    """The time by which some ranks are slower than their peers, row by row."""

    phases_ms: Floats
    """[N, 5] Excess in each phase."""
    own_ms: Floats
    """[N] Excess in own time."""
    noise_ms: Floats
    """[N, 6] Standard deviation of one step of a peer, in each phase and in own time."""
    memory: Floats
    """[6] Variance of the sum of many steps, as a multiple of the variance if steps were independent; at least 1."""

    def series(self, start: int, known: str | None) -> tuple[Floats, Floats, float]:
        """Return the series that shows the slow rows: own time, or the clearest phase if noise hides it.

        Args:
            start: Row near which the ranks became slow.
            known: The phase in which the ranks were slow at the last judgement. The larger of the excesses in this
                phase and in own time is used: noise of the peers in another phase may hide the excess in own time, and
                the slow phase may change.

        Returns:
            [N] the excess, [N] the standard deviation of a step, and the variance of the sum of many steps, as a
            multiple of the variance if steps were independent.

        """
        every = np.column_stack([self.phases_ms, self.own_ms])
        after = every[start : start + SHOWN_STEPS].mean(axis=0)
        noise = np.sqrt(np.square(self.noise_ms[start:]).mean(axis=0) * self.memory)
        # Measure the latest rows separately, because new noise appears there first.
        latest = every[-NOISE_ROWS // 2 :]
        noise = np.maximum(noise, np.sqrt(np.square(latest - column_medians(latest)).mean(axis=0)))
        clear = after / np.maximum(noise, 1e-9) * (after >= after[-1] / 2)
        phase = OWN if clear[OWN] >= PLAIN_Z else int(clear.argmax())
        values = every[:, phase]
        if phase == OWN and known is not None:
            values = np.maximum(values, self.phases_ms[:, OWN_PHASES.index(known)])
        return values, self.noise_ms[:, phase], float(self.memory[phase])


def excess_over(rows: RunRows, columns: Sequence[int], peers: Sequence[int]) -> Excess:
    """Return the excess of the mean of some ranks over the median of their peers."""
    chosen, others = sample_of_peers(columns), sample_of_peers(peers)
    theirs = rows.phases_ms(others)
    theirs = np.concatenate([theirs, theirs.sum(axis=2, keepdims=True)], axis=2)
    mine = rows.phases_ms(chosen).mean(axis=1)
    mine = np.column_stack([mine, mine.sum(axis=1)])
    usual = row_medians(theirs)
    over = mine - usual
    if len(others) > FEW_PEERS:
        noise, memory = _noise(rows, theirs, usual)
    else:  # One or two peers may have less noise than the slow ranks, so use the noise of the slow ranks too.
        noise, memory = _noise(rows, np.column_stack([theirs, mine[:, None]]))
    return Excess(over[:, :-1], over[:, -1], noise, memory)


def own_change(rows: RunRows, values: Floats, before: int) -> tuple[Floats, Floats, float]:
    """Compare a series of all ranks with its own past, the rows before an index; return the same as `Excess.series`."""
    over = values - series_median(values[:before])
    rest = over.copy()
    rest[before:] -= series_median(over[before:])
    noise, memory = _noise(rows, rest[:, None, None])
    return over, noise[:, 0], float(memory[0])


def sample_of_peers(columns: Sequence[int]) -> Sequence[int]:
    """Return at most PEERS of these columns, evenly spaced."""
    return columns[:: -(-len(columns) // PEERS)]


def _noise(rows: RunRows, values: Floats, usual: Floats | None = None) -> tuple[Floats, Floats]:
    """Return the spread of one step and the memory of the noise, from peers that do not change: [N, 6] and [6].

    Args:
        rows: The run.
        values: [N, P, 6] Times of the peers, or [N, P, 1] of one series.
        usual: [N, 6] Median of the peers, with which each peer is compared; None: compare each with its own past.

    """
    count, ranks, series = values.shape
    group = np.minimum(np.arange(count) // NOISE_ROWS, max(count // NOISE_ROWS - 1, 0))
    if usual is not None:
        # Correct for few ranks: the median includes the rank itself, so the deviation from it is too small.
        local = stray = (values - usual[:, None]) * (ranks / (ranks - 1)) ** 0.5
    else:
        local, stray = values - _middles_of(values, NOISE_ROWS)[group], values - column_medians(values)
    single = np.abs(local * np.sqrt(rows.steps)[:, None, None])
    spread = SIGMAS_PER_MAD * _middles_of(single.reshape(-1, series), NOISE_ROWS * ranks)[group]
    spread = np.maximum(spread, 1e-3 * np.maximum(spread.max(axis=0), 1e-6))
    window = (stray / spread[:, None])[len(rows.blocks) :]
    window = np.clip(window, -4, 4) if len(window) >= BLOCKS[0] * 4 else np.ones((BLOCKS[0] * 4, *window.shape[1:]))
    memory = np.ones(values.shape[2])
    for block in BLOCKS:
        if len(window) >= 4 * block:
            means = window[: len(window) // block * block].reshape(-1, block, *window.shape[1:]).mean(axis=1)
            if usual is not None:
                variance = np.square(means).mean(axis=(0, 1))
            else:  # The median of squared differences ignores a single lasting change, which is not noise.
                changes = np.square(np.diff(means, axis=0)).reshape(-1, values.shape[2])
                variance = SIGMAS_PER_MAD**2 * column_medians(changes) / 2
            memory = np.maximum(memory, block * variance)
    return spread, memory


def _middles_of(values: Floats, size: int) -> Floats:
    """Return medians of groups of `size` rows: [N, ...] -> [groups, ...]. The last group has the remaining rows too."""
    first = max(len(values) // size - 1, 0)
    middles = row_medians(values[: first * size].reshape(first, size, *values.shape[1:]))
    both: Floats = np.concatenate([middles, column_medians(values[first * size :])[None]])
    return both
