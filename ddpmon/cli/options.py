"""Options that several commands share, and the numbers they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click


class Within(click.FloatRange):
    """A number within bounds; click's own range lets "nan" through, which is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


def lines(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lines instead of the dashboard: `headless` and `every`."""
    every = click.option(
        "--every",
        type=Within(0.2, 86_400),
        default=5.0,
        metavar="SECONDS",
        show_default=True,
        help="Time between two lines.",
    )
    headless = click.option("--headless", is_flag=True, help="Lines instead of the dashboard (as without a terminal).")
    return headless(every(function))
