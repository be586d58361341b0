"""Snapshots that no hub of ours would send: true ones, changed at random so that most of them still decode.

Every change is made from the dice that are given, so that a seed names it.
"""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import msgspec

from ddpmon.messages import (
    SAMPLE_SERIES,
    STEP_SERIES,
    Attempt,
    PausingView,
    SeriesRequest,
    Snapshot,
    TimelineRequest,
    TimesView,
    ViewRequest,
    WireError,
    decode_snapshot,
    encode,
)
from ddpmon.store.parts import with_parts
from tests.tui import inspected, measured, odd, snapshots, through_time

MOST_CHANGES = 6
NUMBERS = (0, 1, -1, 2, 7, 255, 1 << 16, 1 << 31, 1 << 48, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 1e18, -1e18, 0.1, 1.0, -1.0, 1e10)
TEXTS = (
    "",
    " ",
    "\n",
    "\x1b[2J\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07\x1b]52;c;AAAA\x07",
    "\x9b31m\x90q\x9c\x85",
    "\x1b",
    "\a\b\v\f\r\0",
    "\u202edetrevni\u2066\u200f",
    "e" + "\u0301" * 500,
    "\u0301",
    "日本語" * 40,
    "👩\u200d👩\u200d👧" * 9,
    "\ufeff\u2028\u2029",
    "\ud800",
    "[red]not markup[/] [@click=app.quit]quit[/] [/]",
    "%s {} {0} \\",
    "-" * 5_000,
    "word " * 30_000,
    "node00",
    "cuda:99999",
    "log:",
    "rank 3: ",
)
WORDS = ("", "?", "running", "slow", "stalled", "failed", "done", "waiting", "lost", "stopped", "replay", "info",
         "warn", "critical", "training", "group", "importing", "ended", "ok", "dead", "left", "silent", "missing",
         "loss", "own", "wait", "data", "gpu", "rss", "log:x", "window", "last", "start", "evaluation", "hang",
         "rank_failed", "straggler", "DDP", "FSDP2", "one process", "gradients", "collective")  # fmt: skip


@cache  # nobody changes one: what is changed is its frame
def true_snapshots() -> list[Snapshot]:
    """One of each kind, with all the parts that screens request."""
    through = through_time.slow(gpu=True)
    every = ViewRequest(
        heat=SeriesRequest(rows=12, columns=40),
        timeline=TimelineRequest(),
        cost="start",
        inspect=SeriesRequest(ranks=((5, 5),), columns=40),
        stacks=True,
        series=SeriesRequest(("own",)),
        samples=SeriesRequest(("gpu", "cpu"), per_column=1, columns=40, ranks=((0, 7),)),
        strips=SeriesRequest(per_column=8, columns=24, ranks=((0, 7),)),
        sync=SeriesRequest(per_column=8, columns=40),
        heat_phases=SeriesRequest(rows=8, columns=40, ranks=((0, 7),), beyond_chance=True),
    )
    parts = {
        name: getattr(with_parts(through.plain, through.store, every), name)
        for name in (
            "heat",
            "timeline",
            "cost",
            "inspect",
            "stacks",
            "series",
            "samples",
            "strips",
            "sync",
            "heat_phases",
        )
    }
    more = {
        "quantities": [*STEP_SERIES, *SAMPLE_SERIES, "log:accuracy"],
        "times": TimesView(41.0, 3600.0, {"evaluation": 30.0, "checkpoint": 8.1}, {"evaluation": 2, "checkpoint": 1}),
        "pausing": PausingView("evaluation", [0, 1, 2], 12.0),
        "accumulation": 4,
        "training_epoch": 3,
        "training_epochs": 8,
        "parallelism": "FSDP2",
        "unmeasured": ["backward"],
        "measured": "with FSDP2 the backward is not measured apart",
        "notes": ["no GPU counters on node01: NVML not found"],
        "missing": {"gpu": "no GPU counters on node01: NVML not found"},
    }
    found = [make() for make in snapshots.STATES.values()]
    found += [make() for name, make in measured.MADE.items() if name != "world"]
    found += [odd.empty(), odd.nobody()]
    rich = []
    for shot in found:
        run = msgspec.structs.replace(shot.run, attempts=[Attempt(1, 4, 120, [2], "RuntimeError: boom", "exit 1")])
        rich.append(msgspec.structs.replace(shot, run=run, **parts, **more))
    for make in (inspected.late, inspected.standing, inspected.dead):
        source = make()
        source.request_view(every)
        rich.append(source.current)
    return [*found, *rich]


