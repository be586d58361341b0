"""The keys that stop runs, Ctrl-C among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ddpmon.errors import DdpmonError
from ddpmon.runs import Run
from ddpmon.source.run_list import Listed
from ddpmon.tui.dashboard import Dashboard
from ddpmon.tui.lines import plain_text
from ddpmon.tui.screens.ask import Answer, Dialog
from ddpmon.tui.watched import Watched


@dataclass
class Stopping:
    """Decides whether a run can be stopped from here, and asks the user before it stops one."""

    dashboard: Dashboard
    watched: Watched
    under_cursor: Callable[[], Listed | None]
    """Returns the run under the cursor of the Runs screen; None on all other screens."""
    readonly: bool
    owns_run: bool
    """True if the command that started the run also started this dashboard."""

    @property
    def _can_stop_watched(self) -> bool:
        return self.watched.playback.source.stoppable and not self.readonly and not self.watched.ended

    @property
    def can_stop(self) -> bool:
        """Return whether a run can be stopped now, so that `stop` asks the user instead of showing why it is
        impossible.
        """
        listed = self.under_cursor()
        if self.watched.other_run(listed) is None:
            return self._can_stop_watched
        return listed is not None and listed.runs and not self.readonly

    def stop(self) -> None:
        """Ask whether to stop the run under the cursor, else the watched run."""
        other = self.watched.other_run(self.under_cursor())
        listed = self.under_cursor()
        if listed is not None and listed.pid is not None:
            self.dashboard.say(f"ddpmon does not watch {plain_text(listed.run.name)}; Enter attaches to it")
            return
        if not self.can_stop:
            elsewhere = other.elsewhere() if other is not None else None
            ended = f"the run {elsewhere}; stop it there" if elsewhere else "the run has already ended"
            self.dashboard.say(plain_text(ended) if other is not None and not self.readonly else self._why_no_stop())
            return
        name = self.watched.name if other is None else plain_text(other.name)
        if self.watched.place.name:
            name += f" on {plain_text(self.watched.place.name)}"
        cancel = Answer("nc", "Cancel: the run continues", "")
        if self.watched.stop_asked(other):
            text = f"{name} is stopping. Kill all processes of the run now? An unfinished checkpoint is lost."
            self._ask("Kill now?", text, (cancel, Answer("yk", "Kill now", "now")), other)
            return
        text = (
            f"Stop {name}? The ranks get SIGTERM, or SIGINT if they have no handler for SIGTERM, and SIGKILL "
            "after the grace period."
        )
        if (run := other or self.watched.run) is not None and run.attached:
            text += " ddpmon did not start this job, but will stop it; ddpmon detach leaves the job running."
        self._ask("Stop the run?", text, (cancel, Answer("ys", "Stop it", "stop")), other)

    def _why_no_stop(self) -> str:
        newest = self.watched.playback.newest
        if newest is not None and newest.state == "unknown":
            return "cannot see from here whether the run still runs: stop it where it started"
        if self.watched.ended:
            return "the run has already ended"
        return "read-only: cannot stop the run from here" if self.readonly else "you cannot stop this run from here"

    def interrupt(self, *, asking: bool) -> None:
        """Handle Ctrl-C: ask if it could mean detach or stop, else leave.

        If `asking` is true, a dialog is already open, and Ctrl-C leaves.
        """
        if asking or not self._can_stop_watched or not self.owns_run or not self.watched.is_first:
            self.dashboard.leave()
            return
        text = f"{self.watched.name} is still running. Ctrl-C again detaches."
        answers = (
            Answer("c", "Cancel: stay here", ""),
            Answer("d", "Detach: the run goes on", "detach"),
            Answer("s", "Stop the run", "stop"),
        )
        self._ask("Ctrl-C: what should happen to the run?", text, answers, None)

    def _ask(self, heading: str, text: str, answers: tuple[Answer, ...], other: Run | None) -> None:
        dialog = Dialog(heading, text, answers, self.dashboard.palette)
        self.dashboard.ask(dialog, partial(self._answered, other))

    def _answered(self, other: Run | None, answer: str | None) -> None:
        if answer == "detach":
            self.dashboard.leave()
        elif answer and (other is not None or self._can_stop_watched):
            self._stop(other, now=answer == "now")

    def _stop(self, other: Run | None, *, now: bool) -> None:
        try:
            self.watched.stop(other, now=now)
        except DdpmonError as error:
            self.dashboard.say(str(error))
        else:
            self.dashboard.say("" if other is None else f"stopping {plain_text(other.name)}…  x kills it now")
