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
    DIGESTS,
    HEAT_METRICS,
    HEAT_MOST,
    HEAT_STEPS,
    LOGGED,
    MAX_FRAMES,
    MAX_LOGGED,
    MAX_NAME,
    MAX_NAMES,
    MAX_RESTART,
    MAX_SCOPES,
    MAX_STEP,
    MAX_STEPS_PER_BATCH,
    MAX_TEXT,
    MAX_US,
    MAX_WORLD,
    OWN_PHASES,
    PAUSES,
    PHASES,
    SAMPLE_SECONDS,
    SCALED_UPDATES,
    SERIES_MOST,
    STAGES,
    SYNC_KINDS,
    WHOLE_RUN,
)
from ddpmon.messages.wishes import (
    Ask,
    CoresWish,
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
    require(0 <= message.rank < MAX_WORLD, "rank", message.rank)
    require(0 < message.pid <= 1 << 22, "pid", message.pid)
    if isinstance(message, Hello):
        check_hello(message)
    elif isinstance(message, Batch):
        check_batch(message)
    elif isinstance(message, Failure):
        require(len(message.error) + len(message.traceback) <= 2 * MAX_TEXT, "length of the error", "too long")
        require(0 <= message.time_us < MAX_US, "time_us", message.time_us)
        require(0 <= message.step < MAX_STEP, "step", message.step)
    elif isinstance(message, Stack):
        check_stack(message)
    elif isinstance(message, Meeting):
        check_meeting(message)
    else:
        require(0 <= message.seq < MAX_STEP, "seq", message.seq)
        require(0 <= message.dropped < MAX_STEP, "dropped", message.dropped)


def decode_to_rank(frame: bytes) -> ToRank:
    """Decode what the hub sent to a rank."""
    return decode(_to_rank, frame)


def decode_from_viewer(frame: bytes) -> FromViewer:
    """Decode and check what a viewer sent."""
    request = decode(_from_viewer, frame)
    if isinstance(request, Ask):
        require(len(request.ranks) <= MAX_WORLD, "number of ranks", len(request.ranks))
        require(all(0 <= rank < MAX_WORLD for rank in request.ranks), "rank", request.ranks[:4])
    else:
        require(request.base is None or 0 <= request.base < MAX_STEP, "base", request.base)
        _check_wish(request.wish)
    return request


def _check_wish(wish: Wish) -> None:
    for heat in (wish.heat, wish.heat_phases):
        if heat is not None:
            _check_heat(heat)
    if wish.timeline is not None:
        _check_timeline(wish.timeline)
    if wish.cost is not None:
        require(wish.cost.over in COST_WINDOWS, "steps that the cost is of", wish.cost.over[:40])
    if wish.series is not None:
        _check_series(wish.series)
    if wish.samples is not None:
        _check_samples(wish.samples)
    if wish.cores is not None:
        _check_columns(wish.cores)
    for course in (wish.sync, wish.strips, wish.inspect):
        if course is not None:
            require(course.steps in HEAT_STEPS, "steps in a column", course.steps)
            require(0 < course.columns <= HEAT_MOST, "columns", course.columns)
    if wish.strips is not None:
        _check_few(wish.strips.ranks)
    for of_rank in (wish.inspect, wish.printed):
        if of_rank is not None:
            require(0 <= of_rank.rank < MAX_WORLD, "rank", of_rank.rank)


def _check_timeline(wish: TimelineWish) -> None:
    require(0 < wish.steps <= HEAT_MOST and 0 < wish.rows <= HEAT_MOST, "size of the timeline", wish.rows)
    require(0 <= wish.first < MAX_WORLD, "first rank", wish.first)
    require(0 <= wish.step <= MAX_STEP, "step", wish.step)
    _check_spans(wish.ranks)


def _check_heat(heat: HeatWish) -> None:
    require(heat.metric in HEAT_METRICS, "metric", heat.metric[:40])
    require(heat.steps in (*HEAT_STEPS, WHOLE_RUN), "steps in a column", heat.steps)
    require(0 < heat.rows <= HEAT_MOST and 0 < heat.columns <= HEAT_MOST, "size of the heat map", heat.rows)
    _check_spans(heat.ranks)


def _check_series(wish: SeriesWish) -> None:
    require(len(wish.name) <= len(LOGGED) + MAX_LOGGED, "quantity", wish.name[:40])
    require(wish.span_s is None or 0 < wish.span_s < MAX_US, "span of a series", wish.span_s)
    require(wish.end_s is None or 0 <= wish.end_s < MAX_US, "end of a series", wish.end_s)
    require(0 < wish.points <= SERIES_MOST, "points of a series", wish.points)


def _check_samples(wish: SamplesWish) -> None:
    require(set(wish.names) <= set(DEVICE_COURSES), "quantities", wish.names[:8])
    require(len(wish.names) <= len(DEVICE_COURSES), "quantities", len(wish.names))
    _check_columns(wish)
    _check_few(wish.ranks)


def _check_columns(wish: SamplesWish | CoresWish) -> None:
    require(wish.seconds in SAMPLE_SECONDS, "seconds in a column", wish.seconds)
    require(0 < wish.columns <= HEAT_MOST, "columns", wish.columns)


def _check_few(spans: RankSpans) -> None:
    """No more ranks than a screen has lines."""
    _check_spans(spans)
    require(sum(last - first + 1 for first, last in spans) <= HEAT_MOST, "ranks", spans[:4])


def _check_spans(spans: RankSpans | None) -> None:
    """That they rise, so that there are never more of them than ranks."""
    end = -1
    for first, last in spans or ():
        require(end < first <= last < MAX_WORLD, "ranks", (first, last))
        end = last


def require(ok: bool, name: str, value: object) -> None:
    """WireError with the name and the value of what cannot be."""
    if not ok:
        raise WireError(f"{name} out of range: {value}")


def check_hello(hello: Hello) -> None:
    """Ranges of a Hello; WireError names the field."""
    require(1 <= hello.world_size <= MAX_WORLD, "world_size", hello.world_size)
    require(hello.rank < hello.world_size, "rank", hello.rank)
    require(0 <= hello.local_rank < MAX_WORLD, "local_rank", hello.local_rank)
    require(0 <= hello.node_rank < MAX_WORLD, "node_rank", hello.node_rank)
    require(0 <= hello.stage < len(STAGES), "stage", hello.stage)
    texts = (hello.run_id, hello.host, hello.device, hello.device_name, hello.backend, hello.torch_version)
    require(sum(map(len, texts)) + sum(map(len, hello.notes)) <= MAX_TEXT, "length of texts", "too long")
    require(sum(len(name) + len(why) for name, why in hello.missing.items()) <= MAX_TEXT, "missing", "too long")
    require(len(hello.parallelism) <= MAX_NAME, "parallelism", hello.parallelism[:MAX_NAME])
    require(len(hello.unmeasured) <= len(PHASES), "unmeasured", len(hello.unmeasured))
    require(set(hello.unmeasured) <= set(PHASES), "unmeasured", [name[:MAX_NAME] for name in hello.unmeasured])
    require(0 <= hello.cores < MAX_WORLD and 0 <= hello.compute_threads < MAX_WORLD, "cores", hello.cores)
    require(0 <= hello.protocol < MAX_WORLD, "protocol", hello.protocol)
    require(0 <= hello.through < MAX_WORLD, "through", hello.through)
    require(0 <= hello.restart < MAX_RESTART, "restart", hello.restart)
    require(len(hello.world) <= MAX_NAME, "world", hello.world[:MAX_NAME])
    require(0 <= hello.began_us < MAX_US and -1 <= hello.counter_fd < 1 << 31, "began_us", hello.began_us)
    require(sum(map(len, (*hello.configuration, *hello.configuration.values()))) <= MAX_TEXT, "configuration", "long")
    sizes = (hello.parameters, hello.gradient_bytes, hello.buffer_bytes)
    require(min(sizes) >= 0 and max(sizes) < MAX_US, "size of the model", sizes)


def check_meeting(meeting: Meeting) -> None:
    """Ranges of a Meeting; WireError names the field."""
    require(1 < meeting.nodes <= MAX_WORLD and 0 <= meeting.node < meeting.nodes, "node", meeting.node)
    require(len(meeting.towards) <= MAX_NAME * 4, "towards", meeting.towards[:40])
    require(all(0 < node < meeting.nodes for node in meeting.keys), "node of a key", list(meeting.keys)[:4])
    require(all(is_key(key) for key in meeting.keys.values()), "key of a hub", "no Z85 of 32 bytes")
    if meeting.root is not None:
        check_card(meeting.root)


def check_card(card: Card) -> None:
    """Ranges of a Card; WireError names the field."""
    require(is_key(card.key), "key of a hub", "no Z85 of 32 bytes")
    require(0 < len(card.run_id) <= MAX_NAME, "run_id", card.run_id[:MAX_NAME])
    require(len(card.addresses) <= MAX_ADDRESSES, "addresses", len(card.addresses))
    require(all(_ADDRESS.fullmatch(address) for address in card.addresses), "address", str(card.addresses)[:80])
    require(len(card.admits) <= MAX_WORLD, "admits", len(card.admits))


def is_key(text: str) -> bool:
    """Whether it can be a CURVE key: 32 bytes in Z85."""
    return _KEY.fullmatch(text) is not None


def check_batch(batch: Batch) -> None:
    """Ranges of a Batch without its records; WireError names the field."""
    require(0 < batch.seq < MAX_STEP, "seq", batch.seq)
    require(0 <= batch.merged < batch.seq, "merged", batch.merged)
    require(0 <= batch.step < MAX_STEP, "step", batch.step)
    require(0 <= batch.now_us < MAX_US, "now_us", batch.now_us)
    require(0 <= batch.dropped < MAX_STEP, "dropped", batch.dropped)
    require(0 <= batch.stage < len(STAGES), "stage", batch.stage)
    require(0 <= batch.phase < len(OWN_PHASES), "phase", batch.phase)
    require(batch.pausing is None or 0 <= batch.pausing < len(PAUSES), "pausing", batch.pausing)
    require(0 <= batch.beats < MAX_STEP, "beats", batch.beats)
    require(batch.total_steps is None or 0 < batch.total_steps < MAX_STEP, "total_steps", batch.total_steps)
    require(batch.epoch is None or 0 < batch.epoch < MAX_STEP, "epoch", batch.epoch)
    require(batch.epochs is None or 0 < batch.epochs < MAX_STEP, "epochs", batch.epochs)
    require(0 <= batch.unsynchronised < MAX_STEP, "unsynchronised", batch.unsynchronised)
    require(0 <= batch.skipped <= SCALED_UPDATES and 0 <= batch.held_out < MAX_STEP, "skipped", batch.skipped)


def check_records(batch: Batch) -> None:
    """Ranges of every record in a batch, and how many there are; WireError names the field."""
    require(len(batch.steps) <= MAX_STEPS_PER_BATCH, "steps in a batch", len(batch.steps))
    require(len(batch.samples) <= MAX_STEPS_PER_BATCH, "samples in a batch", len(batch.samples))
    require(len(batch.digests) <= MAX_STEPS_PER_BATCH, "digests in a batch", len(batch.digests))
    require(len(batch.layouts) <= MAX_STEPS_PER_BATCH, "layouts in a batch", len(batch.layouts))
    require(len(batch.closing_pauses) <= MAX_STEPS_PER_BATCH, "pauses in a batch", len(batch.closing_pauses))
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
    require(0 < step.step < MAX_STEP, "step", step.step)
    require(0 <= step.end_us < MAX_US, "end_us", step.end_us)
    require(0 <= step.length_us <= step.end_us, "length_us", step.length_us)
    phases = (step.data_us, step.forward_us, step.backward_us, step.optimizer_us, step.other_us)
    require(min(phases) >= 0 and sum(phases) <= step.length_us + len(PHASES), "phases", phases)
    require(0 <= step.samples < MAX_STEP, "samples", step.samples)
    require(0 <= step.tokens < MAX_STEP, "tokens", step.tokens)
    require(0 <= step.gc_us < MAX_US, "gc_us", step.gc_us)
    for sync in step.syncs:
        require(0 <= sync.kind < len(SYNC_KINDS), "kind", sync.kind)
        require(0 <= sync.arrival_us <= sync.end_us <= step.length_us + 1, "times of a synchronisation", sync)
        require(0 <= sync.payload_bytes < MAX_US, "payload_bytes", sync.payload_bytes)
    for pause in step.pauses:
        check_pause(pause, step.length_us + 2)
    require(0 <= step.backwards < MAX_STEP, "backwards", step.backwards)
    for bucket in step.buckets:
        require(0 < bucket.layout < MAX_STEP, "layout of a bucket", bucket.layout)
        require(0 <= bucket.launch_us <= bucket.end_us < MAX_US, "times of a bucket", bucket)
    if step.named_us:
        require(len(step.named_us) <= MAX_NAMES, "names in a step", len(step.named_us))
        require(all(0 < len(name) <= MAX_NAME for name in step.named_us), "length of a name", "empty or too long")
        require(all(0 <= us < MAX_US for us in step.named_us.values()), "named_us", step.named_us)


def check_sample(sample: Sample) -> None:
    """Ranges of a Sample; WireError names the field."""
    require(0 <= sample.time_us < MAX_US, "time_us", sample.time_us)
    values = _measured(sample)
    for value, least in zip(values, _LEAST, strict=True):  # no generator: thousands of ranks send one a second
        if value is not None and not least <= value < MAX_US:  # nor is a NaN within
            require(False, "values of a sample", values)
    require(sample.loader_workers is None or 0 <= sample.loader_workers < MAX_US, "workers", sample.loader_workers)
    require(len(sample.gpu_throttled or "") <= 256, "gpu_throttled", "too long")


def check_scalar(scalar: Scalar) -> None:
    """Ranges of a Scalar; WireError names the field."""
    require(0 <= scalar.step < MAX_STEP and len(scalar.name) <= MAX_LOGGED, "scalar", scalar.name[:40])


def check_digest(digest: Digest) -> None:
    """Ranges of a Digest; WireError names the field."""
    require(0 <= digest.step < MAX_STEP and 0 <= digest.model < MAX_WORLD, "digest", digest.step)
    require(0 <= digest.value < MAX_US and 0 <= digest.sequence < MAX_US, "digest", digest.value)
    require(0 <= digest.updates < MAX_STEP, "updates of a digest", digest.updates)
    require(len(digest.group) <= 256, "group of a digest", digest.group[:40])
    require(0 <= digest.of < len(DIGESTS), "of", digest.of)


def check_layout(layout: Layout) -> None:
    """Ranges of a Layout; WireError names the field."""
    require(0 < layout.number < MAX_STEP and 0 <= layout.model < MAX_WORLD, "layout", layout.number)
    require(0 <= layout.index < MAX_US and 0 <= layout.payload_bytes < MAX_US, "layout", layout.index)
    require(sum(map(len, layout.parameters)) <= MAX_TEXT, "length of names", "too long")


def check_pause(pause: Pause, most_us: int = MAX_US) -> None:
    """Ranges of a Pause that ends before `most_us`; WireError names the field."""
    require(0 <= pause.kind < len(PAUSES), "kind of a pause", pause.kind)
    require(0 <= pause.start_us <= pause.end_us < most_us, "times of a pause", pause)


def check_stack(stack: Stack) -> None:
    """Ranges of a Stack; WireError names the field."""
    require(0 <= stack.time_us < MAX_US and 0 <= stack.since_us < MAX_US, "time_us", stack.time_us)
    require(0 <= stack.step < MAX_STEP, "step", stack.step)
    require(0 <= stack.phase < len(OWN_PHASES), "phase", stack.phase)
    require(sum(map(len, stack.frames)) <= MAX_TEXT and len(stack.frames) <= MAX_FRAMES, "frames", len(stack.frames))
    require(stack.own is None or 0 <= stack.own < len(stack.frames), "own", stack.own)
    require(sum(map(len, stack.issued)) <= MAX_TEXT, "length of groups", "too long")
    require(all(0 <= number < MAX_US for number in stack.issued.values()), "issued", "out of range")
    require(stack.timeout_s is None or 0 < stack.timeout_s < MAX_US, "timeout_s", stack.timeout_s)
    if stack.collective is not None:
        words = (getattr(stack.collective, name) for name in ("name", "group", "operation", "inputs", "outputs"))
        require(sum(map(len, words)) <= MAX_TEXT, "collective", "too long")
        require(0 <= (stack.collective.sequence or 0) < MAX_US, "sequence", stack.collective.sequence)
    require(0 <= stack.worker < MAX_US, "worker", stack.worker)
    require(len(stack.device) in {0, 2} and all(0 <= n < MAX_STEP for n in stack.device), "device", stack.device)
    require(len(stack.scopes) <= MAX_SCOPES, "scopes", len(stack.scopes))
    for scope in stack.scopes:
        require(0 <= scope.frame < len(stack.frames), "frame of a scope", scope.frame)
        require(0 < scope.line < MAX_US and 0 < scope.first <= scope.last < MAX_US, "lines of a scope", scope)
