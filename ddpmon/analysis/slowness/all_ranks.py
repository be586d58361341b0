"""Description of a slowdown of all ranks compared with their own past."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.slowness.bursts import begins_as_noise
from ddpmon.analysis.slowness.detector import ALL_RANKS_STEPS
from ddpmon.analysis.slowness.excess import own_change, sample_of_peers
from ddpmon.analysis.slowness.onset import find_onset
from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import EVIDENCE, Slowdown, gain_without
from ddpmon.analysis.slowness.some_ranks import SETTLED_STEPS
from ddpmon.analysis.slowness.stretches import stretches
from ddpmon.analysis.slowness.who import FEWEST_ROWS
from ddpmon.analysis.statistics.arrays import Floats, column_medians, row_medians, series_median
from ddpmon.messages import OWN_PHASES


def describe_all(
    rows: RunRows, first: int, series: str, before: Slowdown | None, columns: Sequence[int]
) -> Slowdown | None:
    """Describe a slowdown of all ranks compared with their own past; return None if there is none.

    Args:
        rows: The run.
        first: Approximate number of the slowdown's first step.
        series: "own", a phase or "transfer".
        before: Description of the slowdown at the last judgement; None if it is new.
        columns: Columns of the ranks that are not slow compared with the others; only their medians are used.

    """
    every = np.column_stack([row_medians(rows.phases_ms(sample_of_peers(columns))), rows.transfer_ms])
    values = every[:, :-1].sum(axis=1) if series == "own" else every[:, (*OWN_PHASES, "transfer").index(series)]
    start = rows.index(first)
    if start < FEWEST_ROWS or start > len(rows) - FEWEST_ROWS:
        return before
    over = own_change(rows, values, start)
    spans = stretches(rows, over, start, before.phases_ms.get(series, before.excess_ms) if before else None).spans
    if not spans:
        return before
    begin, end = spans[-1]
    since, within, is_ramp, evidence = _first_step(rows, over[0][:end], begin)
    begin = max(1, rows.index(since))
    if before is None and (
        end - begin < ALL_RANKS_STEPS or evidence < EVIDENCE or begins_as_noise(rows, over[0], begin, end)
    ):
        return None
    if before and int(rows.world.step[-1]) - before.since > SETTLED_STEPS:
        since, within, is_ramp = before.since, before.since_within, before.pattern == "ramp"
    begin = max(1, rows.index(since))
    change = every - column_medians(every[:begin])
    shown = slice(max(begin, min(len(rows.blocks), end - 1)), end)
    phases = column_medians(change[shown])
    steps, total = rows.steps[begin:end], float((rows.length_ms * rows.steps)[begin:end].sum())
    # Each step waits for its slowest rank. A step may therefore grow by more than the median rank's own time.
    length = rows.length_ms - float(np.average(rows.length_ms[:begin], weights=rows.steps[:begin]))
    longer = length if len(columns) == len(rows.world.ranks) else change.sum(axis=1)
    cost = max(0.0, float((longer[begin:end] * steps).sum()))
    names = (*OWN_PHASES, "transfer")
    gain = gain_without(cost, total)
    return Slowdown(
        ranks=rows.world.ranks,
        scope="all",
        phases_ms=dict(zip(names, phases.tolist(), strict=True)),
        pattern="ramp" if is_ramp else "lasting" if end == len(rows) else "stretch",
        since=since,
        since_within=within,
        until=None if end == len(rows) else rows.last_step(end - 1),
        excess_ms=float(phases.sum()),
        cost_ms=cost,
        as_of=int(rows.world.step[-1]),
        gain=gain,
        gain_alone=gain,
        increase=float(phases.max() / max(series_median(every[:begin, int(phases.argmax())]), 1e-9)),
    )


def _first_step(rows: RunRows, values: Floats, begin: int) -> tuple[int, tuple[int, int], bool, float]:
    """Return the first step of a rise near a row, its interval, whether it is a ramp, and the evidence for the rise.

    If the rise lies within the window, use only the window's single steps, not the blocks of steps before it.
    """
    lower = len(rows.blocks) if begin > len(rows.blocks) + FEWEST_ROWS else 0
    found = find_onset(values[lower:], may_be_constant=False)
    low, high = (lower + index for index in found.within)
    within = int(rows.first[low]), rows.last_step(high)
    return int(rows.first[lower + found.index]), within, found.is_ramp, found.evidence
