"""Encoding, decoding and the check of every value that comes from outside."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TypeVar

import msgspec

from ddpmon.messages.quantities import SAMPLED
from ddpmon.messages.ranks import (
    Batch,
    Card,
    Digest,
    Failure,
    FromRank,
    Hello,
    Layout,
    Meeting,
    Pause,
    Sample,
    Scalar,
    Stack,
    Step,
    ToRank,
)
from ddpmon.messages.vocabulary import (
    COST_WINDOWS,
    DEVICE_COURSES,
    HEAT_METRICS,
    HEAT_MOST,
    HEAT_STEPS,
    LOGGED,
    MAX_FRAMES,
    MAX_LOGGED,
    MAX_NAME,
    MAX_NAMES,
    MAX_RESTART,
    MAX_STEP,
    MAX_STEPS_PER_BATCH,
    MAX_TEXT,
    MAX_US,
    MAX_WORLD,
    OWN_PHASES,
    PAUSES,
    PHASES,
    SAMPLE_SECONDS,
    SERIES_MOST,
    STAGES,
    SYNC_KINDS,
)
from ddpmon.messages.wishes import (
    Ask,
    FromViewer,
    HeatWish,
    RankSpans,
    SamplesWish,
    SeriesWish,
    TimelineWish,
    Wish,
)

_encoder = msgspec.msgpack.Encoder()
_from_rank: msgspec.msgpack.Decoder[FromRank] = msgspec.msgpack.Decoder(FromRank)
_to_rank: msgspec.msgpack.Decoder[ToRank] = msgspec.msgpack.Decoder(ToRank)
_from_viewer: msgspec.msgpack.Decoder[FromViewer] = msgspec.msgpack.Decoder(FromViewer)

encode = _encoder.encode

MAX_ADDRESSES = 16
_KEY = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_ADDRESS = re.compile(r"tcp://[0-9A-Za-z.:%_\-\[\]]{1,100}:[0-9]{1,5}")

_measured = attrgetter(*(row.sample_field for row in SAMPLED))
_LEAST = tuple(row.least for row in SAMPLED)


class WireError(ValueError):
    """A frame that is no message of ours, or holds values that cannot be."""


_T = TypeVar("_T")


def decode(decoder: msgspec.msgpack.Decoder[_T], frame: bytes) -> _T:
    """What a frame says; WireError if it is none of this decoder's."""
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from None


def decode_from_rank(frame: bytes) -> FromRank:
    """Decode and check what a rank sent; WireError names what is wrong with it."""
    message = decode(_from_rank, frame)
    check_message(message)
    return message


def check_message(message: FromRank) -> None:
    """Ranges of everything in a message; WireError names the field."""
    check_head(message)
    if isinstance(message, Batch):
        check_records(message)


def check_head(message: FromRank) -> None:
    """The same, without the records of a batch."""
    _check(0 <= message.rank < MAX_WORLD, "rank", message.rank)
    _check(0 < message.pid <= 1 << 22, "pid", message.pid)
    if isinstance(message, Hello):
        check_hello(message)
    elif isinstance(message, Batch):
        check_batch(message)
    elif isinstance(message, Failure):
        _check(len(message.error) + len(message.traceback) <= 2 * MAX_TEXT, "length of the error", "too long")
        _check(0 <= message.time_us < MAX_US, "time_us", message.time_us)
        _check(0 <= message.step < MAX_STEP, "step", message.step)
    elif isinstance(message, Stack):
        check_stack(message)
    elif isinstance(message, Meeting):
        check_meeting(message)
    else:
        _check(0 <= message.seq < MAX_STEP, "seq", message.seq)
        _check(0 <= message.dropped < MAX_STEP, "dropped", message.dropped)


def decode_to_rank(frame: bytes) -> ToRank:
    """Decode what the hub sent to a rank."""
    return decode(_to_rank, frame)


def decode_from_viewer(frame: bytes) -> FromViewer:
    """Decode and check what a viewer sent."""
    request = decode(_from_viewer, frame)
    if isinstance(request, Ask):
        _check(len(request.ranks) <= MAX_WORLD, "number of ranks", len(request.ranks))
        _check(all(0 <= rank < MAX_WORLD for rank in request.ranks), "rank", request.ranks[:4])
    else:
        _check(request.base is None or 0 <= request.base < MAX_STEP, "base", request.base)
        _check_wish(request.wish)
    return request


