"""The command line. Heavy modules are imported only by the commands that need them, so that `ddpmon ls` answers at
once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import MutableMapping
from typing import TextIO, cast

import click

import ddpmon
from ddpmon import config
from ddpmon.cli.commands import Commands
from ddpmon.cli.streams import OutputError, StandardStream, occupy_closed
from ddpmon.errors import DdpmonError, RunNotFoundError, UsageError
from ddpmon.glyphs import ascii_for, in_ascii, started_with
from ddpmon.plain import PlainOutput, plain

INTERRUPTED = 130


PROGRAM_HELP = """Watch PyTorch DistributedDataParallel runs in the terminal.

    \b
    ddpmon run --nproc 4 train.py   start a run and watch it
    ddpmon attach                   watch it again, from any terminal
    ddpmon demo                     look at a recorded run, without torch

    RUN is a run's name or the beginning of its id. If several runs have that
    name, commands take the latest and say so on stderr. Without RUN, they take
    the latest run; stop, stack and profile take the latest that has not ended.
    attach, ls, status, stack, logs, stop and report also reach runs on other
    machines over ssh: HOST:RUN, or USER@HOST for the latest run there. In the
    dashboard, ? shows the keys. ddpmon config shows your settings. If there is
    no such RUN, every command prints one line and exits with code 2.

    \b
    Environment variables:
      DDPMON_SSH      the ssh command with its options
      DDPMON_REMOTE   the ddpmon command there, if it is not on the PATH
      DDPMON_THEME    dark, light or ansi (the terminal's 16 colours)
      NO_COLOR=1      no colours
"""


@click.group(
    help=PROGRAM_HELP,
    commands=cast("MutableMapping[str, click.Command]", Commands()),  # Nothing adds commands to it.
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(ddpmon.__version__, message="ddpmon %(version)s")
@click.pass_context
def command_line(context: click.Context) -> None:
    """Run a command; without one, print the help."""
    if context.invoked_subcommand is None:
        print(context.get_help())
    elif context.invoked_subcommand not in _CHECK_THE_FILE:
        _report_wrong_settings(starts_run=context.invoked_subcommand in {"run", "exec"})


_CHECK_THE_FILE = {"config", "doctor", "snapshot", "_relay", "_there"}
"""Commands that report errors in the config file themselves, and commands that ddpmon runs here over ssh."""


def _report_wrong_settings(*, starts_run: bool) -> None:
    """Print a line for each setting that is not allowed; raise SettingError if the command needs one to start a run."""
    if config.current().exists:
        from ddpmon.tui.config_check import problems
    else:
        problems = functools.partial(config.errors, os.environ)
    wrong = list(problems())
    for error in wrong:
        if starts_run and error.setting in config.NEEDED_TO_START:
            raise error
    for error in wrong:
        _complain(str(error), 2)


_printed: set[str] = set()


def main() -> None:
    """Run the command line and exit with its code. Expected errors are printed as one line on stderr."""
    occupy_closed()
    _printed.clear()  # A test runs several commands in one process.
    sys.stdout, sys.stderr = StandardStream(_plain(sys.stdout)), StandardStream(_plain(sys.stderr), survives=True)
    try:
        config.apply(os.environ)
        code = command_line.main(prog_name="ddpmon", standalone_mode=False, obj=main)
        sys.stdout.settle()
    except OutputError as error:
        code = 1 if error.reader_left else _complain(str(error), 1)
    except click.UsageError as error:
        usage = f" ({error.ctx.command_path} --help)" if error.ctx else ""
        code = _complain(error.format_message().rstrip(".") + usage, 2)
    except click.ClickException as error:
        code = _complain(error.format_message(), 1)
    except (UsageError, RunNotFoundError) as error:
        code = _complain(str(error), 2)
    except DdpmonError as error:
        code = _complain(str(error), 1)
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    with contextlib.suppress(OutputError):  # After an error, the text that was printed before it is still buffered.
        sys.stdout.settle()
    sys.stderr.settle()
    sys.exit(code if isinstance(code, int) else 0)


def _plain(stream: TextIO | None) -> TextIO | None:
    """Return the stream; if it is a terminal, wrap it to remove control characters. None if the stream is closed."""
    with contextlib.suppress(AttributeError):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # an ASCII log must not end the command
    if stream is None or not stream.isatty():
        return stream
    return cast("TextIO", PlainOutput(stream, ascii_for if in_ascii(started_with()) else str))


def _complain(text: str, code: int) -> int:
    """Print a line on stderr, unless this command has printed the same line before. Return `code`."""
    line = plain(" ".join(config.with_origin(text).split()))
    if line not in _printed:
        print("ddpmon:", line, file=sys.stderr)
        _printed.add(line)
    return code
