"""Copies texts to the terminal's clipboard (OSC 52), and to a file whose path is shown."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ddpmon import numbers, runs
from ddpmon.analysis.evidence_words import evidence_words
from ddpmon.errors import DdpmonError
from ddpmon.launch.prepare import command_line
from ddpmon.messages import END_STATES, Finding, RankView, Snapshot
from ddpmon.plain import utf8
from ddpmon.runs import Run
from ddpmon.runs.logs import FoldedLine, written
from ddpmon.runs.private_files import write_text
from ddpmon.tui.chart_choice import Offered
from ddpmon.tui.daemon_thread import on_daemon_thread
from ddpmon.tui.dashboard import Dashboard
from ddpmon.tui.lines import plain_text
from ddpmon.tui.screens.ask import Picker
from ddpmon.tui.watched import Watched
from ddpmon.tui.widgets.failure import traceback_lines
from ddpmon.tui.widgets.findinglist import when_and_cost
from ddpmon.tui.widgets.inspection import latest_stack, rank_title
from ddpmon.tui.widgets.loglist import LogList
from ddpmon.tui.widgets.worldmap import rank_in

MAX_CLIPBOARD_BYTES = 74_000
"""Longest text that is sent to the clipboard, in bytes. Terminals drop longer texts: xterm accepts 100,000 base64
characters."""
LAST_LINES = 50
"""Number of lines of output that are copied from a screen that does not show the output."""


@dataclass(frozen=True)
class Copy:
    """An entry in the list of texts to copy: its name, a function that returns the text, and the suffix of its file."""

    name: str
    text: Callable[[], str]
    suffix: str = "txt"


def finding_text(finding: Finding, snapshot: Snapshot) -> str:
    """Return a finding with its cost, evidence and advice, on one line each."""
    evidence = " · ".join(evidence_words(finding.evidence))
    lines = [finding.text, when_and_cost(finding, snapshot.step, ended=snapshot.state in END_STATES)]
    lines += [f"evidence: {evidence}" if evidence else "", f"next: {finding.advice}" if finding.advice else ""]
    return "\n".join(filter(None, lines))


def stack_text(snapshot: Snapshot, rank: RankView | None) -> str:
    """Return the traceback of a failed rank, else the rank's Python stack; "" if the rank has neither."""
    if rank is None:
        return ""
    lines = traceback_lines(rank.exit) if rank.exit is not None else []
    stack = latest_stack(snapshot, rank).stack
    if not lines and stack is not None:
        waits = "waits in" if stack.blocked else "last issued"
        lines = [*([f"{waits} {stack.collective.name}"] if stack.collective else []), *stack.frames]
    return "\n".join([rank_title(rank), *lines]) if lines else ""


def save_text(text: str, name: str, run: Run | None) -> Path:
    """Write a file into the run's folder, or into the current folder if that fails, and return its path.

    Raises:
        OSError: Neither folder can be written to.

    """
    if run is not None:
        try:
            return write_text(runs.run_dir(run.id) / name, text)
        except OSError:
            pass  # the run's disk is full, or its folder belongs to another user
    return write_text(Path.cwd() / f"ddpmon-{name}", text)


@dataclass
class Copying:
    """The list of texts to copy, which the key `y` opens."""

    dashboard: Dashboard
    watched: Watched
    output: LogList
    rank: Callable[[], int | None]
    """Returns the rank that is under the cursor or inspected."""

    def offer_texts(self, *, on_logs: bool) -> None:
        """Show the list of texts to copy; `on_logs` says whether the Logs screen is shown."""
        snapshot = self.watched.playback.shown
        if snapshot is None:
            self.dashboard.say("nothing to copy yet")
            return
        entries = {str(place): each for place, each in enumerate(self._copies(snapshot, on_logs=on_logs))}

        async def copy(value: str | None) -> None:
            if value is not None:
                await self._copy(entries[value])

        names = [(value, plain_text(each.name)) for value, each in entries.items()]
        self.dashboard.ask(Picker(Offered("copy", names, "0", lambda _: None), self.dashboard.palette), copy)

    def save_screen(self, name: str, content: str) -> None:
        """Save a picture of a screen, and show the file's path."""
        try:
            self.dashboard.say(f"saved as {shown_path(save_text(content, name, self.watched.run))}")
        except OSError as error:
            self.dashboard.say(f"the screen was not saved: {error.strerror}")

    def _copies(self, snapshot: Snapshot, *, on_logs: bool) -> list[Copy]:
        step = f"step {numbers.count(snapshot.step)}"
        verdict = f"{snapshot.run.name}, {step}: {snapshot.verdict}"
        copies = [Copy(f"sentence: {snapshot.verdict}", lambda: verdict)]
        copies += [Copy(f"finding: {each.text}", partial(finding_text, each, snapshot)) for each in snapshot.findings]
        rank = rank_in(snapshot, self.rank())
        if rank is not None and (stack := stack_text(snapshot, rank)):
            copies.append(Copy(f"{'traceback' if rank.exit else 'stack'} of rank {rank.rank}", lambda: stack))
        copies += self._output(snapshot.run.world_size, on_logs=on_logs)
        run = self.watched.run
        if run is not None:
            copies.append(Copy(f"command: {shlex.join(command_line(run))}", partial(_command, run)))
            copies.append(Copy("report as Markdown, for an issue", partial(_report, run), "md"))
        return copies

    def _output(self, world_size: int, *, on_logs: bool) -> list[Copy]:
        log = self.watched.playback.source.logs()
        if on_logs:
            groups = {"output: {} in sight": self.output.in_sight, "output: {} found": self.output.found}
        else:
            if self.watched.playback.held is None:
                log.poll()
            groups = {"output: the last {}": log.entries[-LAST_LINES:]}
        return [
            Copy(
                name.format(f"{len(entries):,} line{'s' * (len(entries) != 1)}"),
                partial(_lines, entries, world_size),
            )
            for name, entries in groups.items()
            if entries
        ]

    async def _copy(self, chosen: Copy) -> None:
        try:
            text = await on_daemon_thread(chosen.text)
        except (DdpmonError, OSError) as error:
            self.dashboard.say(f"nothing copied: {plain_text(str(error))}")
            return
        text = utf8("\n".join(map(plain_text, text.split("\n"))))
        small = len(text.encode()) <= MAX_CLIPBOARD_BYTES
        if small:
            self.dashboard.copy_to_clipboard(text)
        try:
            path = shown_path(save_text(f"{text}\n", f"copied.{chosen.suffix}", self.watched.run))
            self.dashboard.say(f"copied, also to {path}" if small else f"too long for a clipboard: copied to {path}")
        except OSError as error:
            self.dashboard.say(f"{'copied' if small else 'nothing copied'}; no file was written: {error.strerror}")


def _lines(entries: Sequence[FoldedLine], world_size: int) -> str:
    return "\n".join(written(each, world_size) for each in entries)


def _report(run: Run) -> str:
    from ddpmon.export import markdown, report  # the first screen does not need these modules

    return markdown.report(report.build(run))


def _command(run: Run) -> str:
    folder = f"cd {shlex.quote(run.cwd)} && " if run.cwd else ""
    variables = "".join(f"{name}={shlex.quote(value)} " for name, value in run.environment.items())
    return f"{folder}{variables}{shlex.join(command_line(run))}"


def shown_path(path: Path) -> str:
    """Return a path for display, with ~ for the home directory."""
    home = os.path.expanduser("~")
    return plain_text(f"~{str(path)[len(home) :]}" if str(path).startswith(f"{home}/") else str(path))