def _check_wish(wish: Wish) -> None:
    for heat in (wish.heat, wish.heat_phases):
        if heat is not None:
            _check_heat(heat)
    if wish.timeline is not None:
        _check_timeline(wish.timeline)
    if wish.cost is not None:
        _check(wish.cost.over in COST_WINDOWS, "steps that the cost is of", wish.cost.over[:40])
    if wish.series is not None:
        _check_series(wish.series)
    if wish.samples is not None:
        _check_samples(wish.samples)
    for course in (wish.sync, wish.strips, wish.inspect):
        if course is not None:
            _check(course.steps in HEAT_STEPS, "steps in a column", course.steps)
            _check(0 < course.columns <= HEAT_MOST, "columns", course.columns)
    if wish.strips is not None:
        _check_few(wish.strips.ranks)
    for of_rank in (wish.inspect, wish.printed):
        if of_rank is not None:
            _check(0 <= of_rank.rank < MAX_WORLD, "rank", of_rank.rank)


def _check_timeline(wish: TimelineWish) -> None:
    _check(0 < wish.steps <= HEAT_MOST and 0 < wish.rows <= HEAT_MOST, "size of the timeline", wish.rows)
    _check(0 <= wish.first < MAX_WORLD, "first rank", wish.first)
    _check(0 <= wish.step <= MAX_STEP, "step", wish.step)
    _check_spans(wish.ranks)


def _check_heat(heat: HeatWish) -> None:
    _check(heat.metric in HEAT_METRICS, "metric", heat.metric[:40])
    _check(heat.steps in HEAT_STEPS, "steps in a column", heat.steps)
    _check(0 < heat.rows <= HEAT_MOST and 0 < heat.columns <= HEAT_MOST, "size of the heat map", heat.rows)
    _check_spans(heat.ranks)


def _check_series(wish: SeriesWish) -> None:
    _check(len(wish.name) <= len(LOGGED) + MAX_LOGGED, "quantity", wish.name[:40])
    _check(wish.span_s is None or 0 < wish.span_s < MAX_US, "span of a series", wish.span_s)
    _check(wish.end_s is None or 0 <= wish.end_s < MAX_US, "end of a series", wish.end_s)
    _check(0 < wish.points <= SERIES_MOST, "points of a series", wish.points)


def _check_samples(wish: SamplesWish) -> None:
    _check(set(wish.names) <= set(DEVICE_COURSES), "quantities", wish.names[:8])
    _check(len(wish.names) <= len(DEVICE_COURSES), "quantities", len(wish.names))
    _check(wish.seconds in SAMPLE_SECONDS, "seconds in a column", wish.seconds)
    _check(0 < wish.columns <= HEAT_MOST, "columns", wish.columns)
    _check_few(wish.ranks)


def _check_few(spans: RankSpans) -> None:
    """No more ranks than a screen has lines."""
    _check_spans(spans)
    _check(sum(last - first + 1 for first, last in spans) <= HEAT_MOST, "ranks", spans[:4])


def _check_spans(spans: RankSpans | None) -> None:
    """That they rise, so that there are never more of them than ranks."""
    end = -1
    for first, last in spans or ():
        _check(end < first <= last < MAX_WORLD, "ranks", (first, last))
        end = last


def _check(ok: bool, name: str, value: object) -> None:
    if not ok:
        raise WireError(f"{name} out of range: {value}")


def check_hello(hello: Hello) -> None:
    """Ranges of a Hello; WireError names the field."""
    _check(1 <= hello.world_size <= MAX_WORLD, "world_size", hello.world_size)
    _check(hello.rank < hello.world_size, "rank", hello.rank)
    _check(0 <= hello.local_rank < MAX_WORLD, "local_rank", hello.local_rank)
    _check(0 <= hello.node_rank < MAX_WORLD, "node_rank", hello.node_rank)
    _check(0 <= hello.stage < len(STAGES), "stage", hello.stage)
    texts = (hello.run_id, hello.host, hello.device, hello.device_name, hello.backend, hello.torch_version)
    _check(sum(map(len, texts)) + sum(map(len, hello.notes)) <= MAX_TEXT, "length of texts", "too long")
    _check(sum(len(name) + len(why) for name, why in hello.missing.items()) <= MAX_TEXT, "missing", "too long")
    _check(len(hello.parallelism) <= MAX_NAME, "parallelism", hello.parallelism[:MAX_NAME])
    _check(len(hello.unmeasured) <= len(PHASES), "unmeasured", len(hello.unmeasured))
    _check(set(hello.unmeasured) <= set(PHASES), "unmeasured", [name[:MAX_NAME] for name in hello.unmeasured])
    _check(0 <= hello.cores < MAX_WORLD and 0 <= hello.compute_threads < MAX_WORLD, "cores", hello.cores)
    _check(0 <= hello.protocol < MAX_WORLD, "protocol", hello.protocol)
    _check(0 <= hello.through < MAX_WORLD, "through", hello.through)
    _check(0 <= hello.restart < MAX_RESTART, "restart", hello.restart)
    _check(len(hello.world) <= MAX_NAME, "world", hello.world[:MAX_NAME])
    sizes = (hello.parameters, hello.gradient_bytes, hello.buffer_bytes)
    _check(min(sizes) >= 0 and max(sizes) < MAX_US, "size of the model", sizes)


