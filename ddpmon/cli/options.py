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


def notifications(function: Callable[..., Any]) -> Callable[..., Any]:
    """How the dashboard says it when the run gets worse or ends: `notify`."""
    return click.option(
        "--notify",
        type=click.Choice(("off", "bell", "desktop", "both")),
        default="off",
        envvar="DDPMON_NOTIFY",
        show_default=True,
        show_envvar=True,
        help="When the run needs a look, stalls, fails or ends: ring the terminal's bell, notify the desktop.",
    )(function)


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
