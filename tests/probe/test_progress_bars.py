"""Test what is read from real tqdm bars, on a made-up clock."""

from __future__ import annotations

import io
import math
import threading
import weakref
from collections.abc import Iterator

import pytest
import tqdm

from ddpmon.probe.loop_progress import Loops
from ddpmon.probe.progress_bars import Bars, bar_readings


class Training:
    """A script that trains: every batch takes its time, and once a second somebody looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1e9
        self.step = 0
        self.bars = Bars()
        self.epoch_at: float | None = None
        self.totals: list[int | None] = []
        self.epochs: list[tuple[int | None, int | None]] = []
        self._look_at = self.now + 0.3
        monkeypatch.setattr("tqdm.std.time", lambda: self.now)

    def passes(self, seconds: float) -> None:
        end = self.now + seconds
        while self._look_at <= end:
            self.now = self._look_at
            self._look_at += 1.0
            self.bars.read_all(self.step, self.now, self.epoch_at)
            self.totals.append(self.bars.total)
            self.epochs.append((self.bars.epoch, self.bars.epochs))
        self.now = end

    def batch(self, seconds: float, *, step: bool = True) -> None:
        self.passes(0.7 * seconds)
        self.step += step
        self.passes(0.3 * seconds)

    @property
    def told(self) -> set[int]:
        """Every total that was believed at some time."""
        return {total for total in self.totals if total is not None}


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
    assert bar_readings() == []
    return Training(monkeypatch)


def bar(*args, **named) -> tqdm.tqdm:
    return tqdm.tqdm(*args, file=io.StringIO(), **named)


@pytest.mark.parametrize("seconds", [0.002, 0.03, 0.4, 3.0])
def test_the_bar_that_advances_with_the_steps_tells_how_many_there_will_be(training: Training, seconds: float) -> None:
    steps = max(30, int(12 / seconds))
    for _ in bar(range(steps)):
        training.batch(seconds)
    assert training.told == {steps}
    assert training.totals.index(steps) < 15, "within a few steps or seconds"
    assert training.bars.epoch is None


@pytest.mark.parametrize("seconds", [0.05, 0.7])
def test_epochs_that_a_bar_outside_counts_are_multiplied_and_evaluation_is_none_of_it(
    training: Training, seconds: float
) -> None:
    for _ in bar(range(3)):
        for _ in bar(range(100)):
            training.batch(seconds)
        for _ in bar(range(60)):
            training.passes(0.2)
    assert training.told == {300}
    known = [epoch for epoch in training.epochs if epoch != (None, None)]
    assert known == sorted(known)
    assert set(known) == {(1, 3), (2, 3), (3, 3)}
    assert training.totals[-1] == 300, "kept when the bars are gone"


def count_samples(training: Training, total: int, batch: int, seconds: float, *, accumulated: int = 1) -> int:
    """Train for one epoch, with a bar that counts samples or tokens. Return its steps: the last may be of fewer."""
    with bar(total=total) as shown:
        batches = math.ceil(total / batch)
        for number in range(1, batches + 1):
            training.batch(seconds, step=number % accumulated == 0 or number == batches)
            shown.update(min(batch, total - shown.n))
    return math.ceil(batches / accumulated)


@pytest.mark.parametrize(
    ("total", "batch", "accumulated", "seconds", "by"),
    [
        (32 * 400, 32, 1, 0.1, 12),
        (2_000_000, 2048, 1, 0.043, 10),
        (50_000, 512, 1, 0.4, 3),
        (50_000, 512, 1, 2.3, 15),
        (1000, 32, 1, 0.4, 3),
        (2_000_000, 8192, 1, 0.23, 5),
        (50_000, 128, 4, 0.4, 10),
    ],
)
def test_a_bar_that_counts_samples_or_tokens(
    training: Training, total: int, batch: int, accumulated: int, seconds: float, by: int
) -> None:
    steps = count_samples(training, total, batch, seconds, accumulated=accumulated)
    assert steps == training.step
    assert training.told == {steps}
    assert training.totals.index(steps) < by, "within a few steps or seconds"


def test_samples_are_counted_anew_in_each_epoch(training: Training) -> None:
    for _ in bar(range(3)):
        count_samples(training, 50_000, 512, 0.4)
    assert training.told == {training.step} == {3 * 98}
    assert set(training.epochs[3:]) == {(1, 3), (2, 3), (3, 3)}


def test_bars_of_downloads_and_of_validation_samples_tell_nothing(training: Training) -> None:
    validated = bar(total=100_000)
    with bar(total=3_000_000_000, unit="B", unit_scale=True) as downloaded:
        for _ in range(3):
            for _ in range(60):
                training.batch(0.4)
                downloaded.update(10_000_000)
            with bar(total=10_000) as shown:
                for _ in range(40):
                    training.passes(0.3)
                    shown.update(250)
                    validated.update(250)
    validated.close()
    assert training.told == set()


def test_steps_before_the_bar_began_are_added(training: Training) -> None:
    for _ in range(33):
        training.batch(0.5)
    for _ in bar(range(50)):
        training.batch(0.5)
    (total,) = training.told
    assert total == pytest.approx(83, abs=1)


def test_a_resumed_bar_counts_what_is_left(training: Training) -> None:
    for _ in bar(range(60), initial=140, total=200):
        training.batch(0.3)
    assert training.told == {60}


def test_one_bar_that_is_reset_for_each_epoch(training: Training) -> None:
    outer, inner = bar(total=2), bar(total=80)
    for _ in range(2):
        inner.reset()
        for _ in range(80):
            training.batch(0.1)
            inner.update()
        outer.update()
    inner.close()
    outer.close()
    assert training.told == {160}


def test_epochs_written_beside_the_bar(training: Training) -> None:
    for epoch in range(1, 4):
        for _ in bar(range(40), desc=f"Epoch [{epoch}/3]"):
            training.batch(0.2)
    assert training.told == {120}
    assert training.epochs[-1] == (3, 3)


@pytest.mark.parametrize("written", [2, 3])
def test_epochs_written_from_0_are_counted_from_1_and_of_how_many_stays_open(training: Training, written: int) -> None:
    for epoch in range(3):
        for _ in bar(range(40), desc=f"Epoch {epoch}/{written}"):
            training.batch(0.2)
    assert training.told == set()
    assert set(training.epochs) == {(None, None), (1, None), (2, None), (3, None)}


def test_a_bar_that_comes_again_is_not_the_whole_run(training: Training) -> None:
    for _ in range(3):
        for _ in bar(range(40)):
            training.batch(0.2)
    assert training.told == {40}
    assert training.totals[-1] is None
    assert all(total is None for total in training.totals[20:]), "from its second pass on"


def test_a_bar_around_epochs_that_nobody_shows_is_the_whole_run(training: Training) -> None:
    shown = bar(total=120)
    for _ in range(3):
        training.passes(0.1)
        training.epoch_at = training.now
        for _ in range(40):
            training.batch(0.2)
            shown.update()
    shown.close()
    assert training.told == {120}


def test_a_bar_over_epochs_alone(training: Training) -> None:
    for _ in bar(range(12)):
        for _ in range(30):
            training.batch(0.1)
        training.passes(1.5)
    assert training.told
    assert all(total == pytest.approx(360, rel=0.1) for total in training.told)
    assert training.totals[-1] == pytest.approx(360, abs=12)
    assert training.epochs[-1] == (12, 12)


def test_a_bar_outside_that_counts_something_else_is_left_out_once_that_shows(training: Training) -> None:
    other = bar(total=7)
    for _ in bar(range(3)):
        for _ in bar(range(50)):
            training.batch(0.1)
    assert training.totals[-1] == 150 * 7, "two bars outside: each multiplies"
    other.close()

    training.bars = Bars()
    training.step = 0
    training.totals.clear()
    other = bar(total=7)
    for _ in range(2):
        for _ in bar(range(50), desc="Epoch"):
            training.batch(0.1)
    assert training.totals[3] == 350
    assert training.totals[-1] is None
    for number, _ in enumerate(bar(range(400))):
        training.batch(0.1, step=number < 200 or number % 2 == 0)
    assert training.totals[-1] == pytest.approx(400, abs=1), "another bar, whose ratio changes in its midst"
    other.close()


def test_bars_are_read_without_their_lock_and_are_not_kept(training: Training) -> None:
    shown = bar(total=50)
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        with tqdm.tqdm.get_lock():
            holds.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    holds.wait(30)
    looker = threading.Thread(target=training.bars.read_all, args=(1, 0.0))
    looker.start()
    looker.join(10)
    assert not looker.is_alive()
    done.set()
    holder.join()
    gone = weakref.ref(shown)
    del shown
    assert gone() is None


def test_bars_that_cannot_be_read_are_left_alone_and_that_is_said(training: Training) -> None:
    class Odd(tqdm.tqdm):
        broken = False

        @property
        def total(self):
            if self.broken:
                raise RuntimeError("not here")
            return 5

        @total.setter
        def total(self, value):
            pass

    notes: list[str] = []
    odd = Odd(range(5), file=io.StringIO())
    Odd.broken = True
    loops = Loops(notes.append)
    assert loops.progress(3, 0.0) == loops.progress(4, 1.0) == (None, None, None)
    Odd.broken = False
    odd.close()
    assert notes == ["ddpmon could not read the progress bars (RuntimeError), and no longer tries"]


def test_the_samplers_epoch_counts_from_one(training: Training) -> None:
    loops = Loops(print)
    loops.set_epoch(0)
    assert loops.progress(1, 0.0).epoch == 1
    loops.set_epoch(1)
    assert loops.progress(2, 1.0).epoch == 2
    loops.set_epoch("three")
    assert loops.progress(2, 2.0).epoch == 2
    counts_from_one = Loops(print)
    counts_from_one.set_epoch(1)
    assert counts_from_one.progress(1, 0.0) == (None, 1, None)


def test_a_resumed_runs_epochs_are_those_of_the_sampler(training: Training) -> None:
    loops = Loops(print)
    training.bars = loops
    loops.set_epoch(3)
    outer = bar(total=4)
    inner = bar(total=30)
    for step in range(20):
        training.now += 0.5
        inner.update()
        progress = loops.progress(step + 1, training.now)
    inner.close()
    outer.close()
    assert progress == (120, 4, 7)


@pytest.mark.parametrize("epochs", [1, 4])
def test_bars_that_began_before_steps_were_counted_tell_how_many_are_left(training: Training, epochs: int) -> None:
    """A probe that is attached to a job in the second epoch counts steps from there."""
    training.bars = Bars(join_late=True)
    done, outer = 0, bar(range(epochs)) if epochs > 1 else [0]
    for epoch in outer:
        for batch in bar(range(200)):
            if (epoch, batch) >= (epochs > 1, 120):
                training.batch(0.05)
            else:
                training.now += 0.05
                training._look_at = training.now + 0.01
                done += 1
    assert training.told == {200 * epochs - done}
