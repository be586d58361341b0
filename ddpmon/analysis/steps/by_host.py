"""The steps of a world with its hosts side by side instead of its ranks: each as late as its ranks on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.steps.world import ARRAYS, World


def columns_by_host(hosts: Sequence[str]) -> dict[str, list[int]]:
    """Columns of each host's ranks, in the order in which hosts come first. hosts: of each column."""
    columns: dict[str, list[int]] = {}
    for column, host in enumerate(hosts):
        columns.setdefault(host, []).append(column)
    return columns


def by_host(world: World, columns: Sequence[Sequence[int]]) -> World:
    """A world whose columns are hosts. columns: of the ranks of each.

    Values are means of a host's ranks: they stray less than each rank's, and as much as the ranks do together.
    """
    order = np.concatenate([np.asarray(each, np.int64) for each in columns])
    sizes = np.array([len(each) for each in columns])
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    host_of = np.empty(len(order), np.int64)
    host_of[order] = np.repeat(np.arange(len(columns)), sizes)
    in_order = bool((order == np.arange(len(order))).all())

    def mean_of(values: NDArray[Any]) -> NDArray[Any]:
        sums: NDArray[Any] = np.add.reduceat(values if in_order else values[:, order], first, axis=1)
        mean: NDArray[Any] = sums / sizes.reshape(-1, *[1] * (values.ndim - 2))
        return mean

    whose = np.where(world.critical >= 0, host_of[world.critical], -1)
    means = {
        name: mean_of(getattr(world, name))
        for name in ARRAYS
        if name not in {"step", "end_us", "critical", "loss", "has_loss"}
    }
    has_loss = np.zeros((len(world), len(columns)), bool)
    return replace(
        world, ranks=tuple(range(len(columns))), critical=whose, loss=np.full(has_loss.shape, np.nan),
        has_loss=has_loss, **means,
    )  # fmt: skip
