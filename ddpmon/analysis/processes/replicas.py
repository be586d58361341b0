"""Compare digests of weights and inputs that ranks took at the same point of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ddpmon.messages import FEW_WEIGHTS, INPUTS, UNREDUCED, WEIGHTS, Digest

MAX_COMPARED_MOMENTS = 64
"""Number of latest moments (see `_Moment`) that are stored for each model."""

_Model: TypeAlias = tuple[str, int, int]
"""(process group of a model, number of the model, index into DIGESTS). All ranks with a replica use the same values."""
_Moment: TypeAlias = tuple[int, int, int]
"""(sequence number of the group's last collective, number of finished steps, number of optimizer steps on gradients
that were not reduced). Ranks with the same three numbers are at the same point of training."""


@dataclass(frozen=True)
class Difference:
    """Replicas of a model that differ."""

    model: int
    step: int
    """First step at which the replicas were found to differ."""
    same_at: int | None
    """Last step before `step` at which the replicas were found to be equal; None: they never were equal."""
    ranks: tuple[int, ...]
    """Ranks that differ from the majority; all compared ranks if there is no majority."""
    compared: int
    """Number of ranks that were compared."""


@dataclass(frozen=True)
class Sameness:
    """Replicas that were equal when they were last compared."""

    step: int
    """Number of finished steps at the last comparison."""
    updates: int
    """Number of optimizer steps on gradients that DDP never reduced, noticed before the last comparison."""


@dataclass(frozen=True)
class Unchanged:
    """A model whose weights were the same at two moments, on every rank."""

    model: int
    first: int
    """Number of finished steps at the first of the two moments."""
    last: int


@dataclass(frozen=True)
class Inputs:
    """A comparison of the inputs of the models of different ranks at the same moments."""

    compared: int = 0
    """Number of moments at which inputs were compared."""
    equal: int = 0
    """Number of moments at which all ranks had the same inputs."""
    distinct: int = 0
    """Number of different inputs that a rank had at these moments."""


@dataclass
class Replicas:
    """The digests of models and inputs that ranks sent, and their comparison."""

    _digests: dict[_Model, dict[_Moment, dict[int, int]]] = field(default_factory=dict)
    _differences: dict[tuple[int, ...], Difference | None] = field(default_factory=dict)
    """Results of comparisons since the last digest arrived. They are cached, because thousands of ranks have many
    digests."""
    _inputs: Inputs | None = None

    def add(self, rank: int, digests: Sequence[Digest]) -> None:
        """Add the digests of a rank."""
        if digests:
            self._differences.clear()
            self._inputs = None
        for digest in digests:
            moments = self._digests.setdefault((digest.group, digest.model, digest.of), {})
            moments.setdefault((digest.sequence, digest.step, digest.updates), {})[rank] = digest.value
            if len(moments) > MAX_COMPARED_MOMENTS:
                del moments[min(moments)]

    def difference(self, *of: int) -> Difference | None:
        """Return the earliest difference between replicas that still differ; None if all replicas are equal.

        Args:
            of: Indices into DIGESTS of the digests to compare; empty: weights.

        """
        chosen = of or (WEIGHTS, FEW_WEIGHTS)
        if chosen in self._differences:
            return self._differences[chosen]
        differences = [
            one
            for key, moments in self._digests.items()
            if key[2] in chosen and (one := self._difference(key, moments))
        ]
        first = self._differences[chosen] = min(differences, key=lambda one: one.step, default=None)
        return first

    def _difference(self, key: _Model, moments: Mapping[_Moment, Mapping[int, int]]) -> Difference | None:
        group, model, of = key
        one = _difference(model, moments)
        if one is None or of != FEW_WEIGHTS:
            return one
        whole = self._digests.get((group, model, WEIGHTS), {})  # If all weights are equal, a part of them is equal too.
        same = [moment[1] for moment, values in whole.items() if len(values) > 1 and len(set(values.values())) == 1]
        same_at = max((step for step in (*same, one.same_at or 0) if step < one.step), default=0)
        return replace(one, same_at=same_at or None)

    def unchanged(self) -> Unchanged | None:
        """Return a model whose weights are still those of its first digest, although synchronised backward calls
        followed.
        """
        for (_, model, of), moments in self._digests.items():
            if of != WEIGHTS:
                continue
            first, *later = sorted(moments, key=lambda moment: (moment[1], moment[0]))
            # The digests of some ranks may still be on their way.
            last = next((one for one in reversed(later) if moments[one].keys() == moments[first].keys()), first)
            if first[1] < last[1] and moments[first] == moments[last]:
                return Unchanged(model, first[1], last[1])
        return None

    def input_comparison(self) -> Inputs:
        """Return a comparison of the inputs that models got in forward calls."""
        if self._inputs is not None:
            return self._inputs
        taken = [
            list(values.values())
            for key, moments in self._digests.items()
            if key[2] == INPUTS
            for values in moments.values()
            if len(values) > 1
        ]
        self._inputs = Inputs(
            len(taken), sum(len(set(values)) == 1 for values in taken), len({values[0] for values in taken})
        )
        return self._inputs

    def last_comparison(self) -> Sameness | None:
        """Return the last comparison if it found all replicas equal; None if some differ, or none were compared."""
        compared = [
            moment
            for (*_, of), moments in self._digests.items()
            if of in {WEIGHTS, FEW_WEIGHTS, UNREDUCED}
            for moment in moments
            if len(moments[moment]) > 1
        ]
        if not compared or self.difference() is not None or self.difference(UNREDUCED) is not None:
            return None
        return Sameness(max(step for _, step, _ in compared), max(updates for *_, updates in compared))


def _difference(model: int, moments: Mapping[_Moment, Mapping[int, int]]) -> Difference | None:
    compared = [(moment[1], moments[moment]) for moment in sorted(moments) if len(moments[moment]) > 1]
    same = [step for step, values in compared if len(set(values.values())) == 1]
    if not compared or compared[-1][0] in same:
        return None
    first = next(step for step, _ in compared if not same or step > same[-1])
    values = compared[-1][1]
    (value, most), *others = Counter(values.values()).most_common()
    majority = most > max(count for _, count in others)
    ranks = tuple(sorted(rank for rank, digest in values.items() if not majority or digest != value))
    return Difference(model, first, same[-1] if same else None, ranks, len(values))
