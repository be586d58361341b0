"""The keys that start, start again, rename, delete and compare runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from ddpmon import runs
from ddpmon.allruns import Listed
from ddpmon.errors import DdpmonError
from ddpmon.launch import removal
from ddpmon.launch.prepare import again
from ddpmon.launch.start import start
from ddpmon.place import Place
from ddpmon.runs import Run
from ddpmon.source import Source
from ddpmon.tui.lines import plain
from ddpmon.tui.palette import Palette
from ddpmon.tui.passage import Passage
from ddpmon.tui.screens.allruns import Runs
from ddpmon.tui.screens.ask import Answer, Ask
from ddpmon.tui.screens.launch import launch_form, rename_form
from ddpmon.tui.screens.logs import Logs

Found = TypeVar("Found")


class Launching(Passage):
    """Which run is watched, and what the keys of the Runs screen do to runs."""

    readonly: bool
    logs: Logs
    runs: Runs

    def __init__(self, source: Source, ansi_color: bool | None, place: Place) -> None:
        super().__init__(source, ansi_color)
        self.place = place
        self._own_source = source
        """Given by the caller, who closes it; another one, opened here, is closed here."""
        self._watched = ""
        """Id of the run that is watched; empty: the one given by the caller."""

    async def action_go(self, name: str) -> None:
        """Show another screen."""
        raise NotImplementedError

    @property
    def palette(self) -> Palette:
        """The colours of the current theme."""
        raise NotImplementedError

    @property
    def _other(self) -> Run | None:
        """The run under the cursor of the Runs screen, if it is not the one that is watched."""
        listed = self.runs.list.chosen_run() if self.current_mode == "runs" else None
        watched = "" if self.newest is None else self.newest.run.id
        return None if listed is None or listed.run.id == watched else listed.run

    def _key(self, other: Run | None) -> str:
        """How a run is named where it matters which one was given by the caller; None: the one that is watched."""
        if other is None:
            return self._watched
        first = self._own_source.snapshot()
        return "" if first is not None and first.run.id == other.id else other.id

    async def action_open(self) -> None:
        """Watch the run under the cursor on all screens."""
        other = self._other
        if other is None:
            await self.action_go("world")
        else:
            await self.watch_run(other)

    async def watch_run(self, run: Run) -> None:
        """Watch a run on all screens from now on."""
        key = self._key(run)
        try:
            opened = self.place.attach(run) if key else self._own_source
        except DdpmonError as error:
            self.say(str(error))
            return
        self._let_go()
        self._watched = key
        self.watch_other(opened)
        self.logs.output.of(None)
        await self.action_go("world")

    def _let_go(self) -> None:
        if self.source is not self._own_source:
            self.source.close()

    def on_unmount(self) -> None:
        self._let_go()

    def action_launch(self) -> None:
        if self.readonly:
            self.say("read-only: nothing can be started from here")
            return
        if self._elsewhere("started"):
            return
        self.push_screen(launch_form(self.palette), self._started)

    async def _started(self, run: object) -> None:
        if isinstance(run, Run):
            self.runs.read_again()
            self.runs.list.chosen = run.id
            await self.watch_run(run)

    def action_restart(self) -> None:
        listed = self._changeable("started again")
        if listed is None:
            return
        run, name = listed.run, plain(listed.run.name)
        if listed.runs:
            self.say(f"{name} is running; stop it first (x), then start it again")
            return
        command = plain(" ".join([run.script, *run.script_args]))
        ranks = f" at {run.world_size} rank{'s' if run.world_size != 1 else ''}" if run.world_size else ""
        text = f"Start {command}{ranks} in {plain(run.cwd)} once more, with the same name and environment?"
        answers = Answer("c", "Cancel", ""), Answer("s", "Start it again", "again")
        self.push_screen(Ask("Start again?", text, answers, self.palette), partial(self._restart, run))

    def _restart(self, run: Run, answer: str | None) -> None:
        def work() -> Run:
            with runs.reserved() as run_id:
                return start(again(run, run_id), run_id)

        if answer:
            self.say(f"starting {plain(run.name)} again…")
            self._away(work, self._started)

    def action_rename(self) -> None:
        listed = self._changeable("renamed")
        if listed is not None:
            self.push_screen(rename_form(listed.run, self.palette), self._renamed)

    def _renamed(self, run: object) -> None:
        if isinstance(run, Run):
            self.runs.read_again()
            self.say(f"{run.id} is now {run.name}")

    def action_delete(self) -> None:
        listed = self._changeable("deleted")
        if listed is None:
            return
        run = listed.run
        if self.newest is not None and self.newest.run.id == run.id and not listed.runs:
            self.say(f"{plain(run.name)} is on the screens; watch another run first")
            return

        def look() -> str:
            removal.check(run)
            return removal.size_text(run)

        self._away(look, partial(self._ask_delete, listed))

    async def _ask_delete(self, listed: Listed, size: str) -> None:
        name = plain(listed.run.name)
        text = f"Delete {name} ({plain(listed.run.id)}, {listed.state}) with its recording, logs and report: {size}? "
        answers = Answer("c", "Cancel: keep it", ""), Answer("d", "Delete it", "delete")
        self.push_screen(
            Ask("Delete the run?", text + "There is no way back.", answers, self.palette),
            partial(self._delete, listed.run),
        )

    def _delete(self, run: Run, answer: str | None) -> None:
        async def deleted(_: None) -> None:
            self.runs.read_again()
            self.say(f"deleted {plain(run.name)} ({plain(run.id)})")

        if answer:
            self._away(lambda: removal.delete(run), deleted)

    def action_compare(self) -> None:
        """Mark a run; on another one, compare."""
        listed = self.runs.list.chosen_run()
        marked = self.runs.list.of(self.runs.list.marked)
        if self._elsewhere("compared"):
            return
        if listed is None:
            self.say("no run to compare")
        elif marked is None:
            self.runs.list.marked = listed.run.id
            self.say(f"{plain(listed.run.name)} is A; c on another run compares it with A")
        elif marked.run.id == listed.run.id:
            self.runs.list.marked = None
            self.say(f"{plain(listed.run.name)} is no longer marked")
        else:
            self.runs.list.marked = None
            from ddpmon.tui.screens.compare import Compare  # numpy with it

            self.push_screen(Compare(marked.run, listed.run, self.palette))

    def _elsewhere(self, what: str) -> bool:
        """Whether runs are on another machine, where they can be watched and stopped; then it says the way out."""
        if self.place.name:
            where = plain(self.place.name)
            self.say(f"runs on {where} are {what} there: ssh -t {where} ddpmon attach")
        return bool(self.place.name)

    def _changeable(self, what: str) -> Listed | None:
        """The run under the cursor, if runs may be changed from here; else it says why nothing happens."""
        listed = self.runs.list.chosen_run()
        if self.readonly:
            self.say(f"read-only: nothing can be {what} from here")
        elif self._elsewhere(what):
            pass
        elif listed is None:
            self.say(f"no run to be {what}")
        else:
            return listed
        return None

    def _away(self, work: Callable[[], Found], then: Callable[[Found], Awaitable[None]]) -> None:
        """Do something that takes a while on another thread; `then` takes its result. Errors are one line."""

        async def both() -> None:
            try:
                found = await asyncio.to_thread(work)
            except DdpmonError as error:
                self.say(str(error))
            else:
                await then(found)

        self.run_worker(both())
