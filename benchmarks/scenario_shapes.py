"""Faults of many shapes, each with its truth: the slow ranks, the phase, the pattern, the beginning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from play import Timeline
from scenario_noises import BATCH, NEEDS_HOSTS, NOISES, SHARES, Floats, Work, autoregression, ranks_of_host

from ddpmon.messages import OWN_PHASES

PHASES = ("backward", "data", "other", "forward", "optimizer")
"""The phases in which faults are placed in turn, unless the shape names its own phase."""
CONSTANT, STRETCH, BURSTS, PERIODIC = "constant", "stretch", "bursts", "every k steps"
IRREGULAR, RAMP, ROTATING, NOTHING = "irregular", "ramp", "rotating", ""
BEGIN = 7 / 15
"""Share of the run after which a fault begins (step 700 of 1,500), unless the shape says when."""


@dataclass(frozen=True)
class Truth:
    """The true fault. `since` and `until` are its first and last step, counted from 1; `until` is None if it does not
    end."""

    pattern: str = NOTHING
    ranks: tuple[int, ...] = ()
    """All ranks if all are slower than before; none if the slow rank rotates."""
    phase: str | None = None
    """The phase with the fault; None if the fault is not in a single phase."""
    since: int = 1
    until: int | None = None
    size: float = 0.0
    """The delay of a slow step, as a share of a step."""
    not_said: str = ""
    """Regular expression for a wrong cause, which no finding about these ranks may match."""
    said: str = ""
    """Regular expression that the verdict must match, live and in the report; nothing else is scored then."""
    hidden_from: int | None = None
    """Step from which noise hides the fault. It must be named live by then, and must never be reported as ended."""
    innocent_gain: tuple[int, ...] = ()
    """Ranks that may be named though they have no fault: a rank that got faster."""
    changed: bool = False
    """True if the same ranks were slow in another phase before `since`."""


@dataclass
class Draft:
    """A run to which a shape adds its fault. `well` is the same run without it."""

    rng: np.random.Generator
    draw: int
    """Number that selects the slow rank and the phase; it differs between scenarios and seeds."""
    step_ms: float
    work: Work
    well: Work
    hosts: list[str]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return self.work.own_ms.shape[0]

    @property
    def ranks(self) -> int:
        return self.work.own_ms.shape[1]

    @property
    def rank(self) -> int:
        """Return the slow rank."""
        return self.draw * 7 % self.ranks

    @property
    def phase(self) -> str:
        """Return the phase in which the rank is slow."""
        return PHASES[self.draw % len(PHASES)]

    def place(self, begin: int | None) -> int:
        """Return the index of a fault's first step."""
        return round(self.steps * BEGIN) if begin is None else begin

    def delay(self, ranks: Sequence[int], phase: str, size: float | Floats, when: slice | NDArray[np.bool_]) -> None:
        """Add `size` of a step (a number, or one for each step) to a phase of some ranks."""
        added = np.zeros(self.steps)
        added[when] = size * self.step_ms if np.isscalar(size) else np.asarray(size)[when] * self.step_ms
        self.work.own_ms[:, list(ranks), OWN_PHASES.index(phase)] += added[:, None]

    def well_step_ms(self) -> Floats:
        """Return the length of each step without the fault, [S]."""
        pauses, every = self.options.get("pauses", ()), self.options.get("sync_every", 1)
        return Timeline.of(self.well.own_ms, self.well.transfer_ms, pauses, every).step_ms


Make = Callable[[Draft], Truth]


def late(
    draft: Draft, size: float = 0.25, begin: int | None = None, end: int | None = None, phase: str = "", rank: int = -1
) -> Truth:
    """Make one rank slow from a step on, or from one step to another."""
    first, last = draft.place(begin), draft.steps if end is None else end
    who, where = draft.rank if rank < 0 else rank, phase or draft.phase
    draft.delay([who], where, size, slice(first, last))
    return Truth(STRETCH if end else CONSTANT, (who,), where, first + 1, end, size)


def several(draft: Draft, size: float = 0.25, ranks: Sequence[int] = (), count: int = 2, apart: int = 3) -> Truth:
    """Make several ranks slow at once."""
    who = tuple(sorted({(draft.rank + apart * k) % draft.ranks for k in range(count)})) if not ranks else tuple(ranks)
    first = draft.place(None)
    draft.delay(who, draft.phase, size, slice(first, None))
    return Truth(CONSTANT, who, draft.phase, first + 1, size=size)


