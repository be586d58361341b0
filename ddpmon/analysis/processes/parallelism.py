"""Words about runs with other kinds of parallelism than DDP, and about the measurements that ddpmon makes in such
runs.
"""

from __future__ import annotations

from collections.abc import Collection

from ddpmon.messages import (
    ALONE,
    DATA_PARALLEL,
    DDP,
    DEEPSPEED,
    FSDP,
    FSDP2,
    HYBRID,
    LOCAL_SGD,
    NOT_PARALLEL,
    PARALLEL_JOIN,
    TENSOR_PARALLEL,
)

OPTIMIZERS = "a step ends at the optimizer step"
COLLECTIVES_BY_KIND = {
    FSDP: "FSDP's collectives (all-gather, reduce-scatter)",
    FSDP2: "FSDP2's collectives (all-gather, reduce-scatter)",
    DEEPSPEED: "DeepSpeed's collectives",
    TENSOR_PARALLEL: "DTensor's collectives",
    LOCAL_SGD: "the averaging of weights",
    NOT_PARALLEL: "the collectives that the script calls",
}
"""Collectives in which ranks wait for each other, by kind of parallelism."""


def parallelism_kinds(parallelism: str) -> list[str]:
    """Return the kinds of which a parallelism consists, without their layout. For example: FSDP2, tensor parallel."""
    return [part.removesuffix(HYBRID) for part in parallelism.split(PARALLEL_JOIN)] if parallelism else []


def with_ddp(parallelism: str) -> bool:
    """Return whether DDP synchronises the gradients. A run that does not report its parallelism counts as DDP."""
    return not parallelism or DDP in parallelism_kinds(parallelism)


def meant_to_differ(parallelism: str) -> bool:
    """Return whether ranks train separately on purpose and average their weights now and then."""
    return LOCAL_SGD in parallelism_kinds(parallelism)


def trains_apart(parallelism: str) -> bool:
    """Return whether ranks train separate models: the run has no known parallelism that synchronises weights."""
    return parallelism_kinds(parallelism) == [NOT_PARALLEL]


def short_name(parallelism: str) -> str:
    """Return a short name for the parallelism that the run uses instead of DDP; "" if it uses DDP."""
    if parallelism in {"", DDP}:
        return ""
    return "no DDP" if parallelism in {ALONE, NOT_PARALLEL} else parallelism


def collectives(parallelism: str) -> str:
    """Return words for the collectives in which ranks wait for each other, in a run without DDP's all-reduce."""
    return (
        " and ".join(
            COLLECTIVES_BY_KIND[part] for part in parallelism_kinds(parallelism) if part in COLLECTIVES_BY_KIND
        )
        or "collectives"
    )


def measured_sentence(parallelism: str, unmeasured: Collection[str]) -> str:
    """Return a sentence about the measurements that a run with this parallelism has and lacks; "" if it has all, as
    with DDP.

    Args:
        parallelism: The run's kinds of parallelism; "": unknown.
        unmeasured: Names of the phases and quantities that are not measured.

    """
    kinds = parallelism_kinds(parallelism)
    if not kinds or (kinds == [DDP] and not unmeasured):
        return ""
    if LOCAL_SGD in kinds:
        said = [f"{parallelism}: ranks average their weights only now and then, so weights differ in between"]
    elif kinds[0] == DDP:
        said = [f"{parallelism}: a step ends with DDP's gradients" if len(kinds) > 1 else DDP]
    elif parallelism == ALONE:
        said = [f"one process, no DDP: {OPTIMIZERS}"]
    elif parallelism == NOT_PARALLEL:
        said = [f"several ranks, no DDP: {OPTIMIZERS}"]
    elif parallelism == DATA_PARALLEL:
        said = [f"nn.DataParallel without DDP: one process uses all devices, {OPTIMIZERS}"]
    else:
        said = [f"{parallelism}, no DDP: {OPTIMIZERS}"]
    if "wait" not in unmeasured and (len(kinds) > 1 or kinds[0] in COLLECTIVES_BY_KIND):
        said.append(f"wait and transfer are those of {collectives(parallelism)}")
    if "forward" in unmeasured:
        said.append("ddpmon does not measure forward and counts it as other")
    if "wait" in unmeasured:
        alone = parallelism in {ALONE, DATA_PARALLEL}
        said.append(
            "no rank waits for another" if alone else "on a GPU, ddpmon measures wait and transfer only with DDP"
        )
    return "; ".join(said)
