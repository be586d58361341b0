"""Drives the dashboard without a terminal."""

import asyncio
from typing import Any

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from ddpmon.tui.app import DdpmonApp
from tests.deadlines import Deadline
from tests.fake_source import FakeSource

LONGEST_S = 300
_parse = Stylesheet._parse_rules
_parsed: dict[tuple[object, ...], list[RuleSet]] = {}


def _parse_once(sheet: Stylesheet, *arguments: Any, **options: Any) -> list[RuleSet]:
    """Parse a style sheet as Textual does, which is a sixth of the time of a test, once for all dashboards."""
    key = (*arguments, *sorted(options.items()), *sorted(sheet._variables.items()))
    if key not in _parsed:
        _parsed[key] = _parse(sheet, *arguments, **options)
    return _parsed[key]


Stylesheet._parse_rules = _parse_once


def screen_text(app) -> str:
    """What the screen shows, without spaces at the ends of lines."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


def drive(source, *steps, size=(80, 24), **options):
    """Run the dashboard: a step is a key to press, or a function of (app, pilot). Returns (app, screen's text)."""
    if not hasattr(source, "snapshot"):
        source = FakeSource(source)

    async def run():
        app = DdpmonApp(source, **options)
        text = ""
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for step in steps:
                if callable(step):
                    result = step(app, pilot)
                    if asyncio.iscoroutine(result):
                        await result
                elif app.is_running:
                    await pilot.press(step)
                await pilot.pause()
            if app.is_running:
                text = screen_text(app)
            for timer in list(app._timers):
                timer.stop()  # a frame while its screens are closed one by one would request what is left of them
            app.workers.cancel_all()  # as leaving the app does, but not the pilot, before it closes the screens
        return app, text

    # A dashboard that hangs fails its test before the runner's timeout ends all tests of this process.
    return asyncio.run(asyncio.wait_for(run(), LONGEST_S))


def seen(texts):
    """A step of `drive`: keep what the screen shows now."""

    def look(app, _):
        texts.append(screen_text(app))

    return look


def resized(width, height):
    """A step of `drive`: the terminal is that large from now on."""

    def resize(_, pilot):
        return pilot.resize_terminal(width, height)

    return resize


def until(holds):
    """A step of `drive`: wait until this is true of the app."""

    async def wait(app, pilot):
        deadline = Deadline(10)
        while not deadline.passed:
            if holds(app):
                return
            await pilot.pause(0.01)
        raise AssertionError("what is waited for never came")

    return wait


async def settle(app, pilot):
    """Until what goes on beside the screen is done."""
    await app.workers.wait_for_complete()
    await pilot.pause()
