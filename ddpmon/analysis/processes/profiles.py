"""Compares the operators of profiled ranks, and gives the reasons why a rank has no profile."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon.messages import OWN_PHASES, WAITS_FOR_RANKS, OperatorRow, Profile, ProfileOutcome

MAX_ROWS = 200
"""Maximum number of operators in a comparison. Operators that differ least are left out."""
WAITING_OPERATORS = (
    WAITS_FOR_RANKS,
    *("c10d::", "gloo:", "nccl:", "mpi:", "ucc:", "ncclDevKernel", "ncclKernel"),
    *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
)
"""Prefixes of the names of operators that wait for other ranks or for the GPU."""


def side_by_side(profiles: Sequence[Profile]) -> list[OperatorRow]:
    """Return the operators and kernels of all profiles, per step: the largest difference first, and waits last."""
    values: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for column, profile in enumerate(profiles):
        for one in profile.operators:
            row = values.setdefault((one.name, one.phase), [(0.0, 0.0, 0.0)] * len(profiles))
            steps = profile.steps
            row[column] = one.self_us / steps / 1e3, one.device_us / steps / 1e3, one.calls / steps
    rows = [_row(name, phase, row) for (name, phase), row in values.items()]
    rows.sort(key=lambda row: (row.waits, -row.difference_ms if len(profiles) > 1 else -row.spent_ms[0]))
    return rows[:MAX_ROWS]


def _row(name: str, phase: int, values: Sequence[tuple[float, float, float]]) -> OperatorRow:
    cpu, device, calls = ([round(one[place], 4) for one in values] for place in range(3))
    return OperatorRow(name, OWN_PHASES[phase], cpu, device, calls, name.startswith(WAITING_OPERATORS))


def why_not_profiled(profile: Profile, seconds: float) -> str:
    """Return why a rank answered without a profile; "" if it has one.

    Args:
        profile: The rank's answer.
        seconds: Time limit in seconds for the rank to finish a step.

    """
    rank = f"rank {profile.rank}"
    if profile.outcome == ProfileOutcome.OWN_PROFILER:
        return f"{rank}: the script uses torch.profiler itself; ddpmon left that alone and profiled nothing"
    if profile.outcome == ProfileOutcome.NO_STEP:
        return (
            f"{rank} finished no optimizer step in {seconds:.0f} s, so nothing was profiled; try again once it trains"
        )
    if profile.outcome == ProfileOutcome.COMPILED:
        return f"{rank}: the script uses torch.compile, so ddpmon cannot count its operations; use ddpmon.flops instead"
    if profile.outcome == ProfileOutcome.FAILED:
        return f"{rank}: torch's profiler failed: {profile.error}"
    return ""
