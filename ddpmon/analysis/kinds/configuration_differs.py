"""Ranks run with different versions, scripts, arguments or variables of communication."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import Finding

OF_EACH_RANK = re.compile(
    r"rank|device|gpu|cuda|node|host|addr|port|seed|process|worker|shard|log|out|dir|path", re.IGNORECASE
)
"""Arguments that are meant for one rank or one machine."""
MUST_BE_SAME = ("torch", "script", "Python")
"""What is a fault where it differs; the rest may be meant."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield one finding about the first thing that differs, with how many more do."""
    configurations = dict(sorted(moment.evidence.configurations.items()))
    first = next(iter(configurations.values()), None)
    if first is None or all(one == first for one in configurations.values()):
        return
    names = dict.fromkeys(name for one in configurations.values() for name in one)
    differ = {
        name: values
        for name in names
        if not (name.startswith(("-", "argument")) and OF_EACH_RANK.search(name))
        and len(set((values := {rank: one.get(name, "") for rank, one in configurations.items()}).values())) > 1
        and not _is_made_of_rank(values)
    }
    if not differ:
        return
    grave = [name for name in differ if name in MUST_BE_SAME]
    name = (grave or list(differ))[0]
    values = differ[name]
    (usual, most), *others = Counter(values.values()).most_common()
    ranks = [rank for rank, value in values.items() if value != usual or most == others[0][1]]
    lead = f"{named_ranks(ranks, moment.evidence.world_size)} {'has' if len(ranks) == 1 else 'have'}"
    text = f"{lead} {name} {others[0][0] or 'unset'}, the others {usual or 'unset'}"
    if most == others[0][1]:
        of = {value: rank for rank, value in reversed(values.items())}
        each = [f"{value or 'unset'} on rank {of[value]}" for value in (usual, others[0][0])]
        text = f"ranks differ in {name}: {', '.join(each)}"
    more = f"; {len(differ) - 1} more differ" if len(differ) > 1 else ""
    words = Words(
        fitting(text, more),
        "Ranks of one training should run the same script with the same arguments, versions and communication settings:"
        f" compare how they are started on each machine. What differs: {', '.join(list(differ)[:8])}.",
    )
    known = {one: {str(rank): value for rank, value in those.items()} for one, those in list(differ.items())[:8]}
    yield KIND.finding("warn" if grave else "info", words, ranks, evidence={"differ": known})


def _is_made_of_rank(values: Mapping[int, str]) -> bool:
    """Return whether values are the same but for the number of the rank in each."""
    return len({re.sub(rf"(?<!\d)0*{rank}(?!\d)", "*", value) for rank, value in values.items()}) == 1


KIND = Kind("configuration_differs", detect=detect)
