"""Whether the ranks still train the same model: digests that differ, gradients that were never synchronised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ddpmon.analysis.verdict import rank_list
from ddpmon.messages import Digest, Finding

KEPT = 64
"""Moments of a model that are remembered."""
AGAIN_STEPS = 100
"""A rank that trained so long without another such step has come right."""
FEWEST_STEPS = 3

_Model: TypeAlias = tuple[str, int]
"""Process group and number of a model: ranks that share both hold replicas."""
_Moment: TypeAlias = tuple[int, int, int]
"""Sequence number of the group's last collective, steps finished, and optimizer steps on gradients that were not
reduced: ranks that share all three stand at the same point."""


@dataclass(frozen=True)
class Difference:
    """Replicas of a model that are not the same."""

    model: int
    step: int
    """First step at which they were seen to differ."""
    same_at: int | None
    """Last step before it at which they were seen to be the same."""
    ranks: tuple[int, ...]
    """Those that differ from the majority; all that were compared where there is none."""
    compared: int
    """How many ranks were compared."""


@dataclass(frozen=True)
class Sameness:
    """Replicas that were the same when they were last compared."""

    step: int
    """Steps finished by then."""
    updates: int
    """Optimizer steps on gradients that DDP never reduced by then, as far as is known; 0: none is known of."""


@dataclass
class Replicas:
    """Compares digests of ranks as they come in."""

    _told: dict[_Model, dict[_Moment, dict[int, int]]] = field(default_factory=dict)

    def add(self, rank: int, digests: Sequence[Digest]) -> None:
        """Take what a rank told."""
        for digest in digests:
            moments = self._told.setdefault((digest.group, digest.model), {})
            moments.setdefault((digest.sequence, digest.step, digest.updates), {})[rank] = digest.value
            if len(moments) > KEPT:
                del moments[min(moments)]

    def difference(self) -> Difference | None:
        """Of the model whose replicas were seen to differ first, if they still did when they were last compared."""
        found = [one for key, moments in self._told.items() if (one := _difference(key[1], moments))]
        return min(found, key=lambda one: one.step, default=None)

    def same(self) -> Sameness | None:
        """None while nothing was compared, or replicas of some model are not the same."""
        compared = [moment for moments in self._told.values() for moment in moments if len(moments[moment]) > 1]
        if not compared or self.difference() is not None:
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
    ranks = tuple(sorted(rank for rank, told in values.items() if not majority or told != value))
    return Difference(model, first, same[-1] if same else None, ranks, len(values))


def replicas_differ(found: Difference, world_size: int) -> Finding:
    """The finding for replicas that are not the same."""
    ranks = list(found.ranks)
    which = f" of model {found.model}" if found.model else ""
    if len(ranks) == found.compared:
        text = f"the weights{which} of ranks {rank_list(ranks, world_size)} differ since step {found.step:,}"
    else:
        who = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {rank_list(ranks, world_size)} have"
        text = f"{who} other weights{which} than the rest since step {found.step:,}"
    return Finding(
        "replicas_differ",
        "critical",
        text,
        ranks,
        since_step=found.step,
        evidence={"model": found.model, "same_at_step": found.same_at, "compared": found.compared},
        advice=(
            "DDP keeps replicas bit-identical. Look for what changes weights on some ranks alone: an optimizer stepped"
            " under a condition, a checkpoint loaded by one rank, clipping or averaging done outside of DDP."
            " If ranks average their weights on purpose only now and then (local SGD), this is meant."
        ),
    )


@dataclass(frozen=True)
class Unsynchronised:
    """Optimizer steps of a rank on gradients that DDP never reduced."""

    rank: int
    count: int
    last_at: int
    """Steps it had finished when the latest of them was told of."""
    steps: int
    """Steps finished so far."""


def gradients_not_synchronised(
    told: Sequence[Unsynchronised], world_size: int, difference: Difference | None = None, same: Sameness | None = None
) -> list[Finding]:
    """One finding for all ranks whose count still grows; none if there are none, or if it did their replicas no harm.

    The count is no proof: a script may average gradients by itself, or train a further model beside the one in DDP.
    That replicas differ is, so the finding is critical with it alone.
    """
    grows = [one for one in told if one.count >= FEWEST_STEPS and one.steps - one.last_at < AGAIN_STEPS]
    if not grows:
        return []
    ranks = sorted(one.rank for one in grows)
    most = max(one.count for one in grows)
    who = "every rank" if len(ranks) == world_size > 1 else f"rank {rank_list(ranks, world_size)}"
    text = f"{who} updated weights {most:,} times with gradients DDP never reduced"
    counts = {"optimizer_steps": {str(one.rank): one.count for one in grows}}
    if difference is not None and set(ranks) & set(difference.ranks):
        return [
            Finding(
                "gradients_not_synchronised",
                "critical",
                f"{text}; replicas differ",
                ranks,
                since_step=difference.step,
                evidence=counts
                | {
                    "replicas_differ": list(difference.ranks),
                    "model": difference.model,
                    "same_at_step": difference.same_at,
                    "compared": difference.compared,
                },
                advice=(
                    "Call the DDP model itself in training (not model.module), and let the last backward before each"
                    " optimizer step run outside of no_sync; without that, every rank trains a model of its own."
                ),
            )
        ]
    if same is not None and (same.updates or same.step >= max(one.last_at for one in grows)):
        return []
    return [
        Finding(
            "gradients_not_synchronised",
            "info",
            text,
            ranks,
            evidence=counts | {"same_at_step": same.step if same else None},
            advice=(
                "Nothing shows yet that replicas differ. If another model than the one in DDP is trained, or the script"
                " averages gradients by itself, this is meant; else call the DDP model itself in training."
            ),
        )
    ]
