"""Encoder and decoder of messages, with the checks of every value that comes from outside."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from ddpmon.messages.profiles import Profile
from ddpmon.messages.ranks import (
    Batch,
    BatchHead,
    Card,
    Failure,
    FromRank,
    Hello,
    Layout,
    Meeting,
    Stack,
    ToRank,
)
from ddpmon.messages.stack_samples import StackSamples
from ddpmon.messages.steps import Pause, Step
from ddpmon.messages.view_requests import (
    Ask,
    FromViewer,
    RankSpans,
    SeriesRequest,
    ViewRequest,
)
from ddpmon.messages.vocabulary import (
    COST_WINDOWS,
    DEVICE_COURSES,
    HEAT_METRICS,
    HEAT_MOST,
    HEAT_STEPS,
    MAX_FRAMES,
    MAX_NAME,
    MAX_TEXT,
    MAX_US,
    MAX_WORLD,
    OWN_PHASES,
    PHASES,
    SAMPLE_SECONDS,
    WHOLE_RUN,
)

_encoder = msgspec.msgpack.Encoder()
_from_rank: msgspec.msgpack.Decoder[FromRank] = msgspec.msgpack.Decoder(FromRank)
_batch_head = msgspec.msgpack.Decoder(BatchHead)
_to_rank: msgspec.msgpack.Decoder[ToRank] = msgspec.msgpack.Decoder(ToRank)
_from_viewer: msgspec.msgpack.Decoder[FromViewer] = msgspec.msgpack.Decoder(FromViewer)

encode = _encoder.encode

MAX_ADDRESSES = 16
_SERIES_OF_CELLS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "heat": (HEAT_METRICS, (*HEAT_STEPS, WHOLE_RUN)),
    "heat_phases": (OWN_PHASES, (*HEAT_STEPS, WHOLE_RUN)),
    "inspect": ((), HEAT_STEPS),
    "strips": ((), HEAT_STEPS),
    "sync": ((), HEAT_STEPS),
    "samples": (DEVICE_COURSES, SAMPLE_SECONDS),
    "cores": ((), SAMPLE_SECONDS),
}
"""Names of quantities, and numbers of steps or seconds per column, that each part of a ViewRequest may request."""
_KEY = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_ADDRESS = re.compile(r"tcp://[0-9A-Za-z.:%_\-\[\]]{1,100}:[0-9]{1,5}")


class WireError(ValueError):
    """A frame is no message of ddpmon, or holds impossible values."""


_T = TypeVar("_T")


def decode(decoder: msgspec.msgpack.Decoder[_T], frame: bytes) -> _T:
    """Decode a frame, and raise WireError if it is no message of this decoder's type."""
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from None


def decode_from_rank(frame: bytes) -> FromRank:
    """Decode and check a message of a rank, or raise a WireError that names the wrong value."""
    message = decode(_from_rank, frame)
    check_message(message)
    return message


def decode_lenient(frame: bytes) -> tuple[FromRank, str]:
    """Decode and check a message of a rank, but accept a batch with an invalid record.

    Returns:
        The message, and an error text that is "" if the message is valid. A batch with an invalid record is returned
        without all its records, so that its rank can go on from the batch's number.

    Raises:
        WireError: any other message is invalid.

    """
    try:
        return decode_from_rank(frame), ""
    except WireError as error:
        try:
            head = decode(_batch_head, frame)
        except WireError:
            raise error from None
        return Batch(*msgspec.structs.astuple(head)), str(error)


def check_message(message: FromRank) -> None:
    """Check conditions that field types cannot express: that fields fit together, and the total length of texts."""
    if isinstance(message, Hello):
        check_hello(message)
    elif isinstance(message, Batch):
        check_batch(message)
    elif isinstance(message, Failure):
        require(len(message.error) + len(message.traceback) <= 2 * MAX_TEXT, "length of the error", "too long")
    elif isinstance(message, Stack):
        check_stack(message)
    elif isinstance(message, StackSamples):
        check_samples(message)
    elif isinstance(message, Profile):
        check_profile(message)
    elif isinstance(message, Meeting):
        check_meeting(message)


