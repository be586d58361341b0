"""Measure what the dashboard costs where it runs, and how fast it answers, with every rank changing twice a second.

    python benchmarks/render.py                              all of it, some 25 minutes
    python benchmarks/render.py --ranks 64 --sizes 80x24     one world, one terminal
    python benchmarks/render.py --screens world ranks        only these screens
    python benchmarks/render.py --parts hub screens start hour   which parts; all of them by default

Synthetic ranks (`synthetic_ranks.py`) feed a real hub, and the dashboard of `ddpmon attach` watches it in a terminal of
its own (a pty with 24-bit colour). For each screen:

- CPU: share of a core that the dashboard's process takes, all threads, by the kernel's count;
- KB/s: bytes that it writes to the terminal;
- frame: from reading a snapshot to the last byte written for it, median and 95th percentile of the frames;
- switch: from the press of the screen's key until the screen is shown; key: from a key on the screen until its answer.

`hub` is the share of a core that the run's hub takes. `start` is the time from starting `ddpmon attach` until the
screen is full. `hour` is the memory after 7,200 frames, which is an hour at two a second: snapshots of the hub are
shown one after the other without waiting, on all screens in turn.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
from launching import cpu_s, middle, options
from synthetic_ranks import Viewer, world_at_work
from terminal import Dashboard, shown

from ddpmon.messages import SeriesRequest, TimelineRequest, ViewRequest, encode

SIZES = {"80x24": (80, 24), "160x50": (160, 50)}
RANKS = (64, 1024)
PARTS = ("hub", "screens", "start", "hour")


@dataclass(frozen=True)
class Screen:
    """A screen, and how to recognize that a key was answered."""

    key: bytes
    title: str
    """A text that is on no other screen but World."""
    within: bytes = b""
    """A key that works on the screen."""
    said: str = ""
    """Regular expression for the text that the key changes."""


SCREENS = {
    "world": Screen(b"1", "world: slower than peers", b"s", "─(ranks, [^─]*)"),
    "ranks": Screen(b"2", "ranks, ", b"s", "─(ranks, [^─]*)"),
    "heat": Screen(b"3", "heat: ", b"w", "(heat: .*?/column)"),
    "comm": Screen(b"4", "wait and transfer in a step", b"s", "wait and transfer in a step, ([^─╌]*)"),
    "timeline": Screen(b"5", "the last ", b"w", r"the last (\d+|step)"),
    "devices": Screen(b"6", "what are the machines doing", b"s", "what are the machines doing([^─]*)"),
    "logs": Screen(b"7", "output of "),
    "runs": Screen(b"8", "runs, the latest first"),
    "inspect": Screen(b"\r", "─rank ", b"]", r"─(rank \d+)"),
}
FIRST = "world: slower than peers"
FULL = ("q detach", FIRST, "ranks, slowest first")
"""Texts on a full first screen; its last line but one also has ranks."""
START_S, FILLED_S = 10.0, 2.0
"""Longest time, in seconds, for a dashboard to show its first screen, and then to fill it."""
PRESSES = 12
HOUR_FRAMES = 7200
KEPT_SNAPSHOTS = 30


@dataclass
class Press:
    """A key press, and the answer to it."""

    at: float
    screen: str
    within: bool
    before: str | None = None
    took_ms: float | None = None

    def look(self, at: float, text: str) -> bool:
        """Return whether the press is answered by a screen's text; if so, record how long that took."""
        screen = SCREENS[self.screen]
        if self.within:
            found = re.search(screen.said, text)
            there = found is not None and found[1] != self.before
        else:
            there = screen.title in text and (self.screen == "world" or FIRST not in text)
        if there:
            self.took_ms = (at - self.at) * 1e3
        return there


def answer(presses: list[Press], dashboard: Dashboard) -> None:
    """Find when each press was answered; those without an answer are left unchanged."""
    waiting = list(presses)
    before = ""
    for at, text in dashboard.played():
        while waiting and waiting[0].at <= at:
            press = waiting[0]
            if press.within and press.before is None:
                found = re.search(SCREENS[press.screen].said, before)
                press.before = found[1] if found else ""
            if not press.look(at, text) and (len(waiting) == 1 or waiting[1].at > at):
                break
            waiting.pop(0)
        before = text


# --- what runs inside the dashboard ---


def watch_frames(file: str) -> None:
    """Record every frame of the dashboard: when it ended, and the milliseconds from the tick to its bytes."""
    from textual.app import App

    from ddpmon.tui.app import DdpmonApp

    out = open(file, "w", buffering=1 << 14)  # noqa: SIM115  open as long as the process
    # The dashboard freezes existing objects before it draws, so no garbage collection closes this file.
    atexit.register(out.flush)
    began: list[float] = []
    tick, display = DdpmonApp.tick, App._display

    def timed_tick(self) -> None:
        began[:] = [time.perf_counter()]
        tick(self)

    def timed_display(self, screen, renderable) -> None:
        display(self, screen, renderable)
        if began and renderable is not None:
            now = time.perf_counter()
            print(now, (now - began.pop()) * 1e3, file=out)

    DdpmonApp.tick, App._display = timed_tick, timed_display


