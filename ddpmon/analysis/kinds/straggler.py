"""A rank is slow, with as much work as the others."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds import late_in_bursts, load_imbalance, periodic_straggler, several_stragglers, slow_host
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment
from ddpmon.analysis.kinds.slow import Slow, has_company, slow_ranks
from ddpmon.analysis.kinds.slow_words import GONE, words


def detect(moment: Moment) -> Iterator[Detection[Slow]]:
    """Return the slowdowns of ranks, of this kind or of others of its family."""
    modules = (late_in_bursts, load_imbalance, periodic_straggler, several_stragglers, slow_host)
    kinds = {kind.name: kind for kind in (KIND, *(module.KIND for module in modules))}
    for one in slow_ranks(moment, {"rank", "ranks", "host"}):
        yield one.detection(kinds[one.kind_name])


KIND = Kind(
    "straggler",
    subject="rank",
    gone=GONE,
    words=words,
    detect=detect,
    fewest_steps=1,
    family="late",
    by_cost=True,
    changes_level=True,
    slows="rank {rank}'s {phase}",
    is_one_of_several=has_company,
)
