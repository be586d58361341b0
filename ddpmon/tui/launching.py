"""The keys that start, restart, rename, delete and compare runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ddpmon import runs
from ddpmon.analysis.words import format_count
from ddpmon.attach.start import attach, find
from ddpmon.attach.waiting import until_entered
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import last_launch, removal, spec
from ddpmon.launch.last_launch import LaunchForm
from ddpmon.launch.prepare import prepare_again, prepare_run
from ddpmon.launch.start import start_run
from ddpmon.runs import Run
from ddpmon.source.run_list import Listed
from ddpmon.tui.dashboard import Dashboard
from ddpmon.tui.lines import plain_text
from ddpmon.tui.palette import Palette
from ddpmon.tui.screens.ask import Answer, Dialog
from ddpmon.tui.screens.form import Field, Form, PathSuggester
from ddpmon.tui.watched import Watched
from ddpmon.tui.widgets.runlist import RunList

Result = TypeVar("Result")


def launch_form(palette: Palette) -> Form:
    """Return the form that starts a run as `ddpmon run` does, filled in with the options of the last run.

    When the form closes, it returns the started run.
    """
    last = last_launch.load_form()
    folder = last.folder
    if not folder:
        with contextlib.suppress(UsageError):  # the current folder was deleted, so the user has to type another one
            folder = spec.current_folder()
    scripts = PathSuggester(".py", lambda: form.inputs["folder"].value)
    of_script = "a file (→ completes its path), or -m and a module name"
    of_folder = "working directory (→ completes it), where relative paths of the script start"
    fields = (
        Field("script", last.script, of_script, "train.py, or -m package.train", scripts),
        Field("arguments", last.arguments, "the arguments of the script, quoted as in a shell", "none"),
        Field("processes", last.processes, "ranks on this machine: a number, gpu (one per GPU), cpu or auto", "1"),
        Field("name", last.name, "letters, digits, '.', '_' and '-'; empty: the script's name", "the script's"),
        Field("environment", last.environment, "KEY=VALUE, separated by spaces, quoted as in a shell", "as here"),
        Field("folder", folder, of_folder, suggester=PathSuggester()),
    )
    form = Form("Start a run", fields, _launch, palette, "start", "starting…")
    return form


def _launch(texts: dict[str, str]) -> Run:
    typed = LaunchForm(**texts)
    options = typed.requested_run()
    with runs.reserved() as run_id:
        run = start_run(prepare_run(options, run_id))
    last_launch.store_form(typed)
    return run


def rename_form(run: Run, palette: Palette) -> Form:
    """Return the form that renames a run. When the form closes, it returns the renamed run."""
    field = Field("name", run.name, "at most 64 letters, digits, '.', '_' and '-'")

    def take(texts: dict[str, str]) -> Run:
        return runs.rename(run, texts["name"].strip())

    return Form(
        f"Another name for {plain_text(run.name)} ({plain_text(run.id)})",
        (field,),
        take,
        palette,
        "rename",
        "renaming…",
    )


@dataclass
class Launching:
    """The actions of the keys that start, change and compare runs."""

    dashboard: Dashboard
    watched: Watched
    run_list: RunList
    """The list of runs, with its cursor."""
    watch: Callable[[Run], Awaitable[None]]
    """Shows a run on all screens."""
    readonly: bool

    def launch(self) -> None:
        """Open the form that starts a run."""
        if self.readonly:
            self.dashboard.say("read-only: cannot start runs from here")
        elif not self._elsewhere("start"):
            self.dashboard.ask(launch_form(self.dashboard.palette), self._started)

    async def _started(self, run: object) -> None:
        if isinstance(run, Run):
            self.run_list.read_again()
            self.run_list.chosen = run.id
            await self.watch(run)

    def attach(self, listed: Listed) -> None:
        """Ask whether to attach to a job that trains without ddpmon."""
        if self.readonly:
            self.dashboard.say(f"read-only: cannot attach from here; ddpmon attach --pid {listed.pid} in a shell can")
            return
        ranks = format_count(listed.run.world_size, "rank")
        text = (
            f"Attach to {plain_text(listed.run.name)} (pid {listed.pid}, {ranks})? ddpmon loads its probe into the"
            " ranks, and each rank stops for up to a second. ddpmon detach removes the probe."
        )
        answers = Answer("nc", "Cancel: do not attach", ""), Answer("ya", "Attach", "attach")
        dialog = Dialog("Attach to the job?", text, answers, self.dashboard.palette)
        self.dashboard.ask(dialog, partial(self._attach, listed))

    def _attach(self, listed: Listed, answer: str | None) -> None:
        def work() -> Run:
            job = find(listed.pid or 0)
            with runs.reserved() as run_id:
                run = attach(job, run_id)
            for _ in until_entered(run):
                pass
            return runs.load(run.id)

        if answer:
            self.dashboard.say(f"attaching to {plain_text(listed.run.name)}…")
            self._on_a_thread(work, self._started)

    def restart(self) -> None:
        """Ask whether to start the run under the cursor again."""
        listed = self._changeable("restart")
        if listed is None:
            return
        run, name = listed.run, plain_text(listed.run.name)
        if listed.runs:
            self.dashboard.say(f"{name} is running; stop the run with x first, then start it again")
            return
        command = plain_text(" ".join([run.script, *run.script_args]))
        ranks = f" at {run.world_size} rank{'s' if run.world_size != 1 else ''}" if run.world_size else ""
        text = f"Start {command}{ranks} in {plain_text(run.cwd)} again, with the same name and environment?"
        answers = Answer("nc", "Cancel", ""), Answer("ys", "Start it again", "again")
        dialog = Dialog("Start again?", text, answers, self.dashboard.palette)
        self.dashboard.ask(dialog, partial(self._restart, run))

    def _restart(self, run: Run, answer: str | None) -> None:
        def work() -> Run:
            with runs.reserved() as run_id:
                return start_run(prepare_again(run, run_id))

        if answer:
            self.dashboard.say(f"starting {plain_text(run.name)} again…")
            self._on_a_thread(work, self._started)

    def rename(self) -> None:
        """Ask for a new name for the run under the cursor."""
        listed = self._changeable("rename")
        if listed is not None:
            self.dashboard.ask(rename_form(listed.run, self.dashboard.palette), self._renamed)

    def _renamed(self, run: object) -> None:
        if isinstance(run, Run):
            self.run_list.read_again()
            self.dashboard.say(f"{run.id} is now {run.name}")

    def delete(self) -> None:
        """Measure the size of the run under the cursor, then ask whether to delete the run."""
        listed = self._changeable("delete")
        if listed is None:
            return
        run = listed.run
        if self.watched.is_shown(run) and not listed.runs:
            self.dashboard.say(
                f"you cannot delete {plain_text(run.name)}, because the screens show this run; watch another run first"
            )
            return

        def size() -> str:
            removal.check_removable(run)
            return removal.size_text(run)

        self._on_a_thread(size, partial(self._ask_delete, listed))

    async def _ask_delete(self, listed: Listed, size: str) -> None:
        name = plain_text(listed.run.name)
        text = (
            f"Delete {name} ({plain_text(listed.run.id)}, {listed.state}) with its recording, logs and report: {size}? "
        )
        answers = Answer("nc", "Cancel: keep the run", ""), Answer("yd", "Delete it", "delete")
        dialog = Dialog("Delete the run?", text + "You cannot undo this.", answers, self.dashboard.palette)
        self.dashboard.ask(dialog, partial(self._delete, listed.run))

    def _delete(self, run: Run, answer: str | None) -> None:
        async def deleted(_: None) -> None:
            self.run_list.read_again()
            self.dashboard.say(f"deleted {plain_text(run.name)} ({plain_text(run.id)})")

        if answer:
            self._on_a_thread(lambda: removal.delete_run(run), deleted)

    def compare(self) -> None:
        """Compare the run under the cursor with the marked run. If no run is marked, mark the run under the cursor."""
        listed = self.run_list.chosen_run()
        marked = self.run_list.of(self.run_list.marked)
        if self._elsewhere("compare"):
            return
        if listed is None or listed.pid is not None:
            self.dashboard.say("there is no run to compare")
        elif marked is None:
            self.run_list.marked = listed.run.id
            self.dashboard.say(f"{plain_text(listed.run.name)} is run A; press c on another run to compare it with A")
        elif marked.run.id == listed.run.id:
            self.run_list.marked = None
            self.dashboard.say(f"{plain_text(listed.run.name)} is no longer marked")
        else:
            self.run_list.marked = None
            from ddpmon.tui.screens.compare import Compare  # imports numpy

            self.dashboard.ask(Compare(marked.run, listed.run, self.dashboard.palette), lambda _: None)

    def _elsewhere(self, verb: str) -> bool:
        """Return whether the listed runs are on another machine. If they are, show the user how to change them there.

        In this dashboard, the user can only watch and stop runs of another machine.
        """
        machine = plain_text(self.watched.place.name)
        if machine:
            self.dashboard.say(
                f"to {verb} runs on {machine}, use the dashboard on that machine: ssh -t {machine} ddpmon attach"
            )
        return bool(machine)

    def _changeable(self, verb: str) -> Listed | None:
        """Return the run under the cursor if this dashboard may change it. Else show the user the reason, and return
        None.
        """
        listed = self.run_list.chosen_run()
        if self.readonly:
            self.dashboard.say(f"read-only: cannot {verb} runs from here")
        elif self._elsewhere(verb):
            pass
        elif listed is None:
            self.dashboard.say(f"there is no run to {verb}")
        elif listed.pid is not None:
            self.dashboard.say(f"ddpmon does not watch {plain_text(listed.run.name)}; Enter attaches to it")
        else:
            return listed
        return None

    def _on_a_thread(self, work: Callable[[], Result], then: Callable[[Result], Awaitable[None]]) -> None:
        """Run `work` on another thread and pass its result to `then`. Show an error as one line."""

        async def both() -> None:
            try:
                result = await asyncio.to_thread(work)
            except DdpmonError as error:
                self.dashboard.say(str(error))
            else:
                await then(result)

        self.dashboard.in_background(both())