def check_meeting(meeting: Meeting) -> None:
    """Ranges of a Meeting; WireError names the field."""
    _check(1 < meeting.nodes <= MAX_WORLD and 0 <= meeting.node < meeting.nodes, "node", meeting.node)
    _check(len(meeting.towards) <= MAX_NAME * 4, "towards", meeting.towards[:40])
    _check(all(0 < node < meeting.nodes for node in meeting.keys), "node of a key", list(meeting.keys)[:4])
    _check(all(is_key(key) for key in meeting.keys.values()), "key of a hub", "no Z85 of 32 bytes")
    if meeting.root is not None:
        check_card(meeting.root)


def check_card(card: Card) -> None:
    """Ranges of a Card; WireError names the field."""
    _check(is_key(card.key), "key of a hub", "no Z85 of 32 bytes")
    _check(0 < len(card.run_id) <= MAX_NAME, "run_id", card.run_id[:MAX_NAME])
    _check(len(card.addresses) <= MAX_ADDRESSES, "addresses", len(card.addresses))
    _check(all(_ADDRESS.fullmatch(address) for address in card.addresses), "address", str(card.addresses)[:80])
    _check(len(card.admits) <= MAX_WORLD, "admits", len(card.admits))


def is_key(text: str) -> bool:
    """Whether it can be a CURVE key: 32 bytes in Z85."""
    return _KEY.fullmatch(text) is not None


def check_batch(batch: Batch) -> None:
    """Ranges of a Batch without its records; WireError names the field."""
    _check(0 < batch.seq < MAX_STEP, "seq", batch.seq)
    _check(0 <= batch.merged < batch.seq, "merged", batch.merged)
    _check(0 <= batch.step < MAX_STEP, "step", batch.step)
    _check(0 <= batch.now_us < MAX_US, "now_us", batch.now_us)
    _check(0 <= batch.dropped < MAX_STEP, "dropped", batch.dropped)
    _check(0 <= batch.stage < len(STAGES), "stage", batch.stage)
    _check(0 <= batch.phase < len(OWN_PHASES), "phase", batch.phase)
    _check(batch.pausing is None or 0 <= batch.pausing < len(PAUSES), "pausing", batch.pausing)
    _check(0 <= batch.beats < MAX_STEP, "beats", batch.beats)
    _check(batch.total_steps is None or 0 < batch.total_steps < MAX_STEP, "total_steps", batch.total_steps)
    _check(batch.epoch is None or 0 < batch.epoch < MAX_STEP, "epoch", batch.epoch)
    _check(batch.epochs is None or 0 < batch.epochs < MAX_STEP, "epochs", batch.epochs)
    _check(0 <= batch.unsynchronised < MAX_STEP, "unsynchronised", batch.unsynchronised)


def check_records(batch: Batch) -> None:
    """Ranges of every record in a batch, and how many there are; WireError names the field."""
    _check(len(batch.steps) <= MAX_STEPS_PER_BATCH, "steps in a batch", len(batch.steps))
    _check(len(batch.samples) <= MAX_STEPS_PER_BATCH, "samples in a batch", len(batch.samples))
    _check(len(batch.digests) <= MAX_STEPS_PER_BATCH, "digests in a batch", len(batch.digests))
    _check(len(batch.layouts) <= MAX_STEPS_PER_BATCH, "layouts in a batch", len(batch.layouts))
    _check(len(batch.closing_pauses) <= MAX_STEPS_PER_BATCH, "pauses in a batch", len(batch.closing_pauses))
    for step in batch.steps:
        check_step(step)
    for sample in batch.samples:
        check_sample(sample)
    for scalar in batch.scalars:
        check_scalar(scalar)
    for digest in batch.digests:
        check_digest(digest)
    for layout in batch.layouts:
        check_layout(layout)
    for pause in batch.closing_pauses:
        check_pause(pause)


