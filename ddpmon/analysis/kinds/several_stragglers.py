"""Several ranks are slow together, and fixing one of them gains nothing: another is the slowest then."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.analysis.kinds.slow import Slow
from ddpmon.analysis.kinds.slow_words import GONE, words

KIND: Kind[Slow] = Kind(
    "several_stragglers",
    subject="world",
    gone=GONE,
    words=words,
    family="late",
    by_cost=True,
    changes_level=True,
    slows="several ranks' {phase}",
    is_one_of_several=lambda _: True,
)
