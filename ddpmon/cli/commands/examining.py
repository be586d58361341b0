"""ddpmon doctor: checks what works on this machine and what does not."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ddpmon import config
from ddpmon.analysis.words import format_count
from ddpmon.cli.options import WholeNumber
from ddpmon.cli.streams import output_columns
from ddpmon.export.width import wrapped

if TYPE_CHECKING:
    from ddpmon.doctor import Check

_MARKS = {"ok": "✔", "note": "●", "problem": "✖"}


@click.command()
@click.option(
    "--nproc",
    "ranks",
    type=WholeNumber(1, 1024),
    metavar="N",
    help="Number of ranks that you plan to start on this machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON, for programs.")
def doctor(ranks: int | None, as_json: bool) -> int:
    """Check what works on this machine and what does not, and why.

    ddpmon checks Python, torch, gloo, NCCL and the GPUs. ddpmon also checks CPU cores, shared memory, the limit of open
    files, and the folders for recordings and sockets. Finally, ddpmon checks the network, ssh and this terminal. Below
    each note and each problem, ddpmon prints what to do.

    \b
    Marks:
      ✔   fine
      ●   note: slower, or something that ddpmon cannot show
      ✖   problem: ddpmon cannot start or watch a run

    \b
    Exit codes:
      0   no problem
      1   at least one problem
    """
    from ddpmon.doctor import Level, examine

    checks = []
    for check in itertools.chain(_config(), examine(os.environ, ranks)):
        checks.append(check)
        if not as_json:
            _print(check)
    problems = sum(check.level is Level.PROBLEM for check in checks)
    notes = sum(check.level is Level.NOTE for check in checks)
    if as_json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=1))
    else:
        print(_sum(problems, notes))
    return 1 if problems else 0


def _config() -> Iterator[Check]:
    """Check the config file."""
    from ddpmon.doctor.check import ok, problem
    from ddpmon.tui.config_check import problems

    given, wrong = config.current(), list(problems())
    for each in wrong:
        yield problem("config file", str(each), "correct this value; until then, no dashboard opens")
    if given.path.is_file() and not wrong:
        yield ok("config file", str(given.path))


def _print(check: Check) -> None:
    margin, room = " " * 17, output_columns()
    print("\n".join(wrapped(check.text, room, f"{_MARKS[check.level]} {check.about:<15}", margin)), flush=True)
    if check.way_out:
        print("\n".join(wrapped(check.way_out, room, margin, margin)), flush=True)


def _sum(problems: int, notes: int) -> str:
    parts = [format_count(problems, "problem")] if problems else []
    parts += [format_count(notes, "note")] if notes else []
    return f"\n{', '.join(parts) or 'no problem'}"
