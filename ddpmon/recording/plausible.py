"""Checks that a rank's values are possible at this moment. Impossible values are left out.

Steps are numbered without gaps, and a rank reports when it had to discard records. So a step that skips numbers is
accepted if records before it were lost, or if the next batch continues from this step. It is never accepted if there
was not enough time for so many steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ddpmon.messages import Batch, Digest, Sample, Scalar, Step
from ddpmon.store.processes import RankProcess

LEAST_STEP_US = 10
"""Lower bound of the length of a training step, in microseconds. Real steps are longer."""
AHEAD_US = 2_000_000
"""Microseconds by which a moment may lie in the future, because a batch and its steps may be timed by different
clocks."""
STEPS_AHEAD = 100_000
"""Largest number of finished steps of which no record has arrived yet."""
LAYOUTS_MOST = 8192
"""Largest number of bucket layouts of a process."""

_Record = TypeVar("_Record", Sample, Scalar, Digest)


def leave_out(process: RankProcess, batch: Batch, now_us: int | None) -> list[str]:
    """Remove impossible values from a new batch, and return what was removed.

    Args:
        process: The sender.
        batch: The batch, which is changed.
        now_us: The present moment by the sender's clock, or None if that is another machine's clock.

    """
    left_out: list[str] = []
    latest = (batch.now_us if now_us is None else now_us) + AHEAD_US
    process.missing += max(0, batch.dropped - process.dropped)
    batch.steps = _steps(process, batch.steps, latest, left_out)
    newest = max(process.last_step, batch.steps[-1].step if batch.steps else 0)
    if batch.step > newest + STEPS_AHEAD:
        left_out.append("number of finished steps")
        batch.step = max(newest, process.steps)
    last = max(batch.step, newest) + 1
    batch.samples = _possible(batch.samples, [sample.time_us <= latest for sample in batch.samples], "sample", left_out)
    scalars = [scalar.step <= last for scalar in batch.scalars]
    batch.scalars = _possible(batch.scalars, scalars, "logged value", left_out)
    batch.digests = _possible(batch.digests, [digest.step <= last for digest in batch.digests], "digest", left_out)
    if batch.layouts and len(process.layouts) + len(batch.layouts) > LAYOUTS_MOST:
        left_out.append("layouts")
        batch.layouts = []
    return left_out


def _possible(records: list[_Record], fits: Sequence[bool], called: str, left_out: list[str]) -> list[_Record]:
    if all(fits):
        return records
    left_out += [f"a {called}"] * (len(records) - sum(fits))
    return [record for record, fit in zip(records, fits, strict=True) if fit]


def _steps(process: RankProcess, steps: list[Step], latest: int, left_out: list[str]) -> list[Step]:
    """Return the possible steps. Steps that are already recorded are included, because recording a step again changes
    nothing.
    """
    possible = []
    last, end_us = process.last_step, process.last_end_us
    doubted, process.doubted = process.doubted, 0
    for step in steps:
        ahead = step.step - last
        fits = ahead <= 1 + process.missing or process.hole or (doubted > 0 and step.step == doubted + 1)
        if step.end_us > latest or ahead > 1 + max(0, step.end_us - end_us) // LEAST_STEP_US:
            fits = False
        elif not fits:
            process.doubted = step.step
        if not fits:
            left_out.append("a step")
            process.missing += 1
            continue
        if ahead > 0:
            last, end_us = step.step, step.end_us
            process.hole, process.missing, process.doubted, doubted = False, 0, 0, 0
        possible.append(step)
    return possible
