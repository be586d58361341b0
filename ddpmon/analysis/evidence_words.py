"""The evidence of a finding in words: each value with its unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ddpmon import numbers
from ddpmon.analysis import words
from ddpmon.plain import plain

_MAX_LISTED = 8
"""Maximum number of values of a list that are shown."""
_UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("bus_bandwidth_gb_s", lambda value: f"{numbers.ms(value)} GB/s"),
    ("bytes_per_s", lambda value: f"{numbers.size(value)}/s"),
    ("_bytes", numbers.size),
    ("_mhz", lambda value: f"{value:,.0f} MHz"),
    ("_ms", lambda value: f"{numbers.ms(value)} ms"),
    ("_s", words.duration),
    ("ends_at", numbers.clock),
    ("_c", lambda value: f"{value:.0f} °C"),
    ("share", numbers.percent),
    ("gain_together", lambda value: f"{value:.2f}x"),
    ("gain", lambda value: f"{value:.2f}x"),
    ("seconds", words.duration),
)
"""Formats of numbers by the suffix of their names; the first match applies."""
_UNIT_ENDS = ("_bytes_per_s", "_per_s", "_bytes", "_mhz", "_ms", "_gb_s", "_s", "_c")
"""Suffixes of names that are left out, because the number is shown with its unit."""


_RANK_LISTS = frozenset({"waiting", "gone", "silent", "unheard"})
"""Names of lists of ranks."""
_NAMES = {
    "waiting": "waiting:",
    "gone": "gone:",
    "silent": "silent:",
    "unheard": "not heard:",
    "own_ms": "own time",
    "over_median_ms": "excess",
    "phase_excess_ms": "excess in the phase",
    "step_ms": "mean step",
    "peers_wait_ms": "wait of the peers",
    "critical_share": "critical",
    "starved_share": "starved",
    "since_interval": "began in steps",
    "hidden_since": "hidden by noise since step",
    "increase_share": "increase",
    "with_ranks": "slow together with ranks",
    "gain_together": "gain with these",
    "alone_gain": "gain alone",
    "load_balance_moving": "moving load balance",
    "line_ms": "time in the line",
    "line_interval_ms": "95% interval of that",
    "line_samples": "stack samples",
    "line_sample_share": "of these in the line",
    "peer_sample_share": "of a peer's in the line",
    "named": "part of the step",
    "named_ms": "time there",
    "peers_named_ms": "time of the peers there",
    "by_rank": "of each rank",
    "idle_s": "no step for",
    "sequence": "number of the collective",
    "ends_at": "the timeout ends the run at",
    "compared": "ranks compared",
    "same_at_step": "equal until step",
    "not_reduced": "parameters that are not reduced",
    "not_updated": "parameters that are not updated",
    "transfer_over_ms": "transfer above that of the peers",
    "peers_transfer_ms": "transfer of the peers",
    "forward_backward_ms": "forward and backward",
    "fixed_ms": "fixed part of a step",
    "of": "kind of pause",
}
"""Names for people, if the name in the report's JSON is not clear. Other names are shown with spaces for
underscores."""


def evidence_words(evidence: Mapping[str, object]) -> list[str]:
    """Return "name value" for each piece of evidence that has a value."""
    pairs = ((_name(name), _value(name, value)) for name, value in evidence.items())
    return [f"{name} {value}" for name, value in pairs if value]


def _name(name: str) -> str:
    end = next((end for end in _UNIT_ENDS if name.endswith(end)), "")
    return _NAMES.get(name) or plain(name.removesuffix(end).replace("_", " "))


def _value(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        written = next((write for end, write in _UNITS if name.endswith(end)), None)
        if written is not None:
            return written(float(value))
        return numbers.count(value) if isinstance(value, int) else numbers.loss(value)
    if isinstance(value, Mapping):
        return _several([f"{_name(str(key))}: {_value(name, each)}" for key, each in value.items() if _short(each)])
    if isinstance(value, Sequence) and not isinstance(value, str):
        if name in _RANK_LISTS and value:
            return words.named_ranks(value, 0)
        return _several([_value(name, each) for each in value if _short(each)])
    return plain(str(value))


def _short(value: object) -> bool:
    """Return whether a value is short enough for a list on one line. Lists of text, such as stack frames, are not."""
    return not isinstance(value, Sequence) or isinstance(value, str) or all(isinstance(each, int) for each in value)


def _several(texts: list[str]) -> str:
    more = len(texts) - _MAX_LISTED
    return ", ".join(texts[:_MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")
