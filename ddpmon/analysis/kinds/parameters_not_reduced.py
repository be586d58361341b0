"""An optimizer updates parameters of a DDP model that DDP does not reduce: each rank trains its own.

DDP reduces what requires gradients when the model is wrapped. What was frozen then and is unfrozen later, or is made
later, it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds import replicas_differ
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import WIDTH, counted
from ddpmon.messages import DDP, UNREDUCED, Finding, Model

LEAD = "DDP does not reduce"


def detect(moment: Moment) -> Iterator[Finding]:
    """Return one finding, critical once replicas were seen to differ: a script might reduce them by itself."""
    evidence = moment.evidence
    found = {
        rank: model
        for rank, setup in sorted(evidence.setups.items())
        for model in setup.models
        if model.unreduced_count and model.ranks > 1
    }
    if not found or evidence.parallelism not in {"", DDP}:  # others put parameters of their own in a model's place
        return
    model, different = next(iter(found.values())), evidence.differences.get(UNREDUCED)
    more = model.unreduced_count - len(model.unreduced)
    names = ", ".join(model.unreduced) + (f" and {more:,} more" if more else "")
    words = Words(
        _sentence(model),
        f"{names}: frozen when the model was wrapped, or made later, so that each rank updates its own. Unfreeze and"
        " complete the model before DistributedDataParallel, or wrap it again after unfreezing, on all ranks at once.",
        lead=LEAD,
    )
    differs = different is not None and different.model == model.number
    yield KIND.finding(
        "critical" if differs else "warn",
        words,
        list(found),
        evidence={"not_reduced": model.unreduced_count, "names": model.unreduced},
        beside={"replicas_differ": list(different.ranks) if different is not None and differs else None},
        since_step=different.step if different is not None and differs else None,
    )


def _sentence(model: Model) -> str:
    """Name as many of the parameters as fit."""
    verb = "is" if model.unreduced_count == 1 else "are"
    for many in range(len(model.unreduced), 0, -1):
        others = model.unreduced_count - many
        names = ", ".join(model.unreduced[:many]) + (f" and {others:,} more" if others else "")
        if len(text := f"{LEAD} {names}, which {verb} trained") <= WIDTH:
            return text
    return f"{LEAD} {counted(model.unreduced_count, 'parameter')} that {verb} trained"


KIND = Kind(
    "parameters_not_reduced",
    gone="DDP reduces all parameters that are trained",
    detect=detect,
    outdoes=(replicas_differ.KIND.name,),
)
