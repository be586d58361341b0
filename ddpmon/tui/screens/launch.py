"""The launch form: what `ddpmon run` takes, beginning with what was started last; and the prompt for another name."""

from __future__ import annotations

import contextlib

from ddpmon import runs
from ddpmon.errors import UsageError
from ddpmon.launch import last_launch, spec
from ddpmon.launch.last_launch import LaunchForm
from ddpmon.launch.prepare import prepare
from ddpmon.launch.start import start
from ddpmon.runs import Run
from ddpmon.tui.lines import plain
from ddpmon.tui.palette import Palette
from ddpmon.tui.screens.form import Field, Form


def launch_form(palette: Palette) -> Form:
    """Starts a run as `ddpmon run` does, and dismisses with it."""
    last = last_launch.last()
    folder = last.folder
    if not folder:
        with contextlib.suppress(UsageError):  # it is gone: another one is to be typed
            folder = spec.here()
    fields = (
        Field("script", last.script, "a file, or -m and a module", "train.py, or -m package.train"),
        Field("arguments", last.arguments, "the script's own, quoted as in a shell", "none"),
        Field("processes", last.processes, "ranks on this machine: a number, gpu (one for each), cpu or auto", "1"),
        Field("name", last.name, "letters, digits, '.', '_' and '-'; empty: the script's name", "the script's"),
        Field("environment", last.environment, "KEY=VALUE, separated by spaces, quoted as in a shell", "as here"),
        Field("folder", folder, "working directory; a relative script path starts there"),
    )
    return Form("Start a run", fields, _launch, palette, "start", "starting…")


def _launch(texts: dict[str, str]) -> Run:
    typed = LaunchForm(**texts)
    options = typed.asked()
    with runs.reserved() as run_id:
        run = start(prepare(options, run_id), run_id)
    last_launch.remember(typed)
    return run


def rename_form(run: Run, palette: Palette) -> Form:
    """Gives a run another name, and dismisses with it."""
    field = Field("name", run.name, "letters, digits, '.', '_' and '-', 64 at most")

    def take(texts: dict[str, str]) -> Run:
        return runs.rename(run, texts["name"].strip())

    return Form(f"Another name for {plain(run.name)} ({plain(run.id)})", (field,), take, palette, "rename", "renaming…")
