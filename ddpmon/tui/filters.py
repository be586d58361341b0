"""Filters the listed ranks by terms. A listed rank satisfies every term of the filter.

Each line shows a term, its meaning, and the longer form that some terms have:

13  0-7,12       these ranks                           rank:0-7
n1               hosts whose name contains this        host:n1
slow silent dead a rank's state                        state:dead
own>40 wait<=2   a quantity, in the screens' units (ms, %, GiB)
sent>1.2M        with the suffixes that screens use for large numbers
!node03          not
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ddpmon import messages, numbers
from ddpmon.messages import NOTABLE, RankSpans, RankView
from ddpmon.messages.quantities import BYTES_PER_S

_TERM = re.compile(r"([a-z]+)(>=|<=|>|<|=|:)(.*)")
_RANKS = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq, ":": operator.eq,
}  # fmt: skip
_SUFFIXES = "kMGT"

Test = Callable[[RankView], bool]


class FilterError(ValueError):
    """A filter that cannot be parsed; the text is one line for the user."""


@dataclass(frozen=True)
class Filter:
    """A filter for ranks: a rank passes if every term holds. A filter without terms passes all ranks."""

    text: str = ""
    terms: tuple[Test, ...] = field(default=(), compare=False)

    def matches_rank(self, rank: RankView) -> bool:
        """Return whether this rank is listed."""
        return all(term(rank) for term in self.terms)


def runs_of(ranks: Iterable[int]) -> RankSpans:
    """Return ranks as spans of consecutive ranks, the form in which the hub expects them."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(ranks):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def parse_filter(text: str) -> Filter:
    """Parse a filter.

    Raises:
        FilterError: A term cannot be parsed; the error says which one, and why.

    """
    words = text.split()
    return Filter(" ".join(words), tuple(_term(word) for word in words))


QUANTITY_FILTERS: dict[str, Callable[[RankView], float | None]] = {
    row.filter_word: row.on_screen for row in messages.QUANTITIES.values()
}
_TRAFFIC = {row.filter_word for row in messages.QUANTITIES.values() if row.unit == BYTES_PER_S}
STATE_FILTERS: dict[str, Test] = {
    "ok": lambda rank: rank.health == "ok",
    "slow": lambda rank: rank.over_median is not None and rank.over_median >= NOTABLE,
    "silent": lambda rank: rank.health == "silent",
    "missing": lambda rank: rank.health == "missing",
    "dead": lambda rank: rank.health == "dead",
    "left": lambda rank: rank.health == "left",
}


def _term(word: str) -> Test:
    if word.startswith("!"):
        if len(word) == 1:
            raise FilterError("!: add what to exclude, as in !dead or !host:n1")
        inner = _term(word[1:])
        return lambda rank: not inner(rank)
    match = _TERM.fullmatch(word)
    if match is None:
        return _ranks(word) if _RANKS.fullmatch(word) else STATE_FILTERS.get(word) or _host(word)
    name, sign, value = match.groups()
    if name in QUANTITY_FILTERS:
        return _quantity(word, name, sign, value)
    if name not in {"rank", "host", "state"}:
        raise FilterError(f"{word}: there is no {name}; try rank host state {' '.join(QUANTITY_FILTERS)}")
    if sign not in ":=":
        raise FilterError(f"{word}: write {name}:…, or the name of a quantity")
    if name == "host" and value:
        return _host(value)
    if name == "state" and value in STATE_FILTERS:
        return STATE_FILTERS[value]
    if name == "rank" and _RANKS.fullmatch(value):
        return _ranks(value)
    usage = {"rank": "rank:13 or rank:0-7,12", "host": "host:NAME", "state": f"state: one of {' '.join(STATE_FILTERS)}"}
    raise FilterError(f"{word}: {usage[name]}")


def _ranks(text: str) -> Test:
    spans = [(int(first), int(last or first)) for first, _, last in (part.partition("-") for part in text.split(","))]
    return lambda rank: any(first <= rank.rank <= last for first, last in spans)


def _host(text: str) -> Test:
    return lambda rank: text.lower() in rank.host.lower()


def _quantity(word: str, name: str, sign: str, value: str) -> Test:
    kilo = numbers.KILO if name in _TRAFFIC else 1000
    suffix = value[-1:] if value[-1:] in _SUFFIXES else ""
    try:
        number = float(value.removesuffix(suffix or "%")) * kilo ** (_SUFFIXES.index(suffix) + 1 if suffix else 0)
    except ValueError:
        raise FilterError(f"{word}: a number must follow {name}{sign}") from None
    get, compare = QUANTITY_FILTERS[name], _COMPARE[sign]

    def test(rank: RankView) -> bool:
        measured = get(rank)
        return measured is not None and compare(measured, number)

    return test