def _places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything in a tree of lists and dictionaries."""
    found = [path] if path else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        found += _places(value, (*path, key))
    return found


def _changed(value: Any, dice: random.Random) -> Any:
    """Something else of the same type, or of one that may stand for it."""
    if isinstance(value, bool) or dice.random() < 0.03:
        return dice.choice([None, True, False])
    if isinstance(value, int):
        return dice.choice([*NUMBERS, value + 1, value - 1, value * 1000])
    if isinstance(value, float):
        return dice.choice([*FLOATS, -value, value * 1e6, value + 1])
    if isinstance(value, str):
        return dice.choice([*TEXTS, *WORDS, *WORDS, value * 50])
    if isinstance(value, bytes):
        return dice.choice([b"", value[:-1], value * 2, bytes(len(value)), b"\xff" * len(value)])
    if isinstance(value, list):
        return _changed_list(value, dice)
    if isinstance(value, dict):
        key = dice.choice([*TEXTS, *WORDS, *value])
        return {**value, key: dice.choice([*value.values(), 1.0, 1])}
    return dice.choice([0, 1, 7.0, "x", math.nan, *NUMBERS, *TEXTS])


def _changed_list(value: list[Any], dice: random.Random) -> list[Any]:
    some = dice.choice(value) if value else dice.choice([1, 1.0, "x", None])
    return dice.choice(
        [
            [], value[:-1], value[1:], [*value, some], [some] * len(value), value[::-1], [*value, *value],
            [some] * 3_000, dice.sample(value, len(value)), [*value[:-1], None], value[: len(value) // 2],
        ]
    )  # fmt: skip


def mutated(shot: Snapshot, dice: random.Random) -> bytes:
    """The frame of a snapshot with a few things in it changed."""
    tree = msgspec.msgpack.decode(encode(shot))
    # As many changes high up in the tree as deep in it, where nearly all of it is.
    for _ in range(dice.randint(1, MOST_CHANGES)):
        places = _places(tree)
        depth = dice.choice(sorted({len(place) for place in places}))
        *way, last = dice.choice([place for place in places if len(place) == depth])
        parent = tree
        for key in way:
            parent = parent[key]
        if parent is tree and last == "type":
            continue
        parent[last] = _changed(parent[last], dice)
    return _packed(tree)


def _packed(tree: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(tree)
    except UnicodeEncodeError:  # a lone surrogate cannot be sent as such
        return msgspec.msgpack.encode(_without_surrogates(tree))


def _without_surrogates(tree: Any) -> Any:
    if isinstance(tree, str):
        return tree.replace("\ud800", "\ufffd")
    if isinstance(tree, dict):
        return {_without_surrogates(key): _without_surrogates(value) for key, value in tree.items()}
    return [_without_surrogates(value) for value in tree] if isinstance(tree, list) else tree


def decoded(frame: bytes) -> Snapshot | None:
    """What a viewer makes of a frame; None: it refuses it."""
    try:
        return decode_snapshot(frame)
    except WireError:
        return None


def taken(shots: list[Snapshot], seed: int) -> tuple[Snapshot, random.Random]:
    """A mutated snapshot that a viewer takes, and the dice that go on."""
    dice = random.Random(f"hostile {seed}")
    while (shot := decoded(mutated(dice.choice(shots), dice))) is None:
        pass
    return shot, dice
