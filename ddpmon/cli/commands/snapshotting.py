"""ddpmon snapshot: writes a screen of the dashboard into a file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from ddpmon.cli.options import drafted, output_option, run_argument
from ddpmon.cli.reaching import find
from ddpmon.errors import HubUnreachableError, UsageError
from ddpmon.remote.address import parse
from ddpmon.tui.views import ViewName

MAX_SCREEN_WAIT_S = 20.0
"""Longest time, in seconds, to wait for all data of a screen."""


def _size(_context: click.Context, _param: click.Parameter, typed: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,3})x(\d{1,3})", typed)
    columns, lines = map(int, match.groups()) if match else (0, 0)
    if not (20 <= columns <= 500 and 5 <= lines <= 300):
        raise click.BadParameter(f"{typed!r} is no size: give COLUMNSxLINES from 20x5 to 500x300, as in 160x50.")
    return columns, lines


@click.command()
@run_argument("run", required=False)
@click.option(
    "--screen", type=click.Choice(list(map(str, ViewName))), default="world", show_default=True, help="Screen to draw."
)
@click.option(
    "--size", callback=_size, default="120x36", show_default=True, metavar="COLUMNSxLINES", help="Size of the screen."
)
@output_option("Write FILE.svg, FILE.png or FILE.txt; the default is text on stdout.")
def snapshot(run: str | None, screen: str, size: tuple[int, int], output: Path | None) -> None:
    """Draw a screen of the dashboard without a terminal, for CI, issues and chat.

    The run is drawn as it is now, or as it ended. RUN may also be HOST:RUN. --screen inspect shows the rank that World
    lists first. A .png needs the program rsvg-convert.
    """
    import asyncio

    suffix = "txt" if output is None else output.suffix.removeprefix(".").lower()
    if suffix not in {"svg", "png", "txt"}:
        raise UsageError(f"-o {output}: the name must end in .svg, .png or .txt")
    os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"  # Textual reads this when it is imported; no terminal is queried.
    from ddpmon.tui import config_check, picture
    from ddpmon.tui.app import DdpmonApp

    config_check.check_config()
    source, place = _opened(run)
    try:
        app = DdpmonApp(source, readonly=True, place=place)
        view = ViewName(screen)
        look, made = picture.completeness_check(app), [""]

        def take() -> bool:
            if app.view_name is not view and app.playback.newest is not None:
                opening = (
                    (app.inspecting.inspect_rank, ViewName.WORLD) if view is ViewName.INSPECT else (app.action_go, view)
                )
                app.call_later(*opening)
                return False
            enough = look()
            made[0] = (
                f"{picture.screen_text(app)}\n"
                if suffix == "txt"
                else picture.screen_svg(app, f"ddpmon {app.watched.name}")
            )
            return enough

        asyncio.run(picture.draw_until(app, size, (), take, within_s=MAX_SCREEN_WAIT_S))
        if app.playback.newest is None:
            raise HubUnreachableError("the run's hub does not answer; ddpmon report reads its recording")
    finally:
        source.close()
    content = picture.svg_to_png(made[0]) if suffix == "png" else made[0].encode("utf-8", "replace")
    with drafted(output) as draft:
        if draft is None:
            click.echo(content.decode(), nl=False)
        else:
            draft.write_bytes(content)


def _opened(run: str | None) -> tuple[Any, Any]:
    """Return the source of the run's snapshots, and the machine that the run is on (None for this machine)."""
    address = parse(run)
    if address is not None and run is not None:
        from ddpmon.remote.source import RemotePlace, RemoteSource

        remote = RemoteSource.open(address, RemoteSource.call(address))
        return remote, RemotePlace(remote)
    from ddpmon.source import attach

    return attach(find(run)), None
