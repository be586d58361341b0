"""Watches a run until it ends or the user leaves: in the dashboard, or by printing lines."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType
from typing import Self

from ddpmon import runs
from ddpmon.analysis.words import format_count
from ddpmon.cli.reaching import adopted
from ddpmon.cli.streams import prose_columns
from ddpmon.errors import DdpmonError, RecordingError, RunNotFoundError
from ddpmon.launch import stop
from ddpmon.messages import END_STATES, Snapshot
from ddpmon.plain import plain
from ddpmon.source import Source, attach

WATCH_POLL_S = 0.2
ENDING_S = 15.0
"""Longest time, in seconds, for a hub and a supervisor to record how a run ended, and to exit."""
OTHERS_S = 5.0
"""Seconds that a failed command waits for the run's end, since the job's other tasks usually fail with it."""
_WISHES = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FOR_RANKS = (signal.SIGUSR1, signal.SIGUSR2)
_UNABLE = {"", "dumb", "unknown"}
"""Values of TERM for terminals that can only print lines."""


def interactive() -> bool:
    """Return whether a dashboard can be shown and used here. If the terminal cannot show one, print the reason.

    Raises:
        UsageError: The config file has an error, or the user chose a theme that does not exist.

    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if (term := os.environ.get("TERM", "")) in _UNABLE:
        named = f"TERM is {term!r}" if term else "TERM is not set"
        print(f"ddpmon: {named}, so ddpmon opens no dashboard; try TERM=xterm-256color", file=sys.stderr)
        return False
    from ddpmon.tui.config_check import check_config
    from ddpmon.tui.palette import chosen_theme

    check_config()  # Report a wrong setting before the run starts.
    chosen_theme(os.environ)
    return True


class Signals:
    """Turns Ctrl-C, SIGTERM and SIGHUP into requests while the context is entered.

    If this command started the run (`owns_run`), it also catches SIGUSR1 and SIGUSR2, to forward them to the
    ranks: schedulers announce the end of a job by sending these signals to the program that they started. Otherwise
    SIGUSR1 and SIGUSR2 keep their usual effect.
    """

    def __init__(self, owns_run: bool) -> None:
        self.owns_run = owns_run
        self.stops = 0
        self.for_ranks: list[signal.Signals] = []
        self.terminated = False
        self.hung_up = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in (*_WISHES, *(_FOR_RANKS if self.owns_run else ())):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # signal() returned this value

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.hung_up = True
        elif number in _FOR_RANKS:
            self.for_ranks.append(signal.Signals(number))
        else:
            self.stops += 1
            self.terminated |= number == signal.SIGTERM


def dashboard(run: runs.Run, every_s: float, owns_run: bool, notify: str = "off", *, readonly: bool = False) -> int:
    """Show the dashboard until the user leaves it; return the exit code of this command.

    Args:
        run: The run.
        every_s: Seconds between two lines that are printed if the user leaves the dashboard while the run stops.
        owns_run: This command started the run.
        notify: A choice of `--notify`.
        readonly: The run cannot be stopped from the dashboard.

    """
    from ddpmon.tui.app import DdpmonApp, watch
    from ddpmon.tui.preferences import Preferences
    from ddpmon.tui.watched import Outcome

    run, source = _attached(run)
    try:
        outcome = watch(
            DdpmonApp(source, readonly=readonly, owns_run=owns_run, notify=notify, preferences=Preferences())
        )
        last = source.snapshot()
    finally:
        source.close()
    if outcome is Outcome.DETACHED:
        ends = f"ddpmon detach {run.id} removes the probe" if run.attached else f"ddpmon stop {run.id} stops it"
        _say(f"{run.name} continues; ddpmon attach {run.id} shows it again, {ends}")
        return 0
    if outcome is Outcome.STOPPING:
        with Signals(owns_run=True) as signals:
            return follow(run, every_s, signals)
    return _conclude(run, last)


def follow(run: runs.Run, every_s: float, signals: Signals) -> int:
    """Print lines until the run ends; return the command's exit code. A killed supervisor of the run is replaced.

    Ctrl-C stops the run if this command owns it, and otherwise only ends this command.
    """
    from ddpmon.export.headless import Lines

    if signals.owns_run:
        _say(f"{run.name} ({run.id}): {' '.join([run.script, *run.script_args])}")
    lines = Lines(every_s)
    stops_sent = 0
    alone_since: float | None = None
    is_gone = False
    """True if the run's folder does not exist any more."""
    run, source = _attached(run)
    try:
        while True:
            ended = run.ended
            snapshot = source.snapshot()
            for text in lines.of(snapshot, time.monotonic(), source.silent_for(), source.refused):
                _say(text)
            _say_news(source)
            if run.state() == "unknown":
                break
            if run.lost() and not is_gone:
                run = adopted(run)
                if run.lost():
                    break
                continue
            is_final = snapshot is not None and snapshot.state in END_STATES
            if (ended or is_gone) and (is_final or not run.supervised()):
                break
            if run.command_code and signals.owns_run and not ended:
                alone_since = alone_since or time.monotonic()
                # The command's launcher must learn the exit code, and may end the other tasks.
                if time.monotonic() - alone_since >= OTHERS_S:
                    _say(
                        f"the run {run.name} ({run.id}) continues, although this command ended with {run.command_code}"
                    )
                    return run.command_code
            if signals.hung_up or (signals.stops and not signals.owns_run):
                if run.attached and not signals.hung_up:
                    _say(
                        f"the job of {run.name} continues, and the probe stays in its ranks; ddpmon detach "
                        f"{run.id} removes the probe"
                    )
                return 128 + signal.SIGHUP if signals.hung_up else runs.STOPPED_CODE
            if (stops := signals.stops) > stops_sent:  # Read once: another signal may arrive meanwhile.
                _ask(run, now=stops > 1)
                stops_sent = stops
            while signals.for_ranks:
                _hand_on(run, signals.for_ranks.pop(0))
            time.sleep(WATCH_POLL_S)
            is_gone = False
            try:
                run = runs.load(run.id)
            except RunNotFoundError:  # The run's hub and supervisor still report its state.
                is_gone = True
    finally:
        source.close()
    _say_news(source)  # The source's thread has ended. It may have replaced the supervisor just before its end.
    code = _conclude(run, snapshot, report=True)
    return 128 + signal.SIGTERM if signals.terminated and code == runs.STOPPED_CODE else code


