"""Notes in a run's log, for jobs that ddpmon did not start: the place of their output, and stacks stuck in C code.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ddpmon import proc, runs
from ddpmon.attach.stacks import Frame
from ddpmon.runs.run import Attached

_KINDS = (
    ("/dev/pts/", "the terminal {}"),
    ("/dev/tty", "the terminal {}"),
    ("/", "{}"),
    ("pipe:", "a pipe of the process that started the job"),
)


def note(run_id: str, ranks: Sequence[Attached]) -> None:
    """Append a line to launcher.log for each file or pipe that ranks print to. Raises OSError."""
    places = _places(ranks).items()
    rows = ((place, names, "prints" if len(names) == 1 else "print") for place, names in places)
    _append(
        run_id, (f"ddpmon did not start this job: {', '.join(names)} {verb} to {place}" for place, names, verb in rows)
    )


def stack(run_id: str, name: str, frames: Sequence[Frame]) -> None:
    """Append the stack of a rank that stays in C code to the run's log. Raises OSError."""
    _append(run_id, [f"{name} has not loaded the probe yet; its stack:", *(f"    {frame}" for frame in frames)])


def _append(run_id: str, lines: Iterable[str]) -> None:
    path = runs.run_dir(run_id) / "logs" / "launcher.log"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="utf-8") as log:
        log.writelines(f"INFO {line}\n" for line in lines)  # The lines do not report an error of the job.


def _places(ranks: Sequence[Attached]) -> dict[str, list[str]]:
    """Return {file or pipe: names of the ranks that print to it}."""
    places: dict[str, list[str]] = {}
    for each in ranks:
        target = proc.descriptor_link(1, each.process.pid)
        place = next(
            (text.format(target) for begin, text in _KINDS if target.startswith(begin)),
            "a place that ddpmon cannot see",
        )
        places.setdefault(place, []).append(each.name)
    return places
