"""Runs that hardly any training makes: engine and kinds of findings describe them or are silent, and never fail.

`pytest --hypothesis-profile hunt` tries other runs than those that are always tried.
"""

from math import inf, isfinite, nan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.analysis.evidence import Evidence, Memory
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.conditions import SAMPLED_FIELDS, Conditions
from ddpmon.analysis.slowness.engine import Engine
from ddpmon.analysis.statistics.trend import Trend
from ddpmon.analysis.steps.table import HAS_LOSS, HAS_RATE
from ddpmon.analysis.steps.window import Window
from ddpmon.messages import DDP, OWN_PHASES, GpuUser
from tests.worlds import rows, split_of

LONGEST_MS = 700_000.0
"""Six phases of so much are as long as a record can say (2^32 µs)."""
HOSTS = {rank: f"host{rank // 3}" for rank in range(80)}
WINDOW_STEPS = 90
JUDGED_STEPS = 12


class Choice:
    """Draws from lists in which what is usual stands more than once."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def of(self, *options):
        return options[self.rng.integers(len(options))]


def noise(draw, shape):
    """[steps, ranks, 5] Noise as a share of the usual time."""
    kind, share = (
        draw.of("normal", "normal", "none", "heavy", "rare", "louder", "wanders"),
        draw.of(0.03, 0.01, 0.003, 0.3),
    )
    normal = share * draw.rng.standard_normal(shape)
    if kind == "heavy":
        return share * draw.rng.pareto(1.1, shape)
    if kind == "rare":
        return normal + 3 * (draw.rng.random(shape) < 0.01)
    if kind == "louder":
        return normal * np.where(np.arange(shape[0]) < draw.of(50, 90, 120), 1, 30)[:, None, None]
    return {"none": 0 * normal, "normal": normal, "wanders": np.cumsum(normal, axis=0) / 5}[kind]


def slowed(draw, own):
    """Make some ranks slower, or faster, in some steps, which may come again and again."""
    steps, ranks = np.arange(own.shape[0]), np.arange(own.shape[1])
    begin, lasts, every = draw.of(0, 1, 40, 60, 80, 120), draw.of(1000, 1000, 60, 20, 1), draw.of(1, 1, 1, 7, 40)
    slow = (steps >= begin) & (steps < begin + lasts) & (steps % every < draw.of(1, 1, 5))
    slow &= draw.rng.random(len(steps)) < draw.of(1, 1, 0.2)
    turn = draw.of(1, 1, 7, 60)
    whose = draw.of([[0]], [[0]], [[1]], [[0, 1]], [[3, 4, 5]], ranks[1:][None], ranks[None], steps[:, None] // turn)
    late = slow[:, None] & (ranks[None, :, None] == np.array(whose)[:, None] % len(ranks)).any(axis=2)
    own[..., draw.of([2], [0], [0, 1, 2, 3, 4])] *= np.where(late, draw.of(1.3, 1.3, 2, 2, 1.03, 10, 0.5, 0), 1)[
        ..., None
    ]


def world(draw, ranks, first):
    """Steps of one set of ranks, the numbers of which rise from `first` on."""
    steps = draw.of(150, 220, 150, 60, 9, 1)
    usual = draw.of(46.0, 46.0, 46.0, 46.0, 46.0, 1.0, 0.003, 3e4, LONGEST_MS, 0.0) * np.array(
        draw.of([0.1, 0.2, 0.4, 0.05, 0.05], [0.1, 0.2, 0.4, 0.05, 0.05], [0, 0, 1, 0, 0], [0.5, 0, 0, 0, 0.5])
    )
    own = usual * np.maximum(0.0, 1 + noise(draw, (steps, ranks, 5)))
    for _ in range(draw.of(1, 2, 3)):
        slowed(draw, own)
    samples = draw.of(0, 0, 8, draw.rng.integers(0, 99, (steps, ranks)), np.arange(ranks) % 2)
    tokens = draw.of(0, 0, draw.rng.integers(0, 1 << 20, (steps, ranks)))
    clipped, transfer = np.clip(own, 0, LONGEST_MS), draw.of(9.0, 9.0, 0.0, LONGEST_MS)
    table = rows(clipped, transfer=transfer, samples=samples, tokens=tokens)
    table["gc_us"] = draw.of(0, 0, 9000) * draw.rng.integers(0, 2, (steps, ranks))
    losses = draw.of([1.0, 1.1], [0.0], [-1.0, 9.0], [1e308, -1e308], [1.0, inf, nan])
    table["loss"] = draw.rng.choice(losses, (steps, ranks))
    table["learning_rate"] = draw.rng.choice(draw.of([0.1], [0.0], [0.1, 0.2], [inf, nan, 1e308]), ranks)
    table["has"] = draw.of(HAS_LOSS | HAS_RATE, HAS_LOSS, 0, draw.rng.integers(0, 4, (steps, ranks)))
    lost = np.cumsum(draw.rng.integers(1, 1000, steps) * (draw.rng.random(steps) < draw.of(0, 0, 0.1, 1)))
    table["step"] = first + (np.arange(steps) + lost)[:, None]
    return split_of(table)


def facts(draw, ranks, slowdowns):
    """Facts beside the steps, of which any may be missing or extreme."""
    sizes = [[draw.of(None, 0, 1, 1 << 30, (1 << 63) - 1) for _ in range(7)] for _ in ranks]
    some = [rank for rank in ranks if draw.rng.random() < draw.of(0, 0.5, 1, 1)]
    host = HOSTS if draw.of(True, False) else dict.fromkeys(HOSTS, draw.of("", "here"))
    trend = Trend(*draw.of((1e6, 9e5, 2e6), (1e-9, 1e-12, 1.0), (1e18, 1e3, 1e19)))
    return Evidence(
        slowdowns=slowdowns,
        world_size=draw.of(len(ranks), len(ranks), 0, 1 + max(ranks)),
        parallelism=draw.of(DDP, DDP, "", "FSDP2"),
        unmeasured=draw.of((), ("forward",)),
        clocks_within_ms=draw.of(0.0, 0.3, 1e6),
        skipped={rank: draw.of(0, 30, 1 << 40) for rank in some},
        held_out={rank: draw.of(0, 30, 1 << 40) for rank in some},
        gpu_users={rank: [GpuUser(7, "vllm", 1 << 30, of_run=draw.of(True, False))] for rank in some},
        memory=[
            Memory(
                rank, host[rank], draw.of(0.0, 99.0, 1e9), *size,
                trends=draw.of({}, dict.fromkeys(("rss_bytes", "worker_bytes", "gpu_used_bytes"), trend)),
                retry_seconds=draw.of(0, 30),
            )
            for rank, size in zip(some, sizes, strict=False)
        ],
        conditions=[
            Conditions(
                rank, host[rank], **{name: draw.of(None, 0.0, 0.5, 1e-300, 1e300) for name in SAMPLED_FIELDS},
                gpu_throttled=draw.of((), ("hot",)), cores=draw.of(0, 1, 9), loader_workers=draw.of(None, 0, 4),
                starved=draw.of([], [0.0] * 9, [0.9] * 9, [1e9]), compute_threads=draw.of(0, 8),
                loader_pinned=draw.of(None, False), device_name=draw.of("", "H100"),
                means={name: draw.of(0.0, 1e300) for name in ("sent", "received")} if draw.of(True, False) else {},
            )
            for rank in some
        ],
    )  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")  # as the store judges
@given(seed=st.integers(0, 1 << 32))
def test_no_run_is_too_odd_to_be_described(seed):
    draw = Choice(seed)
    window, engine, first, waiting, found = Window(WINDOW_STEPS), Engine(), 1, 0, []
    for _ in range(draw.of(1, 1, 2, 3)):
        run, piece = world(draw, draw.of(4, 8, 3, 2, 2, 5, 1, 70), first), draw.of(5, 12, 12, 40)
        first = int(run.step[-1]) + 1
        for begin in range(0, len(run), piece):
            part = run.steps_between(begin, begin + piece)
            window.append(part)
            engine.append(part)
            waiting += len(part)
            if waiting >= JUDGED_STEPS or begin + piece >= len(run):
                waiting, told = 0, engine.judge(window.as_world(), HOSTS)
                for one in told:
                    assert_possible(one, run.ranks, int(part.step[-1]))
                found = all_findings(window.as_world(30.0), facts(draw, run.ranks, told), found, window.as_world())
                assert all(one.text and one.text == one.text.strip() for one in found)


def assert_possible(one, ranks, last):
    numbers = (one.share, one.excess_ms, one.cost_ms, one.gain, one.gain_alone, one.increase, *one.phases_ms.values())
    assert all(isfinite(value) for value in numbers)
    assert set(one.ranks) <= set(ranks)
    assert set(OWN_PHASES) <= set(one.phases_ms)
    assert one.since_within[0] <= one.since <= one.since_within[1]
    assert one.since <= (last if one.until is None else one.until) <= last
    assert 0 < one.share <= 1
    assert one.cost_ms >= 0
    assert one.gain >= 1
    assert one.gain_alone >= 1