def slow_hosts(draft: Draft, size: float = 0.25, count: int = 1) -> Truth:
    """Make all ranks of some hosts slow."""
    names = list(dict.fromkeys(draft.hosts))
    chosen = {names[(draft.draw + k) % len(names)] for k in range(count)}
    return several(draft, size, [rank for rank, host in enumerate(draft.hosts) if host in chosen])


def bursts(draft: Draft, size: float = 0.4, lasts_s: float = 7.0, every_s: float = 25.0) -> Truth:
    """Make one rank slow for `lasts_s` of every `every_s` seconds, however long its steps are by then."""
    begins_ms, now, when = 10_000.0, 0.0, np.zeros(draft.steps, bool)
    well = draft.well_step_ms()
    for step in range(draft.steps):
        when[step] = now >= begins_ms and (now - begins_ms) % (every_s * 1e3) < lasts_s * 1e3
        now += well[step] + size * draft.step_ms * when[step]
    draft.delay([draft.rank], draft.phase, size, when)
    return Truth(BURSTS, (draft.rank,), draft.phase, int(when.argmax()) + 1, size=size)


def periodic(draft: Draft, size: float = 2.5, every: int = 10, phase: str = "") -> Truth:
    """Make one rank slow in every `every`-th step, in a given phase or in the draft's."""
    first = draft.place(None)
    when = (np.arange(draft.steps) >= first) & ((np.arange(draft.steps) - first) % every == 0)
    draft.delay([draft.rank], phase or draft.phase, size, when)
    return Truth(PERIODIC, (draft.rank,), phase or draft.phase, first + 1, size=size)


def irregular(draft: Draft, size: float, share: float) -> Truth:
    """Make one rank slow in a share of its steps, drawn at random."""
    rank = 4 % draft.ranks
    when = draft.rng.random(draft.steps) < share
    draft.delay([rank], draft.phase, size, when)
    return Truth(IRREGULAR, (rank,), draft.phase, int(when.argmax()) + 1, size=size)


def ramp(draft: Draft, size: float = 0.5, begin: int | None = None, steps: int = 500) -> Truth:
    """Make one rank slower and slower over some hundred steps."""
    first = draft.place(begin)
    rise = np.clip((np.arange(draft.steps) - first) / steps, 0.0, 1.0) * size
    draft.delay([draft.rank], draft.phase, rise, slice(None))
    return Truth(RAMP, (draft.rank,), draft.phase, first + 1, size=size)


def rotating(draft: Draft, size: float = 0.5) -> Truth:
    """Make one rank slow in each step, drawn at random."""
    first = draft.place(None)
    whose = draft.rng.integers(0, draft.ranks, draft.steps)
    for rank in range(draft.ranks):
        draft.delay([rank], draft.phase, size, (whose == rank) & (np.arange(draft.steps) >= first))
    return Truth(ROTATING, (), draft.phase, first + 1, size=size)


def all_ranks(draft: Draft, phase: str, times: float, ramp_steps: int = 0) -> Truth:
    """Make all ranks slower than before, in one phase (all phases: "") or in transfer."""
    first = draft.place(None)
    rise = np.clip((np.arange(draft.steps) - first + 1) / max(1, ramp_steps), 0.0, 1.0) * (times - 1)
    if phase == "transfer":
        draft.work.transfer_ms *= 1 + rise
        size = (times - 1) * float(1 - SHARES.sum())
    else:
        places = slice(None) if not phase else OWN_PHASES.index(phase)
        draft.work.own_ms[..., places] *= (1 + rise)[:, None, None] if not phase else (1 + rise)[:, None]
        size = (times - 1) * float(np.sum(SHARES[places]))
    pattern = RAMP if ramp_steps else CONSTANT
    return Truth(pattern, tuple(range(draft.ranks)), phase or None, first + 1, size=size)


def faster(draft: Draft, times: float = 0.7, begin: int = 400) -> Truth:
    """Make one of two ranks faster, while the other one does not change."""
    draft.work.own_ms[begin:, 1] *= times
    draft.well.own_ms[begin:, 1] *= times
    return Truth(innocent_gain=(1,))


def phase_changes(draft: Draft, size: float = 0.4, at: int = 400) -> Truth:
    """Make one rank slow in data, and from a step on in backward."""
    draft.delay([draft.rank], "data", size, slice(0, at))
    draft.delay([draft.rank], "backward", size, slice(at, None))
    return Truth(CONSTANT, (draft.rank,), "backward", at + 1, size=size, changed=True)


