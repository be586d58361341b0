"""Any key, click and resize, on any screen, in any state: nothing of it may end the dashboard.

Each walk is made from its seed, which is its name; it says what it did where it ended.
"""

import itertools
import random

import pytest
from textual.geometry import Size

from ddpmon.store.parts import with_parts
from ddpmon.tui import keys
from ddpmon.tui.views import ViewName
from tests.tui import measured, odd, snapshots, through_time
from tests.tui.driving import drive, screen_text
from tests.tui.tape import FakeTape

WALKS = 6
MORE_KEYS = (
    "escape",
    "tab",
    "shift+tab",
    "enter",
    "ctrl+p",
    "ctrl+u",
    "backspace",
    "a",
    "s",
    "k",
    "f1",
    "é",
    "日",
    "0",
)
"""Keys of dialogs, of Textual's own, and of nothing."""
VIEWS = tuple(sorted(ViewName))
SIZES = ((80, 24), (10, 3), (160, 50), (60, 12), (61, 13), (1, 1), (149, 20), (240, 70), (2, 80), (80, 14), (128, 20))
"""The smallest and the largest, and some on either side of where screens are laid out otherwise."""
LEAVING = {"app.detach", "app.interrupt"}
PRESSES = [
    (view, key.keys.split(",")[place % (1 + key.keys.count(","))])
    for number, key in enumerate(keys.SCREEN_KEYS)
    if key.action not in LEAVING
    for place, view in enumerate(
        key.views if set(key.views) < set(VIEWS) else [VIEWS[(number + more) % len(VIEWS)] for more in (0, 3, 7)]
    )
]
"""Every key of the table on each screen that has it of its own, and on some of those that all have.

Where several keys do the same, they take turns.
"""


@pytest.fixture(autouse=True)
def _copies_go_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class AnySource(through_time.GrantingSource):
    """Changes from one state to the other; the parts that screens request come with each."""

    def become(self, snapshot):
        self.plain = snapshot
        self.current = None if snapshot is None else with_parts(snapshot, self.store, self.requested)

    def request_view(self, view_request):
        if self.plain is not None:
            super().request_view(view_request)


def states():
    """All that a screen can be shown, but for a thousand ranks, which are slow to look at."""
    made = {**snapshots.STATES, **odd.MADE, **measured.MADE}.values()
    return [None, *(make() for make in made if make not in {odd.many, measured.many})]


async def look(app, pilot):
    """Everything that is drawn is as large as the terminal, and nothing in it can steer it."""
    await pilot.pause()
    assert app._exception is None
    width, height = app.size
    rows = app.screen._compositor.render_strips()
    assert len(rows) == height
    assert all(row.cell_length == width for row in rows)
    assert not {ch for ch in screen_text(app) if not ch.isprintable()} - {"\n"}


async def walk(app, pilot, dice, made, presses):
    """So many steps; what was done is printed, which pytest shows if it ends badly."""

    async def become():
        state = dice.choice(made)
        app.playback.source.silent = dice.choice([0.0, 2.0, 14.0, 1e9])
        app.playback.source.tape = dice.choice([None, None, FakeTape(), FakeTape(length_s=0.0, paused=True)])
        app.playback.source.become(state)
        app.tick()
        return f"{state.state if state else 'nothing'}, {len(state.ranks) if state else 0} ranks"

    async def resize():
        size = dice.choice([(10, 3), (240, 70), (80, 24), (dice.randint(10, 160), dice.randint(3, 50))])
        await pilot.resize_terminal(*size)
        return f"resize to {size}"

    async def click():
        at = dice.randrange(app.size.width), dice.randrange(app.size.height)
        await pilot.click(offset=at, times=dice.choice([1, 1, 2]))
        return f"click at {at}"

    async def other_key():
        name = dice.choice(MORE_KEYS)
        await pilot.press(name)
        return f"press {name}"

    for view, name in presses:
        if dice.random() < 0.4:
            print("  ", await dice.choice([become, become, resize, click, click, other_key])())
        if len(app.screen_stack) == 1 and app.current_mode != view:
            await app.action_go(view)
        print("  ", f"press {name} on {view}, {len(app.screen_stack) - 1} dialogs")
        await pilot.press(name)
        if dice.random() < 0.3:
            await look(app, pilot)
        while len(app.screen_stack) > 1 and dice.random() < 0.7:
            await pilot.press("escape")
    await look(app, pilot)


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_random_walk_ends_nowhere(seed):
    dice = random.Random(seed)
    order = random.Random(0).sample(PRESSES, len(PRESSES))
    presses = order[seed::WALKS]
    print(f"seed {seed}")
    made = states()
    source = AnySource(None, through_time.slow(ranks=4, late=1).store)
    left = []

    async def go(app, pilot):
        assert set(VIEWS) == set(app.views)
        app.leave = lambda: left.append("leave")
        await walk(app, pilot, dice, made, presses)

    app, _ = drive(source, go, size=(dice.randint(10, 160), dice.randint(3, 50)))
    assert app._exception is None


def test_every_state_is_drawn_whole_on_every_screen_at_any_size():
    sizes = itertools.cycle(SIZES)
    source = AnySource(None, through_time.slow(ranks=4, late=1).store)

    async def go(app, pilot):
        for view in VIEWS:
            await app.action_go(view)
            for number, state in enumerate(states()):
                size = next(sizes)
                source.become(state)
                await pilot.resize_terminal(*size)
                app.tick()
                print(view, number, size)
                await look(app, pilot)
                assert app.size == Size(*size)

    drive(source, go)