def check_step(step: Step) -> None:
    """Ranges of a Step; WireError names the field."""
    _check(0 < step.step < MAX_STEP, "step", step.step)
    _check(0 <= step.end_us < MAX_US, "end_us", step.end_us)
    _check(0 <= step.length_us <= step.end_us, "length_us", step.length_us)
    phases = (step.data_us, step.forward_us, step.backward_us, step.optimizer_us, step.other_us)
    _check(min(phases) >= 0 and sum(phases) <= step.length_us + len(PHASES), "phases", phases)
    _check(0 <= step.samples < MAX_STEP, "samples", step.samples)
    _check(0 <= step.tokens < MAX_STEP, "tokens", step.tokens)
    _check(0 <= step.gc_us < MAX_US, "gc_us", step.gc_us)
    for sync in step.syncs:
        _check(0 <= sync.kind < len(SYNC_KINDS), "kind", sync.kind)
        _check(0 <= sync.arrival_us <= sync.end_us <= step.length_us + 1, "times of a synchronisation", sync)
        _check(0 <= sync.payload_bytes < MAX_US, "payload_bytes", sync.payload_bytes)
    for pause in step.pauses:
        check_pause(pause, step.length_us + 2)
    _check(0 <= step.backwards < MAX_STEP, "backwards", step.backwards)
    for bucket in step.buckets:
        _check(0 < bucket.layout < MAX_STEP, "layout of a bucket", bucket.layout)
        _check(0 <= bucket.launch_us <= bucket.end_us < MAX_US, "times of a bucket", bucket)
    if step.named_us:
        _check(len(step.named_us) <= MAX_NAMES, "names in a step", len(step.named_us))
        _check(all(0 < len(name) <= MAX_NAME for name in step.named_us), "length of a name", "empty or too long")
        _check(all(0 <= us < MAX_US for us in step.named_us.values()), "named_us", step.named_us)


def check_sample(sample: Sample) -> None:
    """Ranges of a Sample; WireError names the field."""
    _check(0 <= sample.time_us < MAX_US, "time_us", sample.time_us)
    values = _measured(sample)
    within = all(v is None or least <= v < MAX_US for v, least in zip(values, _LEAST, strict=True))  # a NaN is not
    _check(within, "values of a sample", values)
    _check(sample.loader_workers is None or 0 <= sample.loader_workers < MAX_US, "workers", sample.loader_workers)
    _check(len(sample.gpu_throttled or "") <= 256, "gpu_throttled", "too long")


def check_scalar(scalar: Scalar) -> None:
    """Ranges of a Scalar; WireError names the field."""
    _check(0 <= scalar.step < MAX_STEP and len(scalar.name) <= MAX_LOGGED, "scalar", scalar.name[:40])


def check_digest(digest: Digest) -> None:
    """Ranges of a Digest; WireError names the field."""
    _check(0 <= digest.step < MAX_STEP and 0 <= digest.model < MAX_WORLD, "digest", digest.step)
    _check(0 <= digest.value < MAX_US and 0 <= digest.sequence < MAX_US, "digest", digest.value)
    _check(0 <= digest.updates < MAX_STEP, "updates of a digest", digest.updates)
    _check(len(digest.group) <= 256, "group of a digest", digest.group[:40])


def check_layout(layout: Layout) -> None:
    """Ranges of a Layout; WireError names the field."""
    _check(0 < layout.number < MAX_STEP and 0 <= layout.model < MAX_WORLD, "layout", layout.number)
    _check(0 <= layout.index < MAX_US and 0 <= layout.payload_bytes < MAX_US, "layout", layout.index)
    _check(sum(map(len, layout.parameters)) <= MAX_TEXT, "length of names", "too long")


def check_pause(pause: Pause, most_us: int = MAX_US) -> None:
    """Ranges of a Pause that ends before `most_us`; WireError names the field."""
    _check(0 <= pause.kind < len(PAUSES), "kind of a pause", pause.kind)
    _check(0 <= pause.start_us <= pause.end_us < most_us, "times of a pause", pause)


def check_stack(stack: Stack) -> None:
    """Ranges of a Stack; WireError names the field."""
    _check(0 <= stack.time_us < MAX_US and 0 <= stack.since_us < MAX_US, "time_us", stack.time_us)
    _check(0 <= stack.step < MAX_STEP, "step", stack.step)
    _check(0 <= stack.phase < len(OWN_PHASES), "phase", stack.phase)
    _check(sum(map(len, stack.frames)) <= MAX_TEXT and len(stack.frames) <= MAX_FRAMES, "frames", len(stack.frames))
    _check(stack.own is None or 0 <= stack.own < len(stack.frames), "own", stack.own)
    _check(sum(map(len, stack.issued)) <= MAX_TEXT, "length of groups", "too long")
    _check(all(0 <= number < MAX_US for number in stack.issued.values()), "issued", "out of range")
    _check(stack.timeout_s is None or 0 < stack.timeout_s < MAX_US, "timeout_s", stack.timeout_s)
    if stack.collective is not None:
        _check(len(stack.collective.name) + len(stack.collective.group) <= MAX_TEXT, "collective", "too long")
        _check(0 <= (stack.collective.sequence or 0) < MAX_US, "sequence", stack.collective.sequence)
