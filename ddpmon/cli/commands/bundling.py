"""ddpmon bundle: packs a run into one file that users attach to an issue."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpmon import numbers, runs
from ddpmon.cli.options import drafted, output_option, run_argument

if TYPE_CHECKING:
    from ddpmon.export.bundle import Part


@click.command()
@run_argument("run", required=False)
@output_option("Name of the file; the default is ddpmon-ID.tar.gz in the current folder.")
@click.option("--whole", is_flag=True, help="Include the recording even if it is larger than 100 MB.")
def bundle(run: str | None, output: Path | None, whole: bool) -> None:
    """Pack a run into one file to attach to an issue, without secrets.

    The file has the report, the checks of ddpmon doctor, the recording up to 100 MB and the end of each log. ddpmon
    finds passwords, tokens and keys by their names and formats, and hides them. It also hides the secret values of this
    run's arguments and variables wherever they occur. Names of machines, folders and arguments remain, and ddpmon
    cannot know every secret that a script prints: look at the file before you share it.

    RUN is a run's name or the beginning of its id; the default is the latest run.
    """
    from ddpmon.export.bundle import write_bundle

    target = runs.find(run)
    file = output or Path(f"ddpmon-{target.id}.tar.gz")
    with drafted(file) as draft:
        parts = write_bundle(target, draft or file, whole=whole)
    size = numbers.disk_size(file.stat().st_size)
    print(f"{file} ({size}) contains what ddpmon knows about {target.name} ({target.id}):")
    for part in parts:
        print(_line(part))
    print(
        "ddpmon has put … in place of everything that looks like a secret. Look at the content before you share the "
        f"file: tar xzf {shlex.quote(str(file))}"
    )


def _line(part: Part) -> str:
    size = "missing" if part.size_bytes is None else numbers.disk_size(part.size_bytes)
    return f"  {part.name:<13}{size:>9}  {part.text}"
