"""Findings about ranks that are slower than the others: one family, with a kind for each way of being slow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.kinds.slow import has_company, slow_ranks
from ddpmon.analysis.kinds.slow_words import words
from ddpmon.messages import Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Return the slowdowns of ranks, each as a finding of its kind."""
    kinds = {kind.name: kind for kind in LATE}
    for one in slow_ranks(moment, {"rank", "ranks", "host"}):
        yield one.finding(kinds[one.kind_name], words)


def detect_all(moment: Moment) -> Iterator[Finding]:
    """Return the slowdowns of all ranks."""
    for one in slow_ranks(moment, {"all"}):
        yield one.finding(RUN_SLOWED, words)


_kind = partial(Kind, gone="{who} {has} recovered", by_cost=True)
_late = partial(_kind, family="late")
PERIODIC_STRAGGLER = _late(
    "periodic_straggler",
    "rank",
    meaning="A rank is slow in one step of every so many.",
    slows="rank {rank}'s pauses",
)
SLOW_HOST = _late(
    "slow_host",
    "host",
    meaning="All ranks of a host are slow together: it is the machine, and one finding.",
    changes_level=True,
    slows="{host}'s {phase}",
    quantities=(
        *("starved", "major_faults", "read", "written", "io_wait", "sent", "received"),
        *("gpu_clock", "gpu_temperature", "gpu_power"),
    ),
    is_one_of_several=lambda _: True,
)
SEVERAL_STRAGGLERS = _late(
    "several_stragglers",
    meaning="Several ranks are slow together, and fixing one of them gains nothing: another is the slowest then.",
    changes_level=True,
    slows="several ranks' {phase}",
    is_one_of_several=lambda _: True,
)
STRAGGLER = _late(
    "straggler",
    "rank",
    meaning="A rank is slow, with as much work as the others.",
    detect=detect,
    fewest_steps=1,
    changes_level=True,
    slows="rank {rank}'s {phase}",
    is_one_of_several=has_company,
)
LOAD_IMBALANCE = _late(
    "load_imbalance",
    "rank",
    meaning="A rank is slow because it has more samples or tokens than the others.",
    changes_level=True,
    slows="rank {rank}'s larger share of the work",
    is_one_of_several=has_company,
)
LATE_IN_BURSTS = _late(
    "late_in_bursts",
    "host",
    meaning="A host or some ranks are slow again and again, with a rhythm in steps or in seconds: that is one finding.",
    slows="bursts of {host}",
)
LATE = (PERIODIC_STRAGGLER, SLOW_HOST, SEVERAL_STRAGGLERS, STRAGGLER, LOAD_IMBALANCE, LATE_IN_BURSTS)
RUN_SLOWED = _kind(
    "run_slowed",
    meaning="All ranks take longer than they did before.",
    detect=detect_all,
    fewest_steps=1,
    changes_level=True,
    slows="all ranks' {phase}",
)
