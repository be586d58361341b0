"""Finds the run that a command names, replaces its supervisor if it was killed, and runs commands over ssh."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpmon import runs
from ddpmon.cli.streams import write_foreign
from ddpmon.errors import DdpmonError
from ddpmon.plain import plain
from ddpmon.remote.address import parse

if TYPE_CHECKING:
    from ddpmon.messages import Snapshot
    from ddpmon.remote.address import Address
    from ddpmon.remote.source import RemoteSource
    from ddpmon.runs import Run


def find(name: str | None) -> Run:
    """Return the run that `runs.find` finds, and start a new supervisor if its supervisor was killed."""
    return adopted(runs.find(name))


def latest_running() -> Run | None:
    """Return the latest run that is still running, preferably a run of this machine; None if no run is running."""
    from ddpmon.launch import run_processes

    going = [
        each
        for each in runs.all_runs()
        if not each.ended and (each.state() in {"running", "unknown"} or run_processes.of_run(each.id))
    ]
    return next((each for each in reversed(going) if not each.elsewhere()), going[-1] if going else None)


def find_running(name: str | None) -> Run:
    """Return the run that `find` finds; without a name, the latest run that is still running, if there is one."""
    running = latest_running() if name is None else None
    return find(name) if running is None else adopted(running)


def adopted(run: Run) -> Run:
    """Make sure that the run has a supervisor; return the run, updated. Repairs and errors are printed on stderr."""
    from ddpmon.launch import adoption

    try:
        return adoption.adopt_run(run, _print_notice)
    except DdpmonError as error:  # The run can still be shown.
        _print_notice(str(error))
        return run


def _print_notice(text: str) -> None:
    print("ddpmon:", text, file=sys.stderr)


REACH_POLL_S = 0.2


def over_ssh(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command with the argument `run`: if the run is on another machine, the command is executed there."""

    @functools.wraps(function)
    def command(run: str | None, **options: Any) -> Any:
        address = parse(run)
        return function(run=run, **options) if address is None or run is None else as_typed(address, run)

    return command


def as_typed(address: Address, word: str) -> int:
    """Run this process's command line on another machine. word: the argument that names the machine."""
    from ddpmon.remote.remote_command import run_there

    typed = [each for each in sys.argv[1:] if each not in {word, "--"}]
    return run_there(address, [*typed, *(["--", address.run] if address.run else [])], write_foreign)


def dashboard(address: Address, every_s: float, notify: str, *, readonly: bool) -> int:
    """Show the dashboard of a run on another machine until the user leaves it; return the exit code of this command."""
    from ddpmon.remote.source import RemotePlace, RemoteSource

    line = RemoteSource.call(address)
    from ddpmon.tui.app import DdpmonApp, watch  # Imported while ssh logs in.
    from ddpmon.tui.preferences import Preferences
    from ddpmon.tui.watched import Outcome

    source = RemoteSource.open(address, line)
    try:
        place = RemotePlace(source)
        outcome = watch(DdpmonApp(source, readonly=readonly, notify=notify, place=place, preferences=Preferences()))
        if outcome is Outcome.STOPPING:
            print(
                f"stopping {source.run_name} on {address.where}; if you press Ctrl-C now, only this "
                "command ends, and the run still stops",
                flush=True,
            )
            _lines_until_ended(source, every_s)
        last = source.snapshot()
    finally:
        source.close()
    if outcome is Outcome.DETACHED or last is None:
        again = address.word(source.run_id)
        print(
            f"{source.run_name} still runs on {address.where}; "
            f"ddpmon attach {again} shows it again, ddpmon stop {again} ends it"
        )
        return 0
    return _conclude(source, last)


def _lines_until_ended(source: RemoteSource, every_s: float) -> None:
    from ddpmon.export.headless import Lines
    from ddpmon.messages import END_STATES

    lines = Lines(every_s)
    while True:
        shot = source.snapshot()
        if shot is not None:
            for text in lines.of(shot, time.monotonic(), source.silent_for()):
                print(text, flush=True)
            if shot.state in END_STATES:
                return
        time.sleep(REACH_POLL_S)


def _conclude(source: RemoteSource, last: Snapshot) -> int:
    """Print how the run ended; return this command's exit code."""
    code = last.run.exit_code
    print(f"{source.run_name} on {source.address.where}: {last.state}{'' if code is None else f', exit code {code}'}")
    if last.verdict:
        print(plain(last.verdict))
    print(f"ddpmon report {source.address.word(source.run_id)} shows what happened")
    return code or int(last.state not in {"done", "detached"})
