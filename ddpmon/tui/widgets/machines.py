"""Groups ranks by host, and finds the problems of each rank's machine, for the Devices screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.analysis.words import format_count
from ddpmon.messages import GPU_COUNTERS, NO_USER_RANK, QUANTITIES, GpuUser, RankView, Snapshot
from ddpmon.tui import rank_marks
from ddpmon.tui.frame import finite_or_none, short_host
from ddpmon.tui.lines import plain_text
from ddpmon.tui.widgets.columns import HEALTH_WORDS

NOWHERE = "no host yet"
_OF_CLOCKS = ("gpu_temperature", "gpu_clock")
"""Quantities that are highlighted if a GPU throttles its clocks."""


@dataclass(frozen=True)
class Trouble:
    """A problem of a rank's machine. order: its severity, where 0 means no problem."""

    order: int = 0
    glyph: str = " "
    role: str = "text"
    words: str = ""
    quantities: tuple[str, ...] = ()
    """Names of the quantities that show the problem."""


WELL = Trouble()


@dataclass(frozen=True)
class Machine:
    """A host and its ranks, in the order of the list."""

    host: str
    ranks: Sequence[RankView]


def troubles(snapshot: Snapshot) -> dict[int, Trouble]:
    """Return the problem of each rank that has one."""
    blamed: dict[int, Trouble] = {}
    marks = [(finding.device, finding) for finding in snapshot.findings if finding.device and finding.is_lasting]
    for mark, finding in sorted(marks, key=lambda pair: pair[0].order):
        role = {"warn": "warn", "critical": "bad"}.get(finding.severity, "text")
        blamed |= dict.fromkeys(finding.ranks, Trouble(6, "▲", role, plain_text(mark.words), tuple(mark.columns)))
    trouble_of = {}
    for rank in snapshot.ranks:
        order, glyph, role = rank_marks.state_grade(rank)
        if order >= 8:
            trouble_of[rank.rank] = Trouble(order, glyph, role, HEALTH_WORDS.get(rank.health, plain_text(rank.health)))
        elif rank.throttled:
            trouble_of[rank.rank] = Trouble(7, "▲", "warn", plain_text(rank.throttled), _OF_CLOCKS)
        elif rank.rank in blamed:
            trouble_of[rank.rank] = blamed[rank.rank]
    return trouble_of


def named_user(user: GpuUser) -> str:
    """Return the name and memory of another process on a GPU, such as "vllm 4711, 38.0 GiB"."""
    name = f"rank {user.rank}" if user.rank != NO_USER_RANK else f"{plain_text(user.name)} {user.pid}".strip()
    return f"{name}, {numbers.size(user.used_bytes)}"


def others_on_gpus(snapshot: Snapshot) -> str:
    """Describe the processes that share GPUs with ranks, the largest first; "" if there are none."""
    users = [
        (-user.used_bytes, rank.rank, user) for rank in _devices(snapshot.ranks).values() for user in rank.gpu_users
    ]
    named = [f"{named_user(user)} on rank {rank}'s" for _, rank, user in sorted(users, key=lambda one: one[:2])]
    return f"also on GPUs: {'; '.join(named)}" if named else ""


def machines(ranks: Iterable[RankView]) -> list[Machine]:
    """Group ranks by host, in the order of each host's first rank."""
    groups: dict[str, list[RankView]] = {}
    for rank in ranks:
        groups.setdefault(short_host(rank.host) or NOWHERE, []).append(rank)
    return [Machine(host, group) for host, group in groups.items()]


def _counted(names: Iterable[str]) -> str:
    """Return the number of devices of each kind, such as "8 × NVIDIA H100"."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return " + ".join(f"{count:,} × {name}" for name, count in counts.items())


def _devices(ranks: Sequence[RankView]) -> dict[tuple[str, str], RankView]:
    """Return the first rank of each GPU, because ranks may share one."""
    first: dict[tuple[str, str], RankView] = {}
    for rank in ranks:
        if rank.has_gpu_sample or rank.device.startswith("cuda"):
            first.setdefault((rank.host, rank.gpu or rank.device), rank)
    return first


def _cores(ranks: Sequence[RankView]) -> int:
    """Return the number of cores of all hosts: per host the most that one rank may use, as ranks share cores."""
    by_host: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.environment is not None and rank.environment.cores:
            by_host.setdefault(rank.host, []).append(rank.environment.cores)
    return sum(max(cores) for cores in by_host.values())


def facts(ranks: Sequence[RankView], *, hosts: int = 0) -> list[str]:
    """Return texts about the machines' hardware and its use, the most important first."""
    texts = [f"{hosts} hosts"] if hosts > 1 else []
    texts.append(f"{len(ranks):,} rank{'s' * (len(ranks) != 1)}")
    gpus = list(_devices(ranks).values())
    if gpus:
        named = [plain_text(rank.environment.device_name) if rank.environment else "" for rank in gpus]
        texts.append(_counted(name or "GPU" for name in named))
    texts += _gpu_facts(gpus, several=hosts > 0)
    busy = [value for rank in ranks if (value := finite_or_none(QUANTITIES["cpu"].get(rank))) is not None]
    cores = _cores(ranks)
    if busy:
        used = f"{sum(busy) / 100:,.1f}"
        texts.append(f"ranks use {used} of {format_count(cores, 'core')}" if cores else f"ranks use {used} cores")
    resident = [value for rank in ranks if (value := QUANTITIES["rss"].get(rank)) is not None]
    if resident:
        texts.append(f"memory {numbers.size(sum(resident))}")
    return texts


def _gpu_facts(gpus: Sequence[RankView], *, several: bool) -> list[str]:
    texts = []
    loads = [v for rank in gpus if (v := finite_or_none(QUANTITIES["gpu"].get(rank))) is not None]
    watts = [v for rank in gpus if (v := finite_or_none(QUANTITIES["gpu_power"].get(rank))) is not None]
    hot = {v: rank for rank in gpus if (v := finite_or_none(QUANTITIES["gpu_temperature"].get(rank))) is not None}
    if loads:
        texts.append(f"busy {numbers.percent(sum(loads) / len(loads) / 100)}")
    if watts:
        texts.append(f"{sum(watts) / 1e3:,.1f} kW")
    if hot and several:
        texts.append(f"hottest {max(hot):.0f} °C (rank {hot[max(hot)].rank})")
    return texts


def why_no_gpu(snapshot: Snapshot) -> str:
    """Return why GPU counters are missing on some or all ranks; "" if none are missing."""
    reason = plain_text(snapshot.missing.get(GPU_COUNTERS, ""))
    measured = any(rank.has_gpu_sample for rank in snapshot.ranks)
    if reason or measured or not snapshot.ranks:
        return reason
    connected = [rank for rank in snapshot.ranks if rank.health != "missing"]
    if any(rank.device.startswith("cuda") for rank in connected):
        return "no GPU counters yet"
    return "no GPU: the ranks compute on the CPU" if connected else ""


def worst_first(trouble_of: Mapping[int, Trouble], rank: RankView) -> int:
    """Return a sort key that puts ranks with problems first."""
    return -trouble_of.get(rank.rank, WELL).order
