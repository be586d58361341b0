"""Findings about ranks that are slower than the others: one family, with a kind for each way of being slow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.kinds.slow import has_company, slow_ranks
from ddpmon.analysis.kinds.slow_words import slowdown_words, turn_steps, words_of_turns
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.messages import Finding

_kind = partial(Kind, gone="{who} {has} recovered", by_cost=True)
_late = partial(_kind, family="late")
PERIODIC_STRAGGLER = _late(
    name="periodic_straggler",
    subject="rank",
    meaning="A rank is slow at regular intervals: in one of every k steps.",
    names_line=True,
    slows="rank {rank}'s pauses",
    remedy="Look for work that this rank does at that interval, such as logging, a checkpoint, or a metric on rank 0.",
)
SLOW_HOST = _late(
    name="slow_host",
    subject="host",
    meaning="All ranks of a host are slow together: the cause is the machine. These ranks share one finding.",
    changes_level=True,
    slows="{host}'s {phase}",
    quantities=(
        *("starved", "major_faults", "read", "written", "io_wait", "sent", "received"),
        *("gpu_clock", "gpu_temperature", "gpu_power"),
    ),
    is_one_of_several=lambda _: True,
    remedy="Look at what all ranks of that host share: clocks, cores, disk and network card.",
)
SEVERAL_STRAGGLERS = _late(
    name="several_stragglers",
    meaning="Several ranks are slow together. Fixing only one of them gains nothing, because another rank is then the"
    " slowest.",
    changes_level=True,
    names_line=True,
    slows="several ranks' {phase}",
    is_one_of_several=lambda _: True,
    remedy="Fix all slow ranks, because one slow rank is enough to make the others wait. Look for what the slow ranks"
    " share.",
)
LOAD_IMBALANCE = _late(
    name="load_imbalance",
    subject="rank",
    meaning="A rank is slow because it has more samples or tokens than the others.",
    changes_level=True,
    slows="rank {rank}'s larger share of the work",
    is_one_of_several=has_company,
    remedy="Give all ranks the same work: sort samples by length, or build batches with equal numbers of tokens.",
)
LATE_IN_BURSTS = _late(
    name="late_in_bursts",
    subject="host",
    meaning="A host or some ranks are slow again and again, at regular intervals of steps or of seconds.",
    names_line=True,
    slows="bursts of {host}",
    remedy="Look for work at that interval on that host: other programs, backups, checkpoints, or clocks that drop with"
    " heat.",
)


@_late(
    subject="rank",
    fewest_steps=1,
    changes_level=True,
    names_line=True,
    slows="rank {rank}'s {phase}",
    is_one_of_several=has_company,
    remedy="Look at the phase that the finding names, and at how this rank differs from its peers. If the rank "
    "does not differ from its peers, try another machine.",
)
def straggler(moment: Moment) -> Iterator[Finding]:
    """A rank is slow, although it has as much work as the others."""
    kinds = {kind.name: kind for kind in LATE}
    for one in slow_ranks(moment, {"rank", "ranks", "host"}):
        yield one.finding(kinds[one.kind_name], slowdown_words)


LATE = (PERIODIC_STRAGGLER, SLOW_HOST, SEVERAL_STRAGGLERS, straggler, LOAD_IMBALANCE, LATE_IN_BURSTS)


@_kind(
    fewest_steps=1,
    changes_level=True,
    slows="all ranks' {phase}",
    remedy="Look for a change at that step that affects all ranks: input sizes, the shared disk, the network, or"
    " clocks.",
)
def run_slowed(moment: Moment) -> Iterator[Finding]:
    """All ranks take longer than before."""
    for one in slow_ranks(moment, {"all"}):
        yield one.finding(moment.kind, slowdown_words)


@Kind(
    gone="the rotation of slow ranks has ended",
    fewest_steps=1,
    by_cost=True,
    changes_level=True,
    slows="waiting for a slow rank that rotates",
    remedy="No single machine is at fault. Use batches of even size, give each rank its own cores, or prefetch more"
    " batches.",
)
def moving_straggler(moment: Moment) -> Iterator[Finding]:
    """A different rank is slow each time. No rank is slow for long, but every step waits for a slow rank."""
    for one in slow_ranks(moment, {"rotating"}):
        one.before = moment.previous_finding
        facts = {
            "load_balance_moving": StepSums.from_world(one.part).efficiency.load_balance_moving,
            "excess_ms": one.slowdown.excess_ms,
            "phase_excess_ms": one.excess_ms,
            "gain": one.slowdown.gain,
            "steps": one.steps,
            "since_interval": one.since_interval,
            "turn_steps": turn_steps(one),
            "work": one.slowdown.work or None,
        }
        yield one.finding(moment.kind, words_of_turns, facts)
