"""Checks that values of a rank are possible at this moment: a wild number is left out, and harms nobody else.

Steps count without holes, and a rank says when it had to throw records away. So a step that is not the next one is
taken where records before it were lost, or where the next batch goes on from it; and never where more steps
would have ended than time can have held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ddpmon.messages import Batch, Digest, Sample, Scalar, Step
from ddpmon.store.processes import RankProcess

LEAST_STEP_US = 10
"""No training step is as short as this."""
AHEAD_US = 2_000_000
"""A time may lie so far in the future: a batch and its step may be timed by different clocks."""
STEPS_AHEAD = 100_000
"""Steps that may have ended of which no record came yet, at most."""
LAYOUTS_MOST = 8192
"""Bucket layouts of a process."""

_Record = TypeVar("_Record", Sample, Scalar, Digest)


def leave_out(process: RankProcess, batch: Batch, now_us: int | None) -> list[str]:
    """Take out of a new batch what cannot be; returns what that was.

    now_us: by the clock that the process tells by; None: that is another machine's.
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
    """Return the possible steps. Those that are recorded already stay: they change nothing."""
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
