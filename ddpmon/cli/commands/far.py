"""Commands that ddpmon runs on another machine over ssh; users do not type them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import click

from ddpmon.cli.streams import print_for_terminal


@click.command("_relay", hidden=True)
@click.argument("run", required=False)
def relay(run: str | None) -> int:
    """Forward a run's snapshots to a dashboard on another machine, over standard input and output."""
    outgoing = os.dup(1)
    os.dup2(2, 1)  # Printed text must not get between the frames.
    from ddpmon.remote.relay import serve

    serve(run, 0, outgoing)
    return 0


@click.command("_there", hidden=True, context_settings={"ignore_unknown_options": True})
@click.option("--columns", type=click.IntRange(1), help="Width of the terminal that shows the output.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_obj
def there(main: Callable[[], None], columns: int | None, words: Sequence[str]) -> None:
    """Run a command of ddpmon on this machine for a user on another one.

    Args:
        main: Runs the command line in sys.argv.
        columns: Width of the user's terminal.
        words: The command and its arguments.

    """
    from ddpmon.remote.remote_command import begin

    begin()
    if columns is not None:
        print_for_terminal(columns)
    sys.argv = ["ddpmon", *words]
    main()
