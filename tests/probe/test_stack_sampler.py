"""The stack of the training thread is sampled while the hub wants it, and counted by phase and step."""

import re
import threading
import time

import pytest

from ddpmon.messages import encode
from ddpmon.messages.wire import decode_from_rank
from ddpmon.probe.account import Account
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import Listener
from ddpmon.probe.records import DATA, FORWARD, OTHER, RawPause, RawStep, RawSync
from ddpmon.probe.stack_sampler import INTERVAL_S, StackSampler, _short

MS = 1_000_000


@pytest.fixture
def sampler():
    """(A sampler whose notes wait to be read, its listener)."""
    listener = Listener(Identity("test"))
    listener.identity.set_facts(rank=1, world_size=2)
    listener.defer()
    return StackSampler(listener), listener


def seen(sampler, phase, moment_ms, name="work", count=1):
    """Have a sample of a function in the journal, as if it had been taken at that moment."""
    namespace = {}
    exec(compile(f"def {name}():\n    pass", "train.py", "exec"), namespace)
    sampler.keep(moment_ms * MS, phase, ((namespace[name].__code__, 0),), count)


def step(start_ms, end_ms, number=1, **more):
    return RawStep(start_ms * MS, end_ms * MS, step=number, **more)


def test_nothing_is_sampled_until_the_hub_asks(sampler):
    sampler, listener = sampler
    sampler.rest(threading.Event(), 3 * INTERVAL_S)
    sampler.step_ended(step(0, 100))
    assert not listener.journal._waiting
    assert not sampler.is_due(1e9)


def sampled_at(sampler, listener, work, seconds=0.3):
    """Return the samples of a training thread that does this work again and again, as one step."""
    end, there = threading.Event(), threading.Event()

    def trains():
        listener._adopt_thread()
        listener.record(Account.phase_fails)  # any note: it is in `other` then
        there.set()
        while not end.is_set():
            work()

    thread = threading.Thread(target=trains)
    thread.start()
    assert there.wait(30)
    began = time.monotonic()
    sampler.request(seconds, began)
    sampler.rest(threading.Event(), seconds)
    end.set()
    thread.join()
    while listener.journal.read_notes(100):
        pass
    sampler.step_ended(RawStep(int(began * 1e9) + 1, time.monotonic_ns(), step=8))
    assert sampler.is_due(began + 5 * seconds)
    samples = sampler.result()
    assert decode_from_rank(encode(samples)) == samples, "the hub takes it"
    return samples


def test_the_training_thread_is_seen_where_it_is_in_the_phase_that_its_notes_tell(sampler):
    samples = sampled_at(*sampler, lambda: time.sleep(0.01))
    assert (samples.rank, samples.steps, samples.first_step, samples.last_step) == (1, 1, 8, 8)
    assert {one.phase for one in samples.stacks} == {OTHER}
    assert any("trains" in samples.stacks[0].frames[index] for index in samples.stacks[0].own)
    assert samples.count * samples.sample_ms == pytest.approx(samples.span_us / 1e3)
    assert not sampler[0].is_active, "it ends by itself"


def test_code_that_keeps_the_lock_for_a_few_milliseconds_is_seen_as_often_as_it_runs(sampler):
    spent = {}

    def searches():
        re.match(r"(a+)+$", "a" * 16 + "b")

    def sleeps():
        time.sleep(0.002)

    def work():
        for part in (searches, sleeps):
            began = time.monotonic()
            part()
            spent[part.__name__] = spent.get(part.__name__, 0.0) + time.monotonic() - began

    samples = sampled_at(*sampler, work, 4.0)
    seen = {name: sum(one.count for one in samples.stacks if any(name in f for f in one.frames)) for name in spent}
    share = seen["searches"] / samples.count
    assert share == pytest.approx(spent["searches"] / sum(spent.values()), abs=0.2), seen


def test_a_sample_that_is_read_late_has_the_phase_of_its_moment(sampler):
    sampler, listener = sampler
    clock = listener.clock
    moments = iter([10 * MS, 20 * MS, 30 * MS])
    clock._time = lambda: next(moments)
    for phase in (DATA, FORWARD, OTHER):
        clock.enter_phase(phase)
    assert [clock.phase_at(moment * MS) for moment in (15, 25, 35, 5)] == [DATA, FORWARD, OTHER, None]


def test_waits_count_as_time_and_as_no_phase_and_pauses_do_not_count(sampler):
    sampler, _ = sampler
    sampler.request(0.001, 0.0)
    for moment in (5, 15):
        seen(sampler, DATA, moment)
    seen(sampler, FORWARD, 25, "forward", count=3)
    seen(sampler, FORWARD, 35, "waits")
    seen(sampler, DATA, 45, "evaluates")
    sampler.step_ended(step(0, 50, syncs=[RawSync(0, 30 * MS, 40 * MS, 0)], pauses=[RawPause(0, 40 * MS, 50 * MS)]))
    samples = sampler.result()
    assert (samples.count, samples.span_us) == (6, 40_000)
    assert sorted((one.phase, one.count) for one in samples.stacks) == [(DATA, 2), (FORWARD, 3)]


def test_only_whole_steps_count(sampler):
    sampler, _ = sampler
    sampler.request(1.0, 10.0)
    for moment in (9_990, 10_010, 10_110, 10_500):
        seen(sampler, DATA, moment)
    sampler.step_ended(step(9_900, 10_100, 1))  # it began before
    sampler.step_ended(step(10_100, 10_200, 2))
    assert not sampler.is_due(11.5), "of long steps it waits for three"
    assert sampler.is_due(14.0), "though not for ever"
    samples = sampler.result()
    assert (samples.first_step, samples.steps, samples.count) == (2, 1, 1)


def test_samples_are_taken_at_intervals_that_fit_no_step(sampler):
    sampler, listener = sampler
    sampler.request(60.0, time.monotonic())
    moments = []
    listener.hot.note = lambda note: moments.append(note[1])
    listener.thread = threading.get_ident()

    class Clock(threading.Event):
        """Notes how long it is waited for."""

        waits: list[float] = []  # noqa: RUF012  of this test alone

        def wait(self, timeout=None):
            self.waits.append(timeout)
            return len(self.waits) == 200

    sampler.rest(Clock(), 1e9)
    assert len(moments) == 199
    began = Clock.waits[0]
    assert INTERVAL_S / 2 * 0.9 <= began <= INTERVAL_S * 1.5, "the clock does not wait: all else is ahead"
    intervals = [sampler._interval() for _ in range(200)]
    assert min(intervals) >= INTERVAL_S / 2
    assert max(intervals) <= INTERVAL_S * 1.5
    assert sum(intervals) / 200 == pytest.approx(INTERVAL_S, rel=0.2)
    assert max(intervals) - min(intervals) > INTERVAL_S / 2


def test_a_wait_for_workers_is_one_also_where_the_handler_wrote_it():
    written = "torch/utils/data/dataloader.py:1133 _try_get_data"
    seen = "torch/utils/data/dataloader.py:1133 _MultiProcessingDataLoaderIter._try_get_data"
    assert _short(written) == _short(seen) == seen
    assert _short("torch/utils/data/dataloader.py:700 _BaseDataLoaderIter.__next__").endswith(":700 __next__")
