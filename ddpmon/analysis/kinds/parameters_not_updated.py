"""No optimizer updates parameters of a DDP model: it was made from others, or they were left out.

That an optimizer holds none of a model's parameters is no proof: it may hold copies of them in full precision. That the
weights stay the same is. Where some are left out it may be meant, and is a hint.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import counted, fitting
from ddpmon.messages import DDP, Finding, Model


def detect(moment: Moment) -> Iterator[Finding]:
    """Return one finding: of the first model that no optimizer updates, or of which one updates a part only."""
    evidence = moment.evidence
    if evidence.parallelism not in {"", DDP}:  # others put parameters of their own in a model's place
        return
    of_ranks = [
        (rank, model)
        for rank, setup in sorted(evidence.setups.items())
        for model in setup.models
        if model.idle_count and not (evidence.difference and evidence.difference.model == model.number)
    ]
    unchanged = evidence.unchanged
    frozen = [(rank, one) for rank, one in of_ranks if not one.stepped and unchanged and unchanged.model == one.number]
    if frozen and unchanged:
        model = frozen[0][1]
        lead = "the optimizer holds none of the DDP model's parameters:"
        advice = (
            f"Its weights are the same at step {unchanged.last:,} as at step {unchanged.first:,}. Make the optimizer"
            f" from model.parameters() once the model is complete: parts that are replaced later, as"
            f" {_names(model)}, are not in it."
        )
        words = Words(fitting(f"{lead} it learns nothing"), advice, lead=lead)
        yield KIND.finding("critical", words, [rank for rank, _ in frozen], evidence=_facts(model))
        return
    partly = [(rank, one) for rank, one in of_ranks if one.stepped]
    if partly:
        model = partly[0][1]
        verb = "is" if model.idle_count == 1 else "are"
        lead = f"{counted(model.idle_count, 'parameter')} of the DDP model {verb} in no optimizer"
        words = Words(
            fitting(lead, f": {_names(model)}"),
            "Their gradients are computed and reduced in each step, and never used. Give them to the optimizer, or set"
            " requires_grad=False before the model is wrapped where they are to stay as they are.",
            lead=lead,
        )
        yield KIND.finding("info", words, [rank for rank, _ in partly], evidence=_facts(model))


def _names(model: Model) -> str:
    more = model.idle_count - len(model.idle)
    return ", ".join(model.idle) + (f" and {more:,} more" if more else "")


def _facts(model: Model) -> dict[str, object]:
    return {"parameters": model.parameters, "not_updated": model.idle_count, "names": model.idle}


KIND = Kind("parameters_not_updated", gone="an optimizer updates all parameters of the DDP model", detect=detect)