def sleeps_with_samples(draft: Draft, mine: int, theirs: int, ms: float, not_said: str) -> Truth:
    """Let a rank sleep in data, and give it another number of samples, which costs it nothing."""
    samples = np.full(draft.ranks, theirs)
    samples[1] = mine
    draft.options["samples"] = samples
    draft.delay([1], "data", ms / draft.step_ms, slice(None))
    return Truth(CONSTANT, (1,), "data", 1, size=ms / draft.step_ms, not_said=not_said)


def uneven(draft: Draft, size: float = 0.25) -> Truth:
    """Give one rank more samples, which makes all of its computations longer by the same share."""
    first, rank = draft.place(None), draft.rank
    draft.work.own_ms[first:, rank] *= 1 + size
    samples = np.full((draft.steps, draft.ranks), BATCH)
    samples[first:, rank] = round(BATCH * (1 + size))
    draft.options["samples"] = samples
    return Truth(CONSTANT, (rank,), None, first + 1, size=size * float(SHARES.sum()))


def old_clock(draft: Draft, mhz: float = 1500.0) -> Truth:
    """Give a GPU a lower clock from the start, and make its forward slow from a later step on."""
    clocks = np.full(draft.ranks, 1980.0)
    clocks[draft.rank] = mhz
    draft.options["clocks"] = clocks
    truth = late(draft, 0.25, phase="forward")
    return Truth(**{**vars(truth), "not_said": "MHz(?!.*began at another time)"})  # A remark may name the clock.


def hidden(draft: Draft, ms: float = 54.0, quiet_steps: int = 200) -> Truth:
    """Make a rank slow in data in all steps; from a step on, other programs also delay each rank for a while."""
    crowd = autoregression(draft.rng, 30, draft.steps - quiet_steps, draft.ranks)
    noise = 3.0 * draft.step_ms * np.maximum(0.0, crowd)
    for work in (draft.work, draft.well):
        work.own_ms[quiet_steps:, :, OWN_PHASES.index("backward")] += noise
    size = ms / draft.step_ms
    draft.delay([2], "data", size, slice(None))
    return Truth(CONSTANT, (2,), "data", 1, size=size, hidden_from=quiet_steps)


def local_sgd(draft: Draft, size: float = 0.25, every: int = 8) -> Truth:
    """Make one rank slow while ranks wait for each other only in every `every`-th step."""
    draft.options["sync_every"] = every
    return late(draft, size)


def records_lost(draft: Draft, begin: int = 300) -> Truth:
    """Make a rank slow from a step on, while its records are lost and its heartbeat goes on."""
    lost = np.zeros((draft.steps, draft.ranks), bool)
    lost[begin:, draft.rank] = True
    draft.options["lost"] = lost
    draft.delay([draft.rank], draft.phase, 0.25, slice(begin, None))
    return Truth(CONSTANT, (draft.rank,), draft.phase, begin + 1, size=0.25, said=rf"rank {draft.rank}\b")


def loopback(draft: Draft, late_ms: float = 30.0, leaves_ms: float = 2.6) -> Truth:
    """On one machine, make a rank slow in data, and let another one leave each synchronisation a little late."""
    transfer = np.repeat(draft.work.transfer_ms[:, None], draft.ranks, axis=1)
    transfer[:, 3] += leaves_ms
    draft.work.transfer_ms, draft.well.transfer_ms = transfer, transfer.copy()
    draft.delay([2], "data", late_ms / draft.step_ms, slice(None))
    return Truth(CONSTANT, (2,), "data", 1, size=late_ms / draft.step_ms)