def attach(run_id: str, frames: str) -> None:
    """Run `ddpmon attach` on a run, and record its frames."""
    from ddpmon import runs
    from ddpmon.cli import watching

    watch_frames(frames)
    watching.dashboard(runs.find(run_id), 5.0, owns_run=False)


def hour(folder: str, count: int) -> None:
    """Draw frames without waiting, on all screens in turn; write the memory at the start and at the end."""
    import asyncio

    from ddpmon.messages import decode_snapshot
    from ddpmon.tui.app import DdpmonApp
    from tests.fake_source import FakeSource

    kept = [path.read_bytes() for path in sorted(Path(folder).glob("*.frame"))]

    class Passing(FakeSource):
        """A source that repeats the stored snapshots, decoded anew as a live source does."""

        def __init__(self) -> None:
            self.frames = itertools.cycle(kept)
            super().__init__(decode_snapshot(next(self.frames)))

        def on(self) -> None:
            self.current = decode_snapshot(next(self.frames))

    class Fast(DdpmonApp):
        def on_mount(self) -> None:
            super().on_mount()
            self.run_worker(self.hurry())

        async def hurry(self) -> None:
            await asyncio.sleep(2)
            self.told = [psutil.Process().memory_info().rss / 1e6]
            for number in range(count):
                if number % (count // 40) == 0:
                    places = [name for name in SCREENS if name not in {"inspect", "runs"}]
                    await self.action_go(places[number // (count // 40) % len(places)])
                self.playback.source.on()
                self.tick()
                await asyncio.sleep(0)
                self.screen._on_timer_update()
                await asyncio.sleep(0.001)
            self.told.append(psutil.Process().memory_info().rss / 1e6)
            self.exit()

    app = Fast(Passing())
    asyncio.run(app.run_async())
    (Path(folder) / "memory.json").write_text(json.dumps(app.told))


# --- the parts ---


def share(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def both(times: Iterable[float | None]) -> str:
    """Return the median and the 95th percentile as text."""
    values = [ms for ms in times if ms is not None]
    return f"{statistics.median(values):5.0f} {share(values, 95):5.0f}" if values else "    –     –"


def screens(run_id: str, ranks: int, size: str, names: list[str], seconds: float) -> None:
    """Print a line for each screen."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as folder:
        frames = Path(folder) / "frames"
        command = [sys.executable, __file__, "--attach", run_id, "--frames", str(frames)]
        with shown(command, SIZES[size]) as dashboard:
            if dashboard.collect(3 * START_S, FIRST.encode()) is None:
                raise SystemExit("no dashboard came")
            dashboard.collect(2.0)
            presses: list[Press] = []
            spans = {name: one_screen(dashboard, name, seconds, presses) for name in names}
            memory = dashboard.memory_mb()
        told = [tuple(map(float, line.split())) for line in frames.read_text().splitlines()]
    answer(presses, dashboard)
    for name, (cpu, rate, since, until) in spans.items():
        spent = [ms for at, ms in told if since <= at < until]
        took = [[p.took_ms for p in presses if (p.screen, p.within) == (name, within)] for within in (False, True)]
        missing = sum(ms is None for times in took for ms in times)
        print(
            f"{ranks:5}  {size:6}  {name:9} {cpu:6.1%}  {rate / 1e3:6.1f}  {both(spent)}  {both(took[0])}"
            f"  {both(took[1])}{f'  {missing} unanswered' if missing else ''}",
            flush=True,
        )
    print(f"{ranks:5}  {size:6}  memory of the dashboard then: {memory:.0f} MB", flush=True)


def one_screen(
    dashboard: Dashboard, name: str, seconds: float, presses: list[Press]
) -> tuple[float, float, float, float]:
    """Return CPU share, bytes a second, and beginning and end of the measurement; add key presses to `presses`."""
    screen, other = SCREENS[name], SCREENS["ranks" if name in {"world", "inspect"} else "world"]
    for number in range(PRESSES // 2):
        dashboard.press_now(other.key)
        dashboard.collect(0.5 + 0.1 * number)  # At a different moment between two frames each time.
        presses.append(Press(dashboard.press_now(screen.key), name, within=False))
        dashboard.collect(0.7)
    dashboard.collect(1.5)
    began, used = time.perf_counter(), cpu_s(dashboard.process.pid)
    dashboard.collect(seconds)
    ended = time.perf_counter()
    cpu = (cpu_s(dashboard.process.pid) - used) / (ended - began)
    rate = dashboard.bytes_since(began) / (ended - began)
    for number in range(PRESSES if screen.within else 0):
        presses.append(Press(dashboard.press_now(screen.within), name, within=True))
        dashboard.collect(0.5 + 0.1 * (number % 7))
    return cpu, rate, began, ended


def start(run_id: str, ranks: int, size: str, times: int) -> None:
    """Measure how long `ddpmon attach` takes to a full screen."""
    taken = []
    for _ in range(times):
        with shown([sys.executable, "-m", "ddpmon", "attach", run_id], SIZES[size]) as dashboard:
            dashboard.collect(START_S, FIRST.encode())
            dashboard.collect(FILLED_S)
            taken.append(dashboard.first_shown(is_full))
    known = [seconds for seconds in taken if seconds is not None]
    said = middle(known, 2, " s") if known else "never"
    print(f"{ranks:5}  {size:6}  ddpmon attach to a full screen: median of {times} {said}", flush=True)


def is_full(text: str) -> bool:
    """Return whether all parts of the first screen are shown."""
    last = text.splitlines()[-2].split()
    return all(mark in text for mark in FULL) and bool(last) and last[0].isdigit() and bool(re.search("[⠁-⣿]", text))


def hub(run_id: str, ranks: int, seconds: float) -> None:
    """Measure the hub that collects, analyses and records these ranks while a viewer looks on."""
    from ddpmon import runs

    (process,) = [each for each in psutil.Process().children() if "ddpmon.hub" in each.cmdline()]
    viewer = Viewer(runs.find(run_id))
    first, used, began = viewer.next()[1].step, cpu_s(process.pid), time.perf_counter()
    while time.perf_counter() - began < seconds:
        last = viewer.next()[1].step
    took, used = time.perf_counter() - began, cpu_s(process.pid) - used
    viewer.close()
    print(
        f"{ranks:5}  the hub: {used / took:.0%} of a core, at {(last - first) * ranks / took:,.0f} records a second",
        flush=True,
    )


def simulated_hour(run_id: str, ranks: int, size: str, count: int) -> None:
    """Print the memory after a simulated hour."""
    from ddpmon import runs

    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as folder:
        viewer = Viewer(runs.find(run_id))
        heat = SeriesRequest(rows=SIZES[size][1] - 6, columns=SIZES[size][0] - 20, beyond_chance=True)
        view_request = ViewRequest(heat, TimelineRequest(rows=20))
        for number in range(KEPT_SNAPSHOTS):
            (Path(folder) / f"{number:03}.frame").write_bytes(encode(viewer.next(view_request=view_request)[1]))
        viewer.close()
        command = [sys.executable, __file__, "--hour", folder, "--count", str(count)]
        with shown(command, SIZES[size]) as dashboard:
            used = 0.0
            began = time.perf_counter()
            with contextlib.suppress(SystemExit):
                while dashboard.process.poll() is None:
                    dashboard.collect(0.5)
                    dashboard.written.clear()
                    used = cpu_s(dashboard.process.pid) if dashboard.process.poll() is None else used
            took = time.perf_counter() - began
        first, last = json.loads((Path(folder) / "memory.json").read_text())
    print(
        f"{ranks:5}  {size:6}  memory {first:.0f} MB at the start, {last:.0f} MB after {count:,} frames"
        f" without waiting ({used / count * 1e3:.1f} ms of CPU each, in {took:.0f} s)",
        flush=True,
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=list(RANKS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--screens", nargs="+", choices=SCREENS, default=list(SCREENS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of each screen")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--times", type=int, default=7, help="that the dashboard is started")
    parser.add_argument("--count", type=int, default=HOUR_FRAMES, help="frames of the hour")
    parser.add_argument("--attach", help=argparse.SUPPRESS)
    parser.add_argument("--frames", help=argparse.SUPPRESS)
    parser.add_argument("--hour", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.attach:
        attach(args.attach, args.frames)
        return
    if args.hour:
        hour(args.hour, args.count)
        return
    parts: dict[str, Callable[[str, int, str], None]] = {
        "start": lambda run, ranks, size: start(run, ranks, size, args.times),
        "screens": lambda run, ranks, size: screens(run, ranks, size, args.screens, args.seconds),
        "hour": lambda run, ranks, size: simulated_hour(run, ranks, size, args.count),
    }
    print("                                           frame ms   switch ms      key ms")
    print("ranks  size    screen       CPU    KB/s  median   p95 median   p95 median   p95", flush=True)
    for ranks in args.ranks:
        with world_at_work(ranks) as run:
            if "hub" in args.parts:
                hub(run.id, ranks, 2 * args.seconds)
            for size in args.sizes:
                for part in args.parts:
                    if part in parts and (part != "hour" or size == args.sizes[-1]):
                        parts[part](run.id, ranks, size)


if __name__ == "__main__":
    main()
