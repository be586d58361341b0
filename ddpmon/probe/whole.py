"""Makes the whole of a step from what the training thread left of it: its parts, losses and samples, as one record."""

from __future__ import annotations

from collections.abc import Iterable

from ddpmon.messages import Bucket, Pause, Step, Sync
from ddpmon.probe.cuda import pending, resolve
from ddpmon.probe.records import PAUSED, RawStep
from ddpmon.probe.stepclock import StepClock

BEFORE_FORWARD, BEFORE_BACKWARD = "before forward", "before backward"
"""What a gap in `other` is called."""
GAP = 0.05
"""Share of a step from which on a gap is worth a name."""


def parts(raw: RawStep) -> tuple[RawStep, ...]:
    """All parts of a step, in order."""
    return (*raw.before, raw)


def unread(raw: RawStep) -> bool:
    """Whether something of a step has not arrived from the device, or was not seen to end: a bucket's all-reduce."""
    return any(
        any(map(pending, part.losses)) or any(not end for _, _, end in part.buckets or ()) for part in parts(raw)
    )


def rest(clock: StepClock) -> list[Pause]:
    """The pauses since the last step, in whole microseconds; for the end of the process."""
    return [Pause(p.kind, (p.start - clock.start) // 1000, (p.end - clock.start) // 1000) for p in clock.rest()]


class Wholes:
    """Makes the records of consecutive steps."""

    def __init__(self) -> None:
        self._usual = 1
        """How many backward calls a step usually has."""
        self._backwards = 1
        """Of the last step."""
        self._loss: float | None = None
        """Of the last step."""

    def record(self, raw: RawStep) -> tuple[Step, dict[str, float]]:
        """A step in whole microseconds, and the loss of each model that it updates, where there are several.

        Rounding goes to `other`, so that the phases still add up to the length.
        """
        every = parts(raw)
        start, end = every[0].start, raw.end
        length = (end - start) // 1000
        data, forward, backward, optimizer = (
            max(0, sum(part.phases[phase] for part in every)) // 1000 for phase in range(4)
        )
        syncs = [
            Sync(s.kind, max(0, s.arrival - start) // 1000, max(0, s.end - start) // 1000, s.payload_bytes)
            for part in every
            for s in part.syncs
        ]
        pauses = _pauses(every, start, length)
        besides = sum(s.end_us - s.arrival_us for s in syncs) + sum(p.end_us - p.start_us for p in pauses)
        backwards = sum(len(part.losses) for part in every)
        samples, tokens = _fed(every, backwards)
        loss, losses = self._losses(raw, every, backwards)
        step = Step(
            raw.step,
            end // 1000,
            length,
            data,
            forward,
            backward,
            optimizer,
            max(0, length - besides - data - forward - backward - optimizer),
            syncs,
            loss,
            samples if raw.marked_samples is None else raw.marked_samples,
            tokens,
            raw.learning_rate,
            sum(part.gc for part in every) // 1000,
            _buckets(every, start),
            _named(every, length * 1000),
            pauses,
            _accumulated(every, backwards),
        )
        return step, losses

    def _losses(
        self, raw: RawStep, every: tuple[RawStep, ...], backwards: int
    ) -> tuple[float | None, dict[str, float]]:
        """The step's loss, and each model's where it updates several: the sum of what its backward calls were of.

        Gradient accumulation adds up what is usually the mean of a step's batches. Of fewer batches than usual, as
        the last ones of an epoch are, the sum may be a part of it: what is nearer to the step before is taken.
        """
        values = [_sum(map(resolve, part.losses)) for part in every]
        if raw.updates:
            losses: dict[str, float] = {}
            begin = 0
            for name, end in raw.updates:
                loss = _sum(values[begin:end])
                if loss is not None:
                    losses[name] = losses.get(name, 0.0) + loss
                begin = end
            return _sum(losses.values()), losses
        loss = _sum(values)
        if backwards == self._backwards:
            self._usual = backwards
        self._backwards = backwards
        if loss is not None and self._loss is not None and 0 < backwards < self._usual:
            scaled = loss * self._usual / backwards
            if abs(scaled - self._loss) < abs(loss - self._loss):
                loss = scaled
        self._loss = loss
        return loss, {}


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _fed(every: tuple[RawStep, ...], backwards: int) -> tuple[int, int]:
    """Samples and tokens of a step: what its model was given; of several models, the least that one was.

    What was fetched tells only where a model was given more than it was trained on at once (a critic sees real images
    and made ones, a siamese network two of each): loaders fetch ahead, and some ranks fetch for others.
    """
    models: dict[int, list[int]] = {}
    for part in every:
        for number, fed in part.fed.items():
            before = models.setdefault(number, [0, 0, 0])
            models[number] = [sum_so_far + more for sum_so_far, more in zip(before, fed, strict=True)]
    amounts = [(samples, tokens) for samples, tokens, _ in models.values() if samples]
    fetched = sum(part.samples for part in every), sum(part.tokens for part in every)
    more_than_once = bool(every[-1].updates) or any(calls > backwards for *_, calls in models.values())
    if fetched[0] and (more_than_once or not amounts):
        amounts.append(fetched)
    return min(amounts, default=(0, 0))


def _accumulated(every: tuple[RawStep, ...], backwards: int) -> int:
    """Batches whose gradients a step adds up: as many as some model was given, and as there were backward calls."""
    if every[-1].updates:
        return 1
    forwards: dict[int, int] = {}
    for part in every:
        for number, fed in part.fed.items():
            forwards[number] = forwards.get(number, 0) + fed[2]
    return max(1, min(backwards, *forwards.values()) if forwards else backwards)


def _pauses(every: tuple[RawStep, ...], start: int, length: int) -> list[Pause]:
    pauses = [
        Pause(p.kind, max(0, p.start - start) // 1000, min(max(0, p.end - start) // 1000, length))
        for part in every
        for p in part.pauses or ()
    ]
    on_device = sum(part.phases[PAUSED] for part in every) // 1000
    if every[-1].marks and pauses:  # by the device's clock the host's moments are estimates: the sum is not
        total = sum(p.end_us - p.start_us for p in pauses)
        scale = min(1.0, on_device / total) if total else 0.0
        pauses = [Pause(p.kind, p.start_us, p.start_us + int((p.end_us - p.start_us) * scale)) for p in pauses]
    return pauses


def _buckets(every: tuple[RawStep, ...], start: int) -> list[Bucket]:
    return [
        # DDP waited for it within the part; the thread that notes its end may come later.
        Bucket(layout, max(0, launch - start) // 1000, max(0, min(end, part.end) - start) // 1000)
        for part in every
        for layout, launch, end in part.buckets or ()
        if end
    ]


def _named(every: tuple[RawStep, ...], length: int) -> dict[str, int]:
    """Microseconds in what the script named, and in gaps that are worth a name."""
    named: dict[str, int] = {}
    for part in every:
        for name, spent in (part.named or {}).items():
            named[name] = named.get(name, 0) + spent
    for name, gap in ((BEFORE_FORWARD, 0), (BEFORE_BACKWARD, 1)):
        spent = sum(part.gaps[gap] for part in every)
        if spent >= GAP * length and spent > 0:
            named.setdefault(name, spent)
    return {name: spent // 1000 for name, spent in named.items()}
