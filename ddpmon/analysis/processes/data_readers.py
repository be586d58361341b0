"""The reason for slow data loading, from the states of DataLoader workers, or of a rank that loads data itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpmon import numbers
from ddpmon.analysis.statistics.excess import EXPLAINS, MOSTLY
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import DataReader, StackSamples

FEWEST_LOOKS = 8
"""Minimum number of samples of processes that load data. Fewer samples may all be from one unusual batch."""
STARVED = Threshold(
    0.25,
    of="share of the time in which processes that load data are ready to run but get no core",
    why="A judgement call: with one more core for every four such processes, none would wait.",
)
NETWORK = ("nfs", "cifs", "smb", "lustre", "ceph", "9p", "afs", "beegfs", "gpfs", "glusterfs", "wekafs")
"""Beginnings of the type names of network file systems."""
NETWORK_FUSE = ("sshfs", "s3fs", "gcsfuse", "juicefs", "rclone", "blobfuse", "goofys", "mountpoint-s3", *NETWORK)


def loading_samples(samples: Sequence[StackSamples], ranks: Sequence[int], since: int) -> StackSamples | None:
    """Return samples that show why the data of one of these ranks takes long; None if there are none.

    Args:
        samples: The latest stack samples of each rank that was sampled.
        ranks: The ranks whose data is slow.
        since: The earliest step from which samples count.

    """
    looked = (one for one in samples if sum(reader.looks for reader in one.readers) >= FEWEST_LOOKS)
    return next((one for one in looked if one.rank in ranks and one.first_step >= since), None)


def loading_facts(samples: StackSamples) -> dict[str, Any]:
    """Return the facts of a report about the processes that load data."""
    slow = slow_worker(samples)
    return {
        "loaders_computing_share": _computing(samples),
        "loaders_storage_share": _share(samples, "blocked"),
        # The waits of a rank that loads data itself are already in the rank's `starved_share`.
        "loaders_starved_share": _starved(samples) if _by_workers(samples) else None,
        "loaders_read_bytes_per_s": sum(one.read_bytes_per_s for one in samples.readers),
        "loaders_mount": samples.mount or None,
        "loaders_file_system": samples.file_system or None,
        "slow_worker_pid": slow.pid if slow else None,
    }


def loading_words(samples: StackSamples) -> str:
    """Return words on whether the loading processes compute or wait, for what, and whether one worker is slow."""
    by_workers = _by_workers(samples)
    who = f"The DataLoader workers of rank {samples.rank}" if by_workers else f"Rank {samples.rank}"
    verb = "" if by_workers else "s"
    storage, runnable, starved = _share(samples, "blocked"), _share(samples, "running"), _starved(samples)
    computing = _computing(samples) or 0.0
    when = "of the time for which it waits for them" if by_workers else "of the time for which it loads data"
    if storage >= EXPLAINS.enter:
        said = f"{who} wait{verb} for storage {storage:.0%} {when}{_where(samples)}."
    elif computing >= EXPLAINS.enter and by_workers and starved >= STARVED.enter:
        said = f"{who} are starved of a core {starved:.0%} of the time: use fewer workers, or give them more cores."
    elif computing >= EXPLAINS.enter:
        said = f"{who} compute{verb} {computing:.0%} {when}."
    elif 1 - storage - runnable >= EXPLAINS.enter:
        said = (
            f"{who} neither compute{verb} nor wait{verb} for storage {1 - storage - runnable:.0%} {when}: a network, a"
            " lock, another process or a sleep holds the data up."
        )
    else:
        said = ""
    return f"{said} {_slow_worker_words(samples)}".strip()


def _by_workers(samples: StackSamples) -> bool:
    return any(reader.pid != samples.pid for reader in samples.readers)


def _where(samples: StackSamples) -> str:
    rate = sum(one.read_bytes_per_s for one in samples.readers)
    speed = f", read at {numbers.size(rate)}/s" if rate >= 1e5 else ""
    if not samples.file_system:
        return speed
    kind = samples.file_system
    network = kind.startswith(NETWORK) or kind.removeprefix("fuse.").startswith(NETWORK_FUSE)
    return f": {samples.mount} ({kind}{', a network file system' if network else ''}){speed}"


def _share(samples: StackSamples, state: str) -> float:
    looks = sum(one.looks for one in samples.readers)
    return float(sum(getattr(one, state) for one in samples.readers)) / max(1, looks)


def _computing(samples: StackSamples) -> float | None:
    """Return the share of the time in which the loading processes computed; None if waits for a core may explain it.

    A process that waits for a core looks as if it computed. All waits of a rank that loads its own data may fall into
    the time for which it loads data, so they are subtracted from it.
    """
    runnable = _share(samples, "running")
    if _by_workers(samples) or not runnable:
        return runnable
    waits = _starved(samples) * samples.count / max(1, sum(one.looks for one in samples.readers))
    return runnable - waits if waits < runnable else None


def _starved(samples: StackSamples) -> float:
    """Return the share of the time in which the loading processes were ready to run but got no core."""
    awaited = [one for one in samples.readers if one.looks]
    return sum(one.starved_share * one.looks for one in awaited) / max(1, sum(one.looks for one in awaited))


def slow_worker(samples: StackSamples) -> DataReader | None:
    """Return the worker that the rank waits for while the other workers are mostly idle; None if there is none."""
    if len(samples.readers) < 2:
        return None
    most = max(samples.readers, key=lambda one: one.looks)
    share = most.looks / sum(one.looks for one in samples.readers)
    others = _idle(samples, most)
    return most if others is not None and MOSTLY.is_reached(share) and others >= EXPLAINS.enter else None


def _idle(samples: StackSamples, slow: DataReader) -> float | None:
    """Return the share of the time in which the other workers were idle; None if they were checked too seldom."""
    others = [one for one in samples.readers if one.pid != slow.pid]
    checks = sum(one.checks for one in others)
    return sum(one.idle for one in others) / checks if checks >= FEWEST_LOOKS else None


def _slow_worker_words(samples: StackSamples) -> str:
    slow = slow_worker(samples)
    if slow is None:
        return ""
    number, share = samples.readers.index(slow), slow.looks / sum(one.looks for one in samples.readers)
    return (
        f"Only worker {number} (process {slow.pid}) is slow: {share:.0%} of the waits are for it, and the others have"
        f" nothing to do {_idle(samples, slow) or 0:.0%} of the time."
    )