def _say_news(source: Source) -> None:
    while news := source.news():
        print("ddpmon:", plain(news), file=sys.stderr)


def _attached(run: runs.Run) -> tuple[runs.Run, Source]:
    """Return the run, with a new supervisor if it was lost, and the source of its snapshots.

    Raises:
        RecordingError: The run has ended, and nothing was recorded.

    """
    run = adopted(run)
    try:
        return run, attach(run)
    except RecordingError:
        if run.lost():  # The run's supervisor was just killed, before the hub had recorded anything.
            run = adopted(run)
        elif run.ended:  # The run failed at once, and its hub is still recording the failure.
            run = stop.wait_until_gone(run, ENDING_S) or runs.load(run.id)
        else:
            raise
        return run, attach(run)


def _ask(run: runs.Run, now: bool) -> None:
    left_s = run.grace_left_s()
    stop.request_stop(run, now=now)
    if now:
        _say("killing the remaining processes")
    elif left_s is None:
        _say(f"stopping the run: the ranks have {run.grace_s:g} s to exit; press Ctrl-C again to kill them")
    else:
        _say(
            f"the run is already stopping: the ranks have {left_s:.0f} s left to exit; press Ctrl-C again to kill them"
        )


def _hand_on(run: runs.Run, number: signal.Signals) -> None:
    from ddpmon.launch.run_processes import hand_to_ranks

    handed, left_out = hand_to_ranks(run, number)
    no_handler = (
        f"; {format_count(left_out, 'rank')} without a handler for it did not get the signal" if left_out else ""
    )
    _say(f"sent {number.name} to {format_count(handed, 'rank')}{no_handler}")


def _conclude(run: runs.Run, last: Snapshot | None, report: bool = False) -> int:
    """Print how the run ended and where it is stored; return this command's exit code."""
    # The recording and the report are complete once the hub has ended; the supervisor ends after it.
    try:
        run = runs.load(run.id)
        if run.ended or run.state() not in {"lost", "unknown"}:
            run = stop.wait_until_gone(run, ENDING_S) or runs.load(run.id)
    except RunNotFoundError:
        return _conclude_deleted(run, last)
    state = run.state()
    if state == "unknown":
        _say(f"{run.name} ({run.id}) {run.elsewhere()}; {run.attaching} shows it there")
        return 1
    if run.lost():
        _say(f"{run.name}: the run's supervisor has died, but its ranks may still run; ddpmon stop {run.id} ends them")
        return 1
    if state == "detached":
        _say(
            f"the job {run.name} continues without ddpmon; ddpmon report {run.id} prints a report about the "
            "time until now"
        )
        return 0
    took = "" if run.took_s is None else f" after {run.took_s:.0f} s"
    try:
        if report:
            _say_report(run)
        else:
            code = f", exit code {'unknown' if run.shell_code is None else run.shell_code}"
            _say(f"{run.name}: {state}{took}{code}")
            if last is not None and last.verdict:
                _say(last.verdict)
        names_log = state == "failed" and _say_why(run, last)
        if report and not names_log:
            _say(f"output of the script: ddpmon logs {run.id}")
    except ImportError as error:  # The run's exit code still counts.
        print(
            f"ddpmon: {run.name}: {state}; there is no report, because somebody has moved or removed ddpmon: {error}",
            file=sys.stderr,
        )
    _say(f"recording: {runs.run_dir(run.id)}")
    return exit_code(run)


def _conclude_deleted(run: runs.Run, last: Snapshot | None) -> int:
    """Print how a run ended whose folder was moved or deleted, for example because of $DDPMON_KEEP.

    Return this command's exit code.
    """
    state = run.state() if run.ended else "unknown" if last is None else last.state
    _say(f"{run.name} ({run.id}): {state}; somebody has deleted or moved the run's folder")
    return exit_code(run) if run.ended else {"done": 0, "detached": 0, "stopped": runs.STOPPED_CODE}.get(state, 1)


def _say_report(run: runs.Run) -> None:
    from ddpmon.export import report as reports

    try:
        _say(reports.text(reports.build(run), prose_columns()))
    except DdpmonError as error:  # The run's exit code still counts.
        print(plain(f"ddpmon: no report: {error}"), file=sys.stderr)


def _say_why(run: runs.Run, last: Snapshot | None) -> bool:
    """Print the last output of the rank that failed, and the name of its log. Return whether the log has any output."""
    from ddpmon.export.last_words import last_words

    if run.error is not None:
        _say(run.error)
        return False
    failed = [finding.ranks[0] for finding in last.findings if finding.explains == "failed"] if last else []
    words = last_words(run, failed[0] if failed else None)
    if words.lines:
        _say(f"the last output of {words.writer}, from {words.log}:")
    for line in words.lines:
        _say(f"  {line}")
    return bool(words.lines)


def exit_code(run: runs.Run) -> int:
    """Return the exit code of a command that watched a run to its end."""
    return run.shell_code or int(run.state() not in {"done", "detached"})


def _say(text: str) -> None:
    """Print lines, with control characters removed, because they may contain output of a script."""
    print("\n".join(map(plain, text.split("\n"))), flush=True)
