"""Read forward, from any moment, what one process recorded."""

from __future__ import annotations

import bisect
import math
from collections import deque

from ddpmon.messages import STAGE_CONNECTED, STAGE_ENDED, STAGE_TRAINING, Step
from ddpmon.recording.merged import Merged
from ddpmon.recording.recording import Recording
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

DIGESTS = 10_000
DIGESTS_BEFORE = 100
"""Digests of a rank that are shown from before the place that is jumped to."""
SAMPLED_US = 75_000_000
"""Time before a jump's target from which samples are read: merged ones are a minute apart."""
GONE_S = 1.5
"""Time that a hub needs to notice that a process has ended."""


class Track:
    """Everything that one process recorded, in order. Times are by the recording's clock, steps' by its host's."""

    def __init__(
        self, recording: Recording, merged: Merged, at_end: RankProcess, span_us: tuple[int, int], read_steps: int
    ) -> None:
        """span_us: when it was first and last heard of, by its host's clock."""
        self.at_end = at_end
        """The process as it was at the end of the recording."""
        self.behind_us = at_end.clock_behind_us or 0
        """Time by which its host's clock is behind the recording's."""
        self.begins_us, self.ends_us = (at_us + self.behind_us for at_us in span_us)
        self._recording = recording
        self._merged = merged
        self._read_steps = read_steps
        self._ahead: deque[Step] = deque()
        self._next = 1
        self._sampled_us = -1
        self._digests = recording.digests(at_end.id, DIGESTS)
        self._digested = 0

    def first_step_after(self, at_us: int) -> int:
        """The first of its steps that ends after a moment; one more than there are if none does."""
        return self._merged.first_step_after(self.at_end.id, at_us - self.behind_us, self.at_end.last_step)

    def first_end_us(self) -> int | None:
        """Return when the first of its steps ended; None: there is none."""
        end_us = self._merged.first_end_us(self.at_end.id)
        return None if end_us is None else end_us + self.behind_us

    def end_us(self, step: int) -> int | None:
        """Return when one of its steps ended; None: it is not recorded."""
        steps = self._merged.steps(self.at_end.id, step, step + 1)
        return steps[0].end_us + self.behind_us if steps else None

    def begin(self, after_us: int, now_us: int) -> RankProcess:
        """Go to a moment: steps are read from `after_us` on, samples from before `now_us`. A process as it was then."""
        self._next = self.first_step_after(after_us)
        self._ahead.clear()
        self._sampled_us = now_us - self.behind_us - SAMPLED_US
        at_end = self.at_end
        before = self._next - 1
        passed = bisect.bisect_right(self._digests, before, key=lambda digest: digest.step)
        self._digested = max(0, passed - DIGESTS_BEFORE)
        return RankProcess(
            at_end.id, at_end.attempt, at_end.hello, stage=STAGE_CONNECTED, layouts=at_end.layouts, steps=before,
            last_step=before, records=before, total_steps=at_end.total_steps, heard_at=-math.inf,
            later_us=at_end.later_us,
        )  # fmt: skip

    def take(self, until_us: int, most: int) -> list[Step]:
        """The next records of steps that had ended by a moment."""
        steps: list[Step] = []
        while len(steps) < most:
            if not self._ahead:
                self._ahead.extend(self._merged.steps_from(self.at_end.id, self._next, self._read_steps))
                if not self._ahead:
                    break
                self._next = self._ahead[-1].step + 1
            if self._ahead[0].end_us + self.behind_us > until_us:
                break
            steps.append(self._ahead.popleft())
        return steps

    def update(self, store: Store, process: RankProcess, now_us: int) -> None:
        """Bring all but steps up to a moment: samples, digests, stack, whether it has left."""
        at_end = self.at_end
        fresh = self._recording.samples(at_end.id, self._sampled_us, now_us - self.behind_us)
        process.samples.extend(fresh)
        store.add_samples(process, fresh)
        if fresh:
            self._sampled_us = fresh[-1].time_us
            process.heard_at = max(process.heard_at, store.clock.unix_at(self._sampled_us + self.behind_us))
        if process.last_step:
            process.stage = STAGE_TRAINING
        passed = bisect.bisect_right(self._digests, process.last_step, key=lambda digest: digest.step)
        store.add_digests(process, self._digests[self._digested : passed])
        self._digested = passed
        if process.steps >= at_end.unsynchronised_at:
            process.unsynchronised, process.unsynchronised_at = at_end.unsynchronised, at_end.unsynchronised_at
        if at_end.stack and at_end.stack.time_us <= now_us:
            process.stack, process.stack_at = at_end.stack, store.clock.unix_at(at_end.stack.time_us)
        if now_us > self.ends_us and at_end.left:
            process.left, process.stage = True, STAGE_ENDED
        process.dead = at_end.dead and now_us > self.ends_us + GONE_S * 1e6
        process.ended_us = at_end.ended_us if process.left or process.dead else None
