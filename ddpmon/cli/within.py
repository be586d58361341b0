"""Numbers that the command line takes."""

from __future__ import annotations

import math
from typing import Any

import click


class Within(click.FloatRange):
    """A number within bounds; click's own range lets "nan" through, which is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number