@dataclass(frozen=True)
class Scenario:
    """A shape, its noise, and its world. If `make` is None, there is no fault."""

    name: str
    make: Make | None
    noise: str = "independent 5%"
    ranks: int = 8
    steps: int = 1500
    step_ms: float = 46.0
    hosts: int = 1
    """Number of hosts of equal size; worlds of 16 ranks and more have hosts of eight."""

    def draft(self, seed: int) -> Draft:
        """Return the run without its fault."""
        rng = np.random.default_rng([seed, 7])
        work = NOISES[self.noise].work(rng, self.step_ms, (self.steps, self.ranks))
        well = Work(work.own_ms.copy(), work.transfer_ms.copy())
        size = -(-self.ranks // self.hosts)
        if self.noise in NEEDS_HOSTS or self.ranks >= 16:
            size = min(size, ranks_of_host(self.ranks))
        hosts = [f"host{rank // size}" for rank in range(self.ranks)]
        return Draft(rng, seed + crc32(self.name.encode()), self.step_ms, work, well, hosts, dict(work.options))


def _faults() -> list[Scenario]:
    at_start = partial(late, begin=0)
    of_two = partial(at_start, rank=1)
    made = [
        Scenario("from the start, 25%", at_start),
        Scenario("from the start, 5%", partial(at_start, size=0.05)),
        Scenario("from the start, 5%, quiet", partial(at_start, size=0.05), "differing 1.5%"),
        Scenario("from the start, two ranks, data", partial(of_two, size=20 / 46, phase="data"), ranks=2, steps=1200),
        *(
            Scenario(
                f"from the start, steps of 1 ms, {phase}", partial(of_two, size=20.0, phase=phase), ranks=2,
                steps=3800, step_ms=1.0,
            )
            for phase in ("data", "backward")
        ),
        Scenario("since step 251", partial(late, begin=250)),
        Scenario("since, 5%", partial(late, size=0.05)),
        Scenario("since, 10%", partial(late, size=0.1)),
        Scenario("since, 25%", late),
        Scenario("since, 2 ranks", late, ranks=2),
        Scenario("since, 3 ranks", late, ranks=3),
        Scenario("since, 64 ranks", late, ranks=64),
        Scenario("since, 512 ranks", late, ranks=512, steps=600),
        Scenario("since, steps of 1 ms", late, steps=6000, step_ms=1.0),
        Scenario("since, steps of 30 s", late, steps=300, step_ms=30_000.0),
        Scenario("for a while", partial(late, begin=400, end=900)),
        Scenario("4,000 of 9,000 steps", partial(late, size=0.35, begin=3000, end=7000), steps=9000),
        Scenario("7 of every 25 s", bursts, steps=2400),
        Scenario("every 7th step", partial(periodic, every=7, size=1.75)),
        Scenario("every 10th step", periodic),
        Scenario(
            "every 7th step beside garbage", partial(periodic, every=7, size=0.5, phase="other"), "garbage 3%",
            ranks=4, steps=700,
        ),
        Scenario("irregular, 10% of steps", partial(irregular, size=70 / 46, share=0.1)),
        Scenario("irregular, 3% of steps", partial(irregular, size=230 / 46, share=0.03)),
        Scenario("irregular, 30% of steps", partial(irregular, size=25 / 46, share=0.3)),
        Scenario("ramp to 50%", ramp),
        Scenario("ramp to 50% over the whole run", partial(ramp, begin=0, steps=1500)),
        Scenario("another rank each step", rotating),
        Scenario("all ranks: backward +30%", partial(all_ranks, phase="backward", times=1.3)),
        Scenario("all ranks: data 5% to 25%", partial(all_ranks, phase="data", times=5.0)),
        Scenario("all ranks: transfer doubled", partial(all_ranks, phase="transfer", times=2.0)),
        Scenario("all ranks: ramp to 1.5x", partial(all_ranks, phase="", times=1.5, ramp_steps=500)),
        Scenario("one of two gets faster", faster, ranks=2, steps=1200),
        Scenario("two ranks", several),
        Scenario("three of eight", partial(several, count=3)),
        Scenario("half of the ranks", partial(several, count=4, apart=2)),
        Scenario("five of eight", partial(several, count=5)),
        Scenario("a host", slow_hosts, ranks=16, hosts=4),
        Scenario("three of four hosts", partial(slow_hosts, count=3), ranks=16, hosts=4),
        Scenario("the phase changes", phase_changes),
        Scenario("uneven batches", uneven),
        *(
            Scenario(
                f"sleeps and has {mine} of {theirs} samples",
                partial(sleeps_with_samples, mine=mine, theirs=theirs, ms=ms, not_said=never), ranks=4,
            )
            for mine, theirs, ms, never in (
                (9, 8, 8.0, "more samples"), (83, 64, 12.0, "as large as"), (45, 64, 12.0, "as large as"),
            )
        ),
        Scenario("GPU clock from the start", old_clock),
        Scenario("hidden by noise", hidden, ranks=4, steps=800),
        Scenario("local SGD", local_sgd),
        Scenario("records of a rank are lost", records_lost, ranks=4),
        Scenario("leaves late over loopback", loopback, ranks=4),
    ]  # fmt: skip
    for noise in list(NOISES):
        made += [
            Scenario(f"since, {size:.0%}, in {noise}", partial(late, size=size), noise)
            for size in (0.1, 0.25)
            if noise != "independent 5%"
        ]
    return made


FAULTS = {scenario.name: scenario for scenario in _faults()}
QUIET = {f"no fault: {noise}": Scenario(f"no fault: {noise}", None, noise) for noise in NOISES}
