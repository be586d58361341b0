"""Which run a command means, seen to: one whose supervisor was killed or stopped is watched over again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpmon.runs import Run


def find(wanted: str | None) -> Run:
    """The run as `runs.find` finds it. What had to be done for it, or could not be done, is a line on stderr."""
    from ddpmon import runs
    from ddpmon.errors import DdpmonError
    from ddpmon.launch.adoption import see_to

    found = runs.find(wanted)
    try:
        return see_to(found, _tell)
    except DdpmonError as error:  # it can be looked at all the same
        _tell(str(error))
        return found


def _tell(text: str) -> None:
    print("ddpmon:", text, file=sys.stderr)
