import asyncio
import functools
import gc
import time
import weakref

import pytest
import textual.app
import textual.pilot
import textual.strip
from textual._context import active_app
from textual._styles_cache import StylesCache
from textual.css.stylesheet import Stylesheet
from textual.screen import Screen


@pytest.fixture(autouse=True, scope="session")
def css_is_parsed_once():
    """Textual parses the style sheets of each app anew, and here hundreds of apps have the same."""
    parse, parsed = Stylesheet._parse_rules, {}

    def parse_once(self, *arguments, **named):
        key = (tuple(sorted(self._variables.items())), arguments, tuple(sorted(named.items())))
        if key not in parsed:
            parsed[key] = parse(self, *arguments, **named)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


@pytest.fixture(autouse=True, scope="session")
def styles_keep_no_dashboard():
    """Textual keeps what two colours make for the last 1024 widgets, and with it all that those have drawn."""
    of_two_colours = StylesCache.get_inner_outer.__wrapped__
    kept = functools.cache(lambda base, background: of_two_colours(StylesCache, base, background))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StylesCache, "get_inner_outer", lambda _, base, background: kept(base, background))
        yield


class Forgetful:
    """A cache that keeps nothing."""

    def get(self, key):
        return None

    def __setitem__(self, key, value):
        pass


@pytest.fixture(autouse=True, scope="session")
def strips_are_cut_anew():
    """Each of Textual's strips has seven caches. Here few are drawn twice: they took a quarter of a test's time."""
    none_kept = Forgetful()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textual.strip, "FIFOCache", lambda _: none_kept)
        yield


PAINT = Screen._compositor_refresh
"""Paints what changed of a screen."""
unpainted = weakref.WeakSet()
"""Screens that would have been painted, were they to be seen before all is idle."""


def paint_later(screen):
    """Paint a screen once all is idle."""
    unpainted.add(screen)


async def until_idle(*_):
    """Until the event loop has nothing left to run, and what Textual puts off for an instant is done as well.

    No other timer is waited for, and no thread.
    """
    ready, app = asyncio.get_running_loop()._ready, active_app.get()
    idle = 0
    while idle < 3:
        hidden = app._batch_count and not app._exit  # between two screens
        await asyncio.sleep(0.002 if hidden else 0)
        idle = 0 if ready or hidden or (idle == 2 and put_off(app)) else idle + 1


def put_off(app):
    """Resizes and paints now where Textual would within 1/60 s; whether there was something to do."""
    if app._resize_timer is not None:
        app._check_resize()
        return True
    if app.screen_stack and app.screen._update_timer._active.is_set():
        app.screen._on_timer_update()
        return True
    waiting = [screen for screen in unpainted if screen.is_attached and screen.app is app]
    for screen in waiting:
        unpainted.discard(screen)
        PAINT(screen)
    return bool(waiting)


@pytest.fixture(autouse=True, scope="session")
def pilot_sleeps_no_longer_than_there_is_work():
    """Textual's pilot sleeps for 60 ms a key, and longer where the machine is busy: most of these tests' time.

    A new screen is laid out several times before it is idle. It is painted once, then.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textual.app, "wait_for_idle", until_idle)
        patch.setattr(textual.pilot, "wait_for_idle", until_idle)
        patch.setattr(Screen, "_compositor_refresh", paint_later)
        yield


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch, tmp_path):
    """The same terminal, time zone and (no) runs wherever the tests run."""
    monkeypatch.setenv("DDPMON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("NO_COLOR", "DDPMON_THEME", "COLORFGBG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    gc.collect(1)  # here, of its dashboards alone, and not somewhere in the middle of another test's


@pytest.fixture(autouse=True)
def no_other_jobs(monkeypatch):
    """Whatever else trains on this machine is on no screen; tests/attach is about such jobs."""
    monkeypatch.setattr("ddpmon.source.place.unwatched", lambda _: [])
