"""Findings about GPUs that throttle their clocks, that had an error, or that other processes also use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ddpmon import numbers
from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.kinds.memory import nearly_full
from ddpmon.analysis.processes.causes import SLOWER_CLOCK
from ddpmon.analysis.processes.conditions import median_of
from ddpmon.analysis.processes.gpus import OF_PROGRAMS, error_words
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import NO_USER_RANK, DeviceMark, Finding, GpuUser

HARMLESS = frozenset({"power cap"})
"""Reasons for reduced clocks that are no fault. The power cap limits any GPU at full load."""
Users = Mapping[int, Sequence[GpuUser]]
Gpus = Mapping[int, str]
SAME_GPU, CONTEXTS, LEFT_OVER, OF_RUN, OTHERS = (
    "ranks on one GPU", "ranks' memory on other GPUs", "left over", "other processes of the run", "others",
)  # fmt: skip
SET_DEVICE = "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything else that uses CUDA"
SHARED_GPU_ADVICE = {
    SAME_GPU: f"These programs run one after another on the GPU. {SET_DEVICE}, unless you share the GPU on purpose.",
    CONTEXTS: "A rank that uses cuda:0 before its own GPU, or loads a checkpoint without map_location, occupies memory"
    f" on cuda:0 until it exits. {SET_DEVICE}, and torch.load(…, map_location='cpu').",
    LEFT_OVER: "Process {pid} is a rank of another run, whose launcher has ended. If nobody needs the process, end it:"
    " kill {pid}",
    OF_RUN: "A process that the script started also uses CUDA, for example a DataLoader worker whose dataset creates"
    " CUDA tensors. Create CUDA tensors in the rank itself.",
    OTHERS: (
        "ddpmon does not show the work and the memory of that process. Find out who started the process (ps "
        "-fp {pid}), or use another GPU."
    ),
}


@Kind(
    "info",
    "{gpus} of {who} throttle{s}:| {why}|{clock}",
    "All ranks wait for the slowest GPU. Check cooling and power limits (nvidia-smi -q -d"
    " PERFORMANCE,TEMPERATURE,POWER).",
    gone="no GPU throttles any more",
    slows="waiting for throttled GPUs",
    device=DeviceMark("throttled", ["gpu_temperature", "gpu_clock"], 4),
    quantities=("gpu_power",),
)
def gpu_throttled(moment: Moment) -> Iterator[Finding]:
    """GPUs had reduced clocks for most of the last seconds.

    The finding is a warning if the clock of one GPU is clearly lower than the clocks of the others.
    """
    conditions = moment.evidence.conditions
    held = {one.rank: one for one in conditions if one.gpu_throttled}
    if not held:
        return
    usual = median_of(one.gpu_clock_mhz for one in conditions if not one.gpu_throttled)
    clocks = {rank: one.gpu_clock_mhz for rank, one in held.items() if one.gpu_clock_mhz}
    low = [rank for rank, mhz in clocks.items() if usual and SLOWER_CLOCK.is_reached(usual / mhz - 1)]
    reasons = sorted({reason for one in held.values() for reason in one.gpu_throttled})
    if not low and HARMLESS.issuperset(reasons):
        return
    ranks = sorted(low or held)
    slowest = min((clocks[rank] for rank in ranks if rank in clocks), default=None)
    yield moment.finding(
        {
            "reasons": reasons,
            "clock_mhz": slowest,
            "others_clock_mhz": usual,
            "temperature_c": max(held[rank].gpu_temperature_c or 0.0 for rank in ranks) or None,
        },
        ranks,
        severity="warn" if low else "info",
        beside={
            "gpus": "GPUs" if len(ranks) > 1 else "GPU",
            "why": ", ".join(reasons),
            "clock": f", {slowest:,.0f} of {usual:,.0f} MHz" if low else "",
        },
    )


@Kind(
    "warn",
    "the GPU of {who} had a critical error:| {errors}",
    "The kernel log of the host (dmesg) has details. Errors in GPU memory, the bus or NVLink tend to come back, so"
    " train without that GPU until it has been reset or replaced.",
    subject="rank",
    gone="{who} had no further GPU error",
    device=DeviceMark("GPU error", ["gpu"], 5),
)
def gpu_error(moment: Moment) -> Iterator[Finding]:
    """Since a rank started to train, the driver of its GPU has reported a critical error: an Xid or an ECC error.

    Errors of programs do not count. They say nothing about the GPU, and any program that uses it may cause them. The
    run reports the failures of its own ranks.
    """
    for rank, reported in sorted(moment.evidence.gpu_errors.items()):
        if errors := [error for error in reported if error not in OF_PROGRAMS]:
            words = {"errors": ", ".join(map(error_words, errors[-2:]))}
            yield moment.finding({"errors": errors}, [rank], beside=words)


@Kind(
    "info",
    subject="activity",
    remedy="End leftover processes, choose another GPU, or call `torch.cuda.set_device(local_rank)` before other CUDA"
    " calls.",
)
def gpu_shared(moment: Moment) -> Iterator[Finding]:
    """Other processes use a rank's GPU: other programs, leftovers of an earlier run, or other ranks of this run.

    Each of these causes has its own finding. The finding is a hint, unless one of the GPUs is nearly full.
    """
    full, world, gpu_of = nearly_full(moment.evidence.memory), moment.evidence.world_size, moment.evidence.gpus
    for sort, users in _by_sort(moment.evidence.gpu_users, gpu_of).items():
        ranks, gpu = sorted(users), {rank: gpu_of.get(rank, f"of rank {rank}") for rank in users}
        # Ranks on the same GPU report the same users.
        everyone = {(gpu[rank], user.pid): user for rank in ranks for user in users[rank]}.values()
        held: dict[int, int] = {}
        for user in everyone:
            held[user.pid] = held.get(user.pid, 0) + user.used_bytes
        pid = max(held, key=lambda each: held[each])
        first, total = next(user for user in everyone if user.pid == pid), sum(held.values())
        many = "s" if len(set(gpu.values())) > 1 else ""
        gpus = f"rank {ranks[0]}'s GPU" if len(ranks) == 1 else f"the GPU{many} of {named_ranks(ranks, world)}"
        more = ""
        if sort == SAME_GPU:
            # Some of these ranks may not have reported the users of their GPU yet.
            ranks = sorted({*ranks, *(user.rank for user in everyone)})
            text = f"{named_ranks(ranks, world)} use the same GPU as another rank"
        elif sort == CONTEXTS:
            who = sorted({user.rank for user in everyone})
            hold = "holds" if len(who) == 1 else "hold"
            text = f"{named_ranks(who, world)} also {hold} {numbers.size(total)} on {gpus}"
        else:
            of = {LEFT_OVER: " of an ended run", OF_RUN: " of this run"}.get(sort, "")
            text = f"{first.title}{of} holds {numbers.size(held[pid])} on {gpus}"
            more = f"; {len(held) - 1} more hold {numbers.size(total - held[pid])}" if len(held) > 1 else ""
        yield moment.finding(
            {"bytes_by_pid": {str(each): size for each, size in held.items()}},
            ranks,
            severity="warn" if full.keys() & set(ranks) else "info",
            headline="|{text}|{more}",
            advice=SHARED_GPU_ADVICE[sort],
            beside={"text": text, "more": more, "pid": pid},
            subject=sort,
        )


def _by_sort(users: Users, gpus: Gpus) -> dict[str, dict[int, list[GpuUser]]]:
    """Return the other processes on each rank's GPU, grouped by kind: SAME_GPU, CONTEXTS, LEFT_OVER, OF_RUN or OTHERS.

    A rank of this run counts as a user only if the GPUs of both ranks are known.
    """
    sorts: dict[str, dict[int, list[GpuUser]]] = {}
    for rank, those in sorted(users.items()):
        for user in those:
            if user.rank != NO_USER_RANK:
                if rank not in gpus or user.rank not in gpus:
                    continue
                sort = SAME_GPU if gpus[user.rank] == gpus[rank] else CONTEXTS
            else:
                sort = LEFT_OVER if user.left_over else OF_RUN if user.of_run else OTHERS
            sorts.setdefault(sort, {}).setdefault(rank, []).append(user)
    return sorts