def decode_to_rank(frame: bytes) -> ToRank:
    """Decode a message of the hub to a rank."""
    return decode(_to_rank, frame)


def decode_from_viewer(frame: bytes) -> FromViewer:
    """Decode and check a message of a viewer."""
    request = decode(_from_viewer, frame)
    if not isinstance(request, Ask):
        check_view_request(request.view_request)
    return request


def check_view_request(view_request: ViewRequest) -> None:
    """Check names, columns and spans of ranks in a view request, or raise a WireError that names the wrong part."""
    require(view_request.cost in (None, *COST_WINDOWS), "steps that the cost is of", str(view_request.cost)[:40])
    if view_request.timeline is not None:
        _check_spans(view_request.timeline.ranks)
    if view_request.series is not None:
        require(len(view_request.series.quantities) == 1, "quantities", view_request.series.quantities[:2])
    for part, (names, per_column) in _SERIES_OF_CELLS.items():
        request: SeriesRequest | None = getattr(view_request, part)
        if request is not None:
            require(set(request.quantities) <= set(names), "quantities", request.quantities[:8])
            require(request.per_column in per_column, "steps or seconds in a column", request.per_column)
            require(request.columns <= HEAT_MOST, "columns", request.columns)
            _check_spans(request.ranks)
            # A screen has no more lines than this. Rows of a heat map may cover several ranks.
            few = sum(last - first + 1 for first, last in request.ranks or ()) <= HEAT_MOST
            require(few or part.startswith("heat"), "ranks", request.ranks)
    require(view_request.inspect is None or bool(view_request.inspect.ranks), "ranks to inspect", None)


def _check_spans(spans: RankSpans | None) -> None:
    """Check that spans are in ascending order, so that there are never more of them than ranks."""
    end = -1
    for first, last in spans or ():
        require(end < first <= last, "ranks", (first, last))
        end = last


def require(ok: bool, name: str, value: object) -> None:
    """Raise a WireError that names a field and its value if `ok` is false."""
    if not ok:
        raise WireError(f"{name} out of range: {value}")


def check_hello(hello: Hello) -> None:
    """Check a Hello beyond its field types, and raise a WireError that names an invalid field."""
    require(hello.rank < hello.world_size, "rank", hello.rank)
    texts = (hello.run_id, hello.host, hello.device, hello.device_name, hello.backend, hello.torch_version)
    require(sum(map(len, texts)) + sum(map(len, hello.notes)) <= MAX_TEXT, "length of texts", "too long")
    require(sum(len(name) + len(why) for name, why in hello.missing.items()) <= MAX_TEXT, "missing", "too long")
    require(set(hello.unmeasured) <= set(PHASES), "unmeasured", [name[:MAX_NAME] for name in hello.unmeasured])
    require(sum(map(len, (*hello.configuration, *hello.configuration.values()))) <= MAX_TEXT, "configuration", "long")


def check_meeting(meeting: Meeting) -> None:
    """Check a Meeting beyond its field types, and raise a WireError that names an invalid field."""
    require(meeting.node < meeting.nodes, "node", meeting.node)
    require(len(meeting.towards) <= MAX_NAME * 4, "towards", meeting.towards[:40])
    require(all(0 < node < meeting.nodes for node in meeting.keys), "node of a key", list(meeting.keys)[:4])
    require(all(is_key(key) for key in meeting.keys.values()), "key of a hub", "no Z85 of 32 bytes")
    if meeting.root is not None:
        check_card(meeting.root)


def check_card(card: Card) -> None:
    """Check the ranges of a Card's fields, or raise a WireError that names the field."""
    require(is_key(card.key), "key of a hub", "no Z85 of 32 bytes")
    require(0 < len(card.run_id) <= MAX_NAME, "run_id", card.run_id[:MAX_NAME])
    require(len(card.addresses) <= MAX_ADDRESSES, "addresses", len(card.addresses))
    require(all(_ADDRESS.fullmatch(address) for address in card.addresses), "address", str(card.addresses)[:80])
    require(len(card.admits) <= MAX_WORLD, "admits", len(card.admits))


