"""The steps of a world with its hosts side by side instead of its ranks: each as late as its ranks on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.steps.world import ARRAYS, World

MEANS = ("length_ms", "phases_ms", "own_ms")
"""Of ranks, what a host has a mean of: what lateness is looked for in."""


def columns_by_host(hosts: Sequence[str]) -> dict[str, list[int]]:
    """Columns of each host's ranks, in the order in which hosts come first. hosts: of each column."""
    columns: dict[str, list[int]] = {}
    for column, host in enumerate(hosts):
        columns.setdefault(host, []).append(column)
    return columns


def by_host(world: World, columns: Sequence[Sequence[int]]) -> World:
    """A world whose columns are hosts, with their own times; nobody waits in it. columns: of the ranks of each.

    Of a host's ranks the mean, which strays less than each does, and by as much as they stray together.
    """
    order = np.concatenate([np.asarray(each, np.int64) for each in columns])
    sizes = np.array([len(each) for each in columns])
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    in_order = bool((order == np.arange(len(order))).all())

    def mean_of(values: NDArray[Any]) -> NDArray[Any]:
        sums: NDArray[Any] = np.add.reduceat(values if in_order else values[:, order], first, axis=1)
        sums /= sizes.reshape(-1, *[1] * (values.ndim - 2))
        return sums

    shape = len(world), len(columns)
    rest = {
        name: np.broadcast_to(np.zeros(1, getattr(world, name).dtype), shape)
        for name in ARRAYS
        if name not in {*MEANS, "step", "end_us", "critical"}
    }
    means = {name: mean_of(getattr(world, name)) for name in MEANS}
    nobody = np.full(len(world), -1, np.int64)
    return replace(world, ranks=tuple(range(len(columns))), critical=nobody, **rest, **means)
