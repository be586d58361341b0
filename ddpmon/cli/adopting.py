"""Finds the run that a command means: one whose supervisor was killed or stopped is adopted, and watched again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpmon.runs import Run


def find(name: str | None) -> Run:
    """The run as `runs.find` finds it, adopted where it is lost."""
    from ddpmon import runs

    return adopted(runs.find(name))


def adopted(run: Run) -> Run:
    """The run after that. What was done for it, or could not be done, is a line on stderr."""
    from ddpmon.errors import DdpmonError
    from ddpmon.launch import adoption

    try:
        return adoption.adopt(run, _print_notice)
    except DdpmonError as error:  # it can be shown all the same
        _print_notice(str(error))
        return run


def _print_notice(text: str) -> None:
    print("ddpmon:", text, file=sys.stderr)