def is_key(text: str) -> bool:
    """Return whether a text can be a CURVE key: 32 bytes in Z85."""
    return _KEY.fullmatch(text) is not None


def check_batch(batch: Batch) -> None:
    """Check a batch and its records beyond their field types, and raise a WireError that names an invalid field."""
    require(batch.merged < batch.seq, "merged", batch.merged)
    for step in batch.steps:
        check_step(step)
    for layout in batch.layouts:
        check_layout(layout)
    for pause in batch.closing_pauses:
        check_pause(pause)


def check_step(step: Step) -> None:
    """Check that the times of a step fit together, or raise a WireError that names the field."""
    require(step.length_us <= step.end_us, "length_us", step.length_us)
    own_us = step.data_us + step.forward_us + step.backward_us + step.optimizer_us + step.other_us
    require(own_us <= step.length_us + len(PHASES), "phases", own_us)
    for sync in step.syncs:
        require(sync.arrival_us <= sync.end_us <= step.length_us + 1, "times of a synchronisation", sync)
    for pause in step.pauses:
        check_pause(pause, step.length_us + 2)
    for bucket in step.buckets:
        require(bucket.launch_us <= bucket.end_us, "times of a bucket", bucket)


def check_layout(layout: Layout) -> None:
    """Check the total length of the parameter names of a layout, and raise WireError if they are too long."""
    require(sum(map(len, layout.parameters)) <= MAX_TEXT, "length of names", "too long")


def check_pause(pause: Pause, most_us: int = MAX_US) -> None:
    """Check that a pause ends before `most_us` and not before its start, or raise WireError."""
    require(pause.start_us <= pause.end_us < most_us, "times of a pause", pause)


def check_stack(stack: Stack) -> None:
    """Check a Stack beyond its field types, and raise a WireError that names an invalid field."""
    require(sum(map(len, stack.frames)) <= MAX_TEXT and len(stack.frames) <= MAX_FRAMES, "frames", len(stack.frames))
    require(stack.own is None or stack.own < len(stack.frames), "own", stack.own)
    require(sum(map(len, stack.issued)) <= MAX_TEXT, "length of groups", "too long")
    if stack.collective is not None:
        words = (getattr(stack.collective, name) for name in ("name", "group", "operation", "inputs", "outputs"))
        require(sum(map(len, words)) <= MAX_TEXT, "collective", "too long")
    require(len(stack.device) != 1, "device", stack.device)
    for scope in stack.scopes:
        require(scope.frame < len(stack.frames), "frame of a scope", scope.frame)
        require(scope.line > 0 and 0 < scope.first <= scope.last, "lines of a scope", scope)


def check_samples(samples: StackSamples) -> None:
    """Check stack samples beyond their field types, and raise a WireError that names an invalid field."""
    require(samples.first_step + samples.steps - 1 <= samples.last_step, "sampled steps", samples.steps)
    require(sum(stack.count for stack in samples.stacks) <= samples.count, "samples", samples.count)
    for reader in samples.readers:
        require(reader.running + reader.blocked <= reader.looks, "states of a reader", reader)
        require(reader.idle <= reader.checks, "idle", reader)
    for stack in (*samples.stacks, *samples.workers):
        require(sum(map(len, stack.frames)) <= MAX_TEXT, "length of frames", "too long")
        require(all(index < len(stack.frames) for index in stack.own), "own", stack.own)


def check_profile(profile: Profile) -> None:
    """Check a profile beyond its field types, and raise a WireError that names an invalid field."""
    require(profile.first_step <= profile.last_step, "profiled steps", profile.first_step)
    require(not profile.operators or (profile.steps > 0 and profile.span_us > 0), "length of steps", profile.steps)
    for track in profile.tracks:
        require(len(track.names) == len(track.starts_us) == len(track.lengths_us), "slices", track.name)
        require(max(track.names, default=-1) < len(profile.names), "name of a slice", track.name)
