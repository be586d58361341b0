"""Finds the last output of the rank that failed first in a failed run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ddpmon import runs
from ddpmon.analysis.processes.launcher import read_table
from ddpmon.plain import plain
from ddpmon.redaction import redact_text
from ddpmon.runs.rotated_logs import tail
from ddpmon.store.endings import last_written

_TAIL_BYTES = 64 * 1024
_LINES = 12


@dataclass(frozen=True)
class LastWords:
    """The end of the output of one process of a failed run."""

    writer: str
    """Name of the process: "rank 2", or the name of the launcher."""
    log: Path
    lines: list[str]


def last_words(run: runs.Run, rank: int | None = None) -> LastWords:
    """Return the last output of the rank that failed first. If no rank is known to have failed, return that of the
    command.

    Args:
        run: The run.
        rank: The rank that failed first according to the recording; None for the rank that torchrun names.

    """
    logs = runs.run_dir(run.id) / "logs"
    launcher = logs / "launcher.log"
    for row in read_table(tail(launcher, _TAIL_BYTES)):
        is_failed_rank = row.root if rank is None else row.rank == rank
        if is_failed_rank and (log := _stderr_of(logs / "ranks", row.local_rank)):
            return LastWords(f"rank {row.rank}", log, _last(log))
    log = last_written(logs, rank)
    writer = Path(run.argv[0]).name if log == launcher else f"rank {log.parent.name}"
    return LastWords(writer, log, _last(log))


def _stderr_of(ranks: Path, local_rank: int) -> Path | None:
    """Return the path of a rank's stderr.log in its last attempt, ranks/<rendezvous>/attempt_<n>/<local rank>/."""
    stderr_logs = list(ranks.glob(f"*/attempt_*/{local_rank}/stderr.log"))
    return max(stderr_logs, key=lambda path: int(path.parts[-3].removeprefix("attempt_")), default=None)


def _last(path: Path) -> list[str]:
    """Return the last nonempty lines of a file, without secrets."""
    written = (plain(line).rstrip() for line in re.split(r"[\r\n]+", tail(path, _TAIL_BYTES)))
    return [redact_text(line) for line in [line for line in written if line][-_LINES:]]
