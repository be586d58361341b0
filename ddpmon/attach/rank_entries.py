"""Makes all ranks of a job run Python code, and collects their states and answers. Standard library only."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ddpmon.attach import stacks
from ddpmon.attach.probe_code import BEGUN
from ddpmon.attach.process_entry import Entry, EntryError
from ddpmon.runs import Process, plain_file
from ddpmon.runs.run import ENDED, ENTERING, IN, REFUSED, STARTING, WAITING, Attached

PYSPY_AFTER_S = 3.0
"""Seconds for a rank to return to Python code. After that, py-spy reads the stack of a rank that has not."""
_UNDER_WAY = {ENTERING, WAITING, STARTING}
_LARGEST_REPLY = 1 << 16


class Entries:
    """Makes each rank of a job run the same Python code once, and collects the answers."""

    def __init__(self, ranks: Iterable[Attached], folder: Path, text: Callable[[Path], str], what: str) -> None:
        """Begin to enter every rank.

        Args:
            ranks: Ranks to enter.
            folder: Folder for the code and answer files.
            text: Returns the code for a rank; gets the path of the file that the code writes its answer to.
            what: Prefix of the names of these files.

        """
        self.ranks = [dataclasses.replace(each, state=ENTERING, why="") for each in ranks]
        """The ranks with their states: a rank is `IN` once it has answered."""
        self.replies: dict[Process, dict[str, Any]] = {}
        self.stacks: dict[Process, list[stacks.Frame]] = {}
        """Python stacks that py-spy read from ranks that stay in C code, the innermost function first."""
        self._folder = folder
        self._files: dict[Process, tuple[Entry, Path]] = {}
        self._questions: dict[Process, stacks.Question] = {}
        for place, rank in enumerate(self.ranks):
            name = f"{what}-{rank.process.pid}"
            reply = folder / f"{name}.json"
            try:
                reply.unlink(missing_ok=True)
                self._files[rank.process] = Entry(rank.process, text(reply), folder, name), reply
            except EntryError as error:
                self.ranks[place] = _refused(rank, str(error))
            except OSError as error:
                self.ranks[place] = _refused(rank, f"{name}: {error.strerror}")

    def poll(self) -> bool:
        """Update the state of every rank; return whether any state has changed."""
        before = list(self.ranks)
        self.ranks = [self._advanced(each) if each.state in _UNDER_WAY else each for each in before]
        return self.ranks != before

    def _advanced(self, rank: Attached) -> Attached:
        running, reply = self._files[rank.process]
        try:
            if rank.state == ENTERING and running.poll():
                rank = dataclasses.replace(rank, state=WAITING)
            if rank.state == WAITING and Path(f"{reply}{BEGUN}").exists():
                rank = dataclasses.replace(rank, state=STARTING, why="")
            if rank.state == WAITING and not rank.why and time.monotonic() - running.began_at > PYSPY_AFTER_S:
                rank = dataclasses.replace(rank, why=self._place(rank.process))
            answer = _read(reply) if rank.state == STARTING else None
        except EntryError as error:
            return _refused(rank, str(error))
        if answer is not None:
            self.replies[rank.process] = answer
            number = answer.get("rank")
            is_number = isinstance(number, int) and not isinstance(number, bool) and number >= 0
            rank = dataclasses.replace(rank, state=IN, rank=number if is_number else rank.rank)
            if answer.get("ok") is not True:
                rank = _refused(rank, str(answer.get("error") or "the rank gave no reason"))
        elif not rank.process.alive():
            rank = dataclasses.replace(rank, state=ENDED)
        return rank

    def _place(self, process: Process) -> str:
        """Return a phrase with the line of code that a rank executes; "" while py-spy is still reading its stack."""
        program = stacks.py_spy()
        if program is None:
            return stacks.NO_PY_SPY
        if process not in self._questions:
            try:
                self._questions[process] = stacks.Question(program, process, self._folder)
            except OSError as error:
                return f"where py-spy cannot look: {error.strerror}"
        frames = self._questions[process].frames()
        if frames:
            self.stacks[process] = frames
            return f"in {frames[0]}"
        return "" if frames is None else "where py-spy cannot look"

    @property
    def refused(self) -> Attached | None:
        """Return the first rank that cannot be entered; None if there is none."""
        return next((each for each in self.ranks if each.state == REFUSED), None)

    @property
    def settled(self) -> bool:
        """Return whether every rank has answered, was refused, or has ended."""
        return not any(each.state in _UNDER_WAY for each in self.ranks)

    @property
    def entering(self) -> bool:
        """Return whether a debugger is still attached to any rank."""
        return any(each.state == ENTERING for each in self.ranks)


def _refused(rank: Attached, why: str) -> Attached:
    if not rank.process.alive():
        return dataclasses.replace(rank, state=ENDED)
    return dataclasses.replace(rank, state=REFUSED, why=" ".join(why.split())[:400])


def _read(path: Path) -> dict[str, Any] | None:
    """Return a rank's answer; None if there is none yet. Raises EntryError if the answer is invalid."""
    try:
        raw = json.loads(plain_file.content(path, _LARGEST_REPLY))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EntryError(f"ddpmon cannot read the rank's answer: {error}") from None
    if not isinstance(raw, dict):
        raise EntryError("the rank's answer is not valid")
    return raw
