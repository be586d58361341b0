"""The keys that stop runs, and what Ctrl-C means."""

from __future__ import annotations

from functools import partial

from ddpmon.errors import DdpmonError
from ddpmon.launch import stop
from ddpmon.runs import Run
from ddpmon.source import Source
from ddpmon.tui.frame import Frame
from ddpmon.tui.launching import Launching
from ddpmon.tui.lines import plain
from ddpmon.tui.outcome import Outcome
from ddpmon.tui.screens.ask import Answer, Ask


class Stopping(Launching):
    """Whether a run can be stopped from here, and the questions before it is."""

    owns_run: bool
    _notice_left: int
    """Frames for which a notice is still shown."""

    def __init__(self, source: Source, ansi_color: bool | None) -> None:
        super().__init__(source, ansi_color)
        self._stopping: set[str] = set()
        """What a stop was asked for, named as `_key` does."""

    def leave(self) -> None:
        """End the dashboard; the run is not touched."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return Frame(self.newest).ended

    @property
    def can_stop(self) -> bool:
        """Whether the run that is watched can be stopped."""
        return self.source.stoppable and not self.readonly and not self.ended

    @property
    def _stoppable_here(self) -> bool:
        """Whether `x` does something."""
        if self._other is None:
            return self.can_stop
        listed = self.runs.list.chosen_run()
        return listed is not None and listed.runs and not self.readonly

    @property
    def stop_asked(self) -> bool:
        """Whether the run that is watched was asked to stop, from here or from anywhere."""
        return self._watched in self._stopping or self.grace_left_s is not None

    @property
    def grace_left_s(self) -> float | None:
        """How long its ranks may still take to end; None where no stop is under way as far as its hub told."""
        shot = self.newest
        if shot is None or shot.run.kill_at is None:
            return None
        return max(0.0, shot.run.kill_at - shot.at)

    @property
    def run_name(self) -> str:
        """How the run that is watched is called in questions."""
        return "the run" if self.newest is None else plain(self.newest.run.name) or "the run"

    def stop_run(self, *, now: bool, other: Run | None = None) -> None:
        """Ask the run to stop: the one that is watched, or another."""
        try:
            if other is None:
                self.source.stop(now)
            else:
                stop.request(other, now=now)
        except DdpmonError as error:
            self.say(str(error))
            return
        self._stopping.add(self._key(other))
        if other is not None:
            self.say(f"stopping {plain(other.name)}…  x kills it now")
            return
        self._notice_left = 0
        self.show()

    @property
    def outcome(self) -> Outcome:
        """How the dashboard was left, as to the run that it was opened on."""
        if Frame(self._own_source.snapshot()).ended:
            return Outcome.ENDED
        return Outcome.STOPPING if "" in self._stopping else Outcome.DETACHED

    def action_stop(self) -> None:
        other = self._other
        if not self._stoppable_here:
            ended = "it has ended: there is nothing to stop"
            self.say(ended if other is not None and not self.readonly else self._why_no_stop())
            return
        name = self.run_name if other is None else plain(other.name)
        cancel = Answer("c", "Cancel: let it run", "")
        if self._key(other) in self._stopping or (self.stop_asked if other is None else other.stopping):
            text = f"A stop of {name} is under way. Kill every process of it now? A checkpoint being written is lost."
            self._ask("Kill now?", text, (cancel, Answer("k", "Kill now", "now")), other)
            return
        text = f"Stop {name}? The ranks get SIGTERM if the script handles it, else SIGINT, and SIGKILL after the grace."
        self._ask("Stop the run?", text, (cancel, Answer("s", "Stop it", "stop")), other)

    def _why_no_stop(self) -> str:
        if self.ended:
            return "the run has ended: there is nothing to stop"
        return "read-only: it cannot be stopped from here" if self.readonly else "this cannot be stopped from here"

    def action_interrupt(self) -> None:
        """Ctrl-C. A second one, while asked, does the harmless of the two."""
        owned = self.owns_run and self.source is self._own_source
        if isinstance(self.screen, Ask) or not self.can_stop or not owned:
            self.leave()
            return
        text = f"{self.run_name} is still running. Ctrl-C again detaches."
        answers = (
            Answer("c", "Cancel: stay here", ""),
            Answer("d", "Detach: the run goes on", "detach"),
            Answer("s", "Stop the run", "stop"),
        )
        self._ask("Ctrl-C: what about the run?", text, answers)

    def _ask(self, heading: str, text: str, answers: tuple[Answer, ...], other: Run | None = None) -> None:
        self.push_screen(Ask(heading, text, answers, self.palette), partial(self._answered, other))

    def _answered(self, other: Run | None, answer: str | None) -> None:
        if answer == "detach":
            self.leave()
        elif answer and (other is not None or self.can_stop):
            self.stop_run(now=answer == "now", other=other)
