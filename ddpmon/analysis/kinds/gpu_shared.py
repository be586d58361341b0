"""Others use a rank's GPU: other programs, what an earlier run has left, or other ranks of this run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ddpmon.analysis.kinds.gpu_memory import nearly_full
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import GIB, fitting, named_ranks
from ddpmon.messages import NO_RANK, Finding, GpuUser

Users = Mapping[int, Sequence[GpuUser]]
SAME_GPU, CONTEXTS, LEFT_OVER, OF_RUN, OTHERS = (
    "ranks on one GPU", "ranks' memory on other GPUs", "left over", "other processes of the run", "others",
)  # fmt: skip
SET_DEVICE = "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything else that uses CUDA"
ADVICE = {
    SAME_GPU: f"They take turns on it. {SET_DEVICE}, unless it is meant.",
    CONTEXTS: "A rank that uses cuda:0 before its own GPU, or loads a checkpoint without map_location, takes memory"
    f" there that it never gives back. {SET_DEVICE}, and torch.load(…, map_location='cpu').",
    LEFT_OVER: "It is a rank of another run, whose launcher has ended. End it if nobody needs it: kill {pid}",
    OF_RUN: "A process that the script has started uses CUDA too, as a DataLoader worker does whose dataset makes CUDA"
    " tensors. Make them in the rank.",
    OTHERS: "What it computes and the memory that it holds are missing here. Look whose it is (ps -fp {pid}), or take"
    " another GPU.",
}


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield a finding about each sort of others; a hint, unless one of these GPUs is nearly full."""
    full, world = nearly_full(moment.evidence.memory), moment.evidence.world_size
    for sort, users in _by_sort(moment.evidence.gpu_users).items():
        ranks = sorted(users)
        held: dict[int, int] = {}
        for user in (user for those in users.values() for user in those):
            held[user.pid] = held.get(user.pid, 0) + user.used_bytes
        pid = max(held, key=lambda each: held[each])
        first = next(user for those in users.values() for user in those if user.pid == pid)
        more = f"; {len(held) - 1} more hold {(sum(held.values()) - held[pid]) / GIB:.1f} GiB" if len(held) > 1 else ""
        if sort == SAME_GPU:
            text, more = f"{named_ranks(ranks, world)} use the same GPU as another rank", ""
        elif sort == CONTEXTS:
            who = sorted({user.rank for those in users.values() for user in those})
            text, more = f"{named_ranks(who, world)} also {'holds' if len(who) == 1 else 'hold'}", ""
            text += f" {sum(held.values()) / GIB:.1f} GiB on {_gpus(ranks, world)}"
        else:
            of = {LEFT_OVER: " of an ended run", OF_RUN: " of this run"}.get(sort, "")
            text = f"{first.title}{of} holds {held[pid] / GIB:.1f} GiB on {_gpus(ranks, world)}"
        yield KIND.finding(
            "warn" if full.keys() & set(ranks) else "info",
            Words(fitting(text, more), ADVICE[sort].format(pid=pid)),
            ranks,
            evidence={"bytes_by_pid": {str(each): size for each, size in held.items()}},
            subject=sort,
        )


def _gpus(ranks: Sequence[int], world_size: int) -> str:
    return f"rank {ranks[0]}'s GPU" if len(ranks) == 1 else f"the GPUs of {named_ranks(ranks, world_size)}"


def _by_sort(users: Users) -> dict[str, dict[int, list[GpuUser]]]:
    """Return the others on each rank's GPU by the sort that they are."""
    sorts: dict[str, dict[int, list[GpuUser]]] = {}
    for rank, those in sorted(users.items()):
        for user in those:
            if user.rank != NO_RANK:
                is_mutual = any(other.rank == rank for other in users.get(user.rank, ()))
                sort = SAME_GPU if is_mutual else CONTEXTS
            else:
                sort = LEFT_OVER if user.left_over else OF_RUN if user.of_run else OTHERS
            sorts.setdefault(sort, {}).setdefault(rank, []).append(user)
    return sorts


KIND = Kind("gpu_shared", subject="activity", detect=detect)
