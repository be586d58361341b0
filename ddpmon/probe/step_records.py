"""Makes one record of a step from the parts, losses and samples that the training thread recorded."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ddpmon.messages import Bucket, Pause, Step, Sync
from ddpmon.probe.cuda import is_pending, resolve_reading
from ddpmon.probe.records import FED_CALLS, FED_MOST_SAMPLES, OTHER, PAUSED, RawStep
from ddpmon.probe.stepclock import StepClock

BEFORE_FORWARD, BEFORE_BACKWARD = "before forward", "before backward"
"""Names of the gaps in `other`."""
GAP = 0.05
"""Smallest share of a step's length with which a gap is reported by name."""


def parts(raw: RawStep) -> tuple[RawStep, ...]:
    """Return all parts of a step, in order."""
    return (*raw.before, raw)


def unread(raw: RawStep) -> bool:
    """Return whether a loss of a step has not arrived from the device, or a bucket's all-reduce has not ended."""
    for part in parts(raw):
        for loss in part.losses:
            if is_pending(loss):
                return True
        if not all(end for _, _, end in part.buckets):
            return True
    return False


def closing_pauses(clock: StepClock) -> list[Pause]:
    """Return the pauses after the last step in whole microseconds from its end. Called at the end of the process."""
    start = clock.part.start
    return [Pause(p.kind, (p.start - start) // 1000, (p.end - start) // 1000) for p in clock.closing_pauses()]


class StepRecords:
    """Makes the records of consecutive steps."""

    def __init__(self) -> None:
        self._usual = 1
        """Usual number of backward calls in a step."""
        self._backwards = 1
        """Number of backward calls of the last step."""
        self._loss: float | None = None
        """Loss of the last step."""
        self._repeats = 1.0
        """Number of times that each fetched sample was last passed to a model."""

    def record(self, raw: RawStep) -> tuple[Step, dict[str, float]]:
        """Return a step in whole microseconds, and the loss of each model if the step updates several.

        The rounding errors go to `other`, so that the phases still add up to the length.
        """
        whole = _joined(raw) if raw.before else raw
        start, end = whole.start, whole.end
        length = (end - start) // 1000
        data, forward, backward, optimizer = [spent // 1000 if spent > 0 else 0 for spent in whole.phases[:OTHER]]
        other = length - data - forward - backward - optimizer
        syncs = []
        for sync in whole.syncs:
            arrival_us = max(0, sync.arrival - start) // 1000
            end_us = max(0, sync.end - start) // 1000
            syncs.append(Sync(sync.kind, arrival_us, end_us, sync.payload_bytes))
            other -= end_us - arrival_us
        pauses = _pauses(whole, length)
        for pause in pauses:
            other -= pause.end_us - pause.start_us
        backwards = len(whole.losses)
        samples, tokens = self._fed(whole, backwards)
        loss, losses = self._losses(raw, backwards)
        step = Step(
            raw.step,
            end // 1000,
            length,
            data,
            forward,
            backward,
            optimizer,
            max(0, other),
            syncs,
            loss,
            samples if raw.marked_samples is None else raw.marked_samples,
            tokens,
            raw.learning_rate,
            whole.gc // 1000,
            _buckets(raw, start),
            _named(whole, length * 1000),
            pauses,
            _accumulated(whole, backwards),
        )
        return step, losses

    def _losses(self, raw: RawStep, backwards: int) -> tuple[float | None, dict[str, float]]:
        """Return the step's loss, a sum over backward calls. If the step updates several models, return each one's too.

        For a model that is updated several times in a step (a critic), the loss is the mean over its updates. With
        gradient accumulation, scripts usually divide each loss, so that the sum is the mean over the step's batches. If
        a step has fewer batches than usual, as an epoch's last one, the sum may be too small. Then the sum or its
        extrapolation counts, whichever is closer to the last loss.
        """
        if raw.updates:
            values = [_loss(part) for part in parts(raw)]
            by_name: dict[str, list[float]] = {}
            begin = 0
            for name, end in raw.updates:
                loss = _sum(values[begin:end])
                if loss is not None:
                    by_name.setdefault(name, []).append(loss)
                begin = end
            losses = {name: sum(those) / len(those) for name, those in by_name.items()}
            return _sum(losses.values()), losses
        loss = _sum(_loss(part) for part in parts(raw)) if raw.before else _loss(raw)
        if backwards == self._backwards:
            self._usual = backwards
        self._backwards = backwards
        if 0 < backwards < self._usual and loss is not None and self._loss is not None:
            scaled = loss * self._usual / backwards
            if abs(scaled - self._loss) < abs(loss - self._loss):
                loss = scaled
        self._loss = loss
        return loss, {}

    def _fed(self, whole: RawStep, backwards: int) -> tuple[int, int]:
        """Return the samples and tokens of a step: those passed to its model. Of several models, the fewest count.

        Fetched batches count only if no inputs were counted, or if a model is called more often than it is trained: a
        critic sees real and generated images, and a siamese network two images per sample. Otherwise they do not count,
        because loaders fetch ahead, and some ranks fetch for others.
        If the step's batch was fetched in an earlier step, each sample counts as being used as often as in that step.
        If several models are updated and nothing is fetched, each update has its own inputs, and the largest counts.
        """
        amounts = []
        several = bool(whole.updates)
        more_than_once = several
        for samples, tokens, calls, most_samples, most_tokens in whole.fed.values():
            if samples:
                amounts.append((most_samples, most_tokens) if several and not whole.samples else (samples, tokens))
            if calls > backwards:
                more_than_once = True
        fetched = (whole.samples, whole.tokens)
        counts = whole.samples and (more_than_once or not amounts)
        fewest = min([*amounts, fetched] if counts else amounts, default=(0, 0))
        if amounts and more_than_once and not several:
            if counts:
                self._repeats = min(amounts)[0] / fewest[0]
            else:
                return round(fewest[0] / self._repeats), round(fewest[1] / self._repeats)
        return fewest


def _joined(raw: RawStep) -> RawStep:
    """Return a step of several parts as one part, without the times at which the parts ended."""
    every = parts(raw)
    fed: dict[int, list[int]] = {}
    named: dict[str, int] = {}
    for part in every:
        for number, more in part.fed.items():
            before = fed.get(number, [0, 0, 0, 0, 0])
            most = max(before[FED_MOST_SAMPLES:], more[FED_MOST_SAMPLES:])
            fed[number] = [*map(sum, zip(before[:FED_MOST_SAMPLES], more, strict=False)), *most]
        for name, spent in part.named.items():
            named[name] = named.get(name, 0) + spent
    return replace(
        raw,
        start=every[0].start,
        phases=[sum(spent) for spent in zip(*(part.phases for part in every), strict=True)],
        syncs=[sync for part in every for sync in part.syncs],
        losses=[loss for part in every for loss in part.losses],
        fed=fed,
        samples=sum(part.samples for part in every),
        tokens=sum(part.tokens for part in every),
        gc=sum(part.gc for part in every),
        buckets=[bucket for part in every for bucket in part.buckets],
        named=named,
        pauses=[pause for part in every for pause in part.pauses],
        gaps=(sum(part.gaps[0] for part in every), sum(part.gaps[1] for part in every)),
    )


def _loss(part: RawStep) -> float | None:
    losses = part.losses
    return resolve_reading(losses[0]) if len(losses) == 1 else _sum(map(resolve_reading, losses))


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _accumulated(whole: RawStep, backwards: int) -> int:
    """Return the number of batches whose gradients the step adds up: the minimum of model calls and backward calls."""
    if whole.updates:
        return 1
    for entry in whole.fed.values():
        calls = entry[FED_CALLS]
        backwards = min(backwards, calls)
    return max(1, backwards)


def _pauses(whole: RawStep, length: int) -> list[Pause]:
    start = whole.start
    pauses = [
        Pause(p.kind, max(0, p.start - start) // 1000, min(max(0, p.end - start) // 1000, length)) for p in whole.pauses
    ]
    if whole.marks:  # On the device's timeline, begin and end of a pause are estimates. The total of pauses is exact.
        total = sum(p.end_us - p.start_us for p in pauses)
        scale = min(1.0, whole.phases[PAUSED] // 1000 / total) if total else 0.0
        pauses = [Pause(p.kind, p.start_us, p.start_us + int((p.end_us - p.start_us) * scale)) for p in pauses]
    return pauses


def _buckets(raw: RawStep, start: int) -> list[Bucket]:
    return [
        # DDP waited for the all-reduce within the part, even if another thread recorded its end later.
        Bucket(layout, max(0, launch - start) // 1000, max(0, min(end, part.end) - start) // 1000)
        for part in parts(raw)
        for layout, launch, end in part.buckets
        if end
    ]


def _named(whole: RawStep, length: int) -> dict[str, int]:
    """Return the microseconds in spans that the script named, and in gaps of at least GAP of the step."""
    named = {name: spent // 1000 for name, spent in whole.named.items()}
    forward, backward = whole.gaps
    if forward > 0 and forward >= GAP * length:
        named.setdefault(BEFORE_FORWARD, forward // 1000)
    if backward > 0 and backward >= GAP * length:
        named.setdefault(BEFORE_BACKWARD, backward // 1000)
    return named
