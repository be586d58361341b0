"""Test the samples of a rank: rates of counters, starvation of the training thread, throttling in words."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from ddpmon import proc
from ddpmon.messages import Sample
from ddpmon.probe import counters
from ddpmon.probe.cuda import allocator_counters
from ddpmon.probe.devices import Sampler, WorkerMemory, network_cards
from ddpmon.probe.identity import Identity
from ddpmon.probe.loader_passes import LoaderPasses

NO_GPU = Identity("test")


def test_another_training_thread_starts_anew() -> None:
    """The script may train in a thread of its own: its delay is not compared with the other thread's."""
    thread = [threading.get_native_id()]
    sampler = Sampler(lambda: thread[0], NO_GPU)
    sampler.take_sample()
    assert sampler.take_sample().starved_share is not None
    other = threading.Thread(target=time.sleep, args=(5,), daemon=True)
    other.start()
    thread[0] = other.native_id or 0
    assert sampler.take_sample().starved_share is None


def test_a_thread_that_shares_its_core_is_starved() -> None:
    """Two busy threads of two processes on one core: each could run half of the time in which it did not."""
    mine = os.sched_getaffinity(0)
    core = {min(mine)}
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, core)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            pass
        os._exit(0)
    try:
        os.sched_setaffinity(0, core)
        sampler = Sampler(threading.get_native_id, NO_GPU)
        sampler.take_sample()
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass
        share = sampler.take_sample().starved_share
    finally:
        os.sched_setaffinity(0, mine)
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert share is not None
    assert 0.3 < share <= 1.0


def test_counters_of_this_process_are_plausible(tmp_path: Path) -> None:
    sampler = Sampler(threading.get_native_id, NO_GPU)
    first = sampler.take_sample()
    assert first.major_faults_per_s is None
    assert first.gpu_throttled is None
    fresh = bytearray(64 << 20)
    fresh[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(fresh[:: os.sysconf("SC_PAGE_SIZE")])
    with (tmp_path / "written").open("wb") as file:
        file.write(bytes(4 << 20))
        os.fsync(file.fileno())
    sample = sampler.take_sample()
    assert sample.minor_faults_per_s is not None
    assert sample.minor_faults_per_s > 0
    assert sample.threads is not None
    assert sample.threads >= 1
    assert sample.rss_bytes is not None
    assert sample.rss_bytes > 64 << 20
    if sample.written_bytes_per_s is not None:  # not every container keeps them
        assert sample.written_bytes_per_s >= 0


def test_what_the_kernel_is_read_to_count_is_what_psutil_reads() -> None:
    process = psutil.Process()
    busy = threading.Event()
    others = [threading.Thread(target=busy.wait) for _ in range(3)]
    for other in others:
        other.start()
    try:
        read = proc.stat("self")
        assert read is not None
        assert read.threads == process.num_threads()
        assert read.rss_bytes == pytest.approx(process.memory_info().rss, rel=0.05)
    finally:
        busy.set()
    cards = psutil.net_io_counters(pernic=True, nowrap=False)
    mine = counters.network_bytes()
    assert mine.keys() == cards.keys()
    for name, (sent, received) in mine.items():  # read after psutil did
        assert sent >= cards[name].bytes_sent
        assert received >= cards[name].bytes_recv
    storage = proc.storage_bytes()
    if storage is not None:  # not every container keeps them
        assert storage == (process.io_counters().read_bytes, process.io_counters().write_bytes)


def test_the_cards_of_a_host_are_counted_once_and_loopback_never(tmp_path: Path) -> None:
    names = ["lo", "eth0", "eth1", "bond0", "docker0", "veth1"]
    for card in ("eth0", "eth1"):
        (tmp_path / card / "device").mkdir(parents=True)
    assert network_cards(names, str(tmp_path)) == ["eth0", "eth1"]
    assert network_cards(["lo", "eth7"], str(tmp_path)) == ["eth7"], "a container sees no hardware"
    assert network_cards(["lo"], str(tmp_path)) == []


def test_what_the_host_sends_and_receives_is_a_rate_of_its_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"lo": (0, 0), "card-a": (10_000, 50_000)}

    monkeypatch.setattr(counters, "network_bytes", lambda: dict(counts))
    sampler = Sampler(lambda: None, NO_GPU)

    def rates() -> tuple[float | None, float | None]:
        sample = sampler.take_sample()
        return sample.sent_bytes_per_s, sample.received_bytes_per_s

    assert rates() == (None, None)
    counts |= {"lo": (1 << 40, 1 << 40), "card-a": (30_000, 60_000)}
    sent, received = rates()
    assert sent is not None
    assert received is not None
    assert sent == pytest.approx(2 * received)
    assert sent > 0
    counts["card-a"] = (5, 5)
    assert rates() == (0.0, 0.0), "a driver that was loaded anew counts from nothing"
    counts["card-b"] = (1 << 40, 1 << 40)
    assert rates() == (None, None), "a further card has sent nothing since the last look"
    counts.clear()
    assert rates() == (None, None)


@pytest.mark.parametrize(
    ("loader", "uuid", "told"),
    [
        ((None, None), "GPU-none", (None, None)),
        ((4, True), None, (4, None)),
        ((0, False), "GPU-none", (0, False)),
        ((np.int64(4), 1), "GPU-none", (4, True)),
        (("four", 0), "GPU-none", (None, False)),
    ],
)
def test_whatever_a_loader_was_given_can_be_sent(
    monkeypatch: pytest.MonkeyPatch, loader: tuple[object, object], uuid: str | None, told: object
) -> None:
    monkeypatch.setattr(identity := Identity("test"), "cuda_uuid", lambda: uuid)
    sampler = Sampler(threading.get_native_id, identity, lambda: loader)
    sample = msgspec.msgpack.decode(msgspec.msgpack.encode(sampler.take_sample()), type=Sample)
    assert (sample.loader_workers, sample.loader_pinned) == told


def test_the_share_of_busy_cores_is_what_their_idle_time_leaves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uptime = tmp_path / "uptime"
    real = counters.read
    monkeypatch.setattr(counters, "read", lambda path: real(str(uptime) if path == "/proc/uptime" else path))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    sampler = Sampler(lambda: None, NO_GPU)
    assert sampler.take_sample().cores_busy_share is None, "a kernel that does not say"
    shares = []
    for idle in (100.0, 101.0, 105.5, 105.4):
        uptime.write_text(f"2000.25 {idle}\n")
        now[0] += 1_000_000_000
        shares.append(sampler.take_sample().cores_busy_share)
    assert shares == [None, 0.75, 0.0, 1.0], "never outside of 0 to 1, whatever the kernel counts"


def test_what_a_host_waits_for_storage_is_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pressure = tmp_path / "io"
    real = counters.read
    monkeypatch.setattr(counters, "read", lambda path: real(str(pressure) if path == "/proc/pressure/io" else path))
    sampler = Sampler(lambda: None, NO_GPU)
    assert sampler.take_sample().io_wait_share is None, "a kernel without pressure counters"
    full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"
    pressure.write_text(f"some avg10=4.31 avg60=0.88 avg300=0.27 total=36483064\n{full}")
    assert counters.storage_wait_us() == 36_483_064
    assert sampler.take_sample().io_wait_share is None, "nothing to compare it with yet"
    assert sampler.take_sample().io_wait_share == 0.0
    pressure.write_text(f"some avg10=4.31 avg60=0.88 avg300=0.27 total=99936483064\n{full}")
    assert sampler.take_sample().io_wait_share == 1.0, "no share is more than all of the time"


class Held(Dataset[int]):
    """Each batch but the first reads all that the dataset holds, once it may."""

    def __init__(self, items: Any) -> None:
        self.items = items
        self.may_read = torch.multiprocessing.get_context("fork").Event()

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> int:
        if place == 0:
            return 0
        self.may_read.wait(60)
        return int(self.items.sum()) if isinstance(self.items, np.ndarray) else sum(self.items)


@pytest.mark.parametrize(("items", "copies"), [(range(1_000_000, 3_000_000), True), (np.ones(8_000_000), False)])
def test_workers_copy_python_objects_that_they_only_read(items: Any, copies: bool) -> None:
    data = Held(items if isinstance(items, np.ndarray) else list(items))
    batches = iter(DataLoader(data, 1, num_workers=1, prefetch_factor=1))
    passes, memory = LoaderPasses(), WorkerMemory()
    passes.read_from(batches, 0, begins=True)
    next(batches)
    before = memory.total_memory(passes.worker_pids(), 0.0)
    data.may_read.set()
    next(batches)
    assert memory.total_memory(passes.worker_pids(), 0.0) == before, "reading may take a hundredth of a core"
    after = memory.total_memory(passes.worker_pids(), 1e6)
    assert before is not None
    assert after is not None
    assert (after - before > 48 << 20) is copies  # of the 61 MiB that the numbers take
    assert after - before > -(16 << 20)
    del batches
    assert memory.total_memory(passes.worker_pids(), 2e6) is None, "the workers have ended"


def test_the_memory_of_workers_is_a_sum_once_all_of_them_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[int, int | None] = {1: 10, 2: 20, 3: None}
    monkeypatch.setattr(counters, "private_bytes", sizes.get)
    memory = WorkerMemory()
    assert [memory.total_memory([1, 2, 3], now * 100.0) for now in range(3)] == [None, None, 30], "one may not be read"
    sizes[1] = 15
    assert memory.total_memory([1, 2, 3], 300.0) == 35, "the one that was read longest ago"
    assert memory.total_memory([2, 4], 400.0) == 20, "a worker that is gone, and one that may not be read"
    assert memory.total_memory([], 500.0) is None


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 8 << 30),
        ({"a/b/memory.max": "max\n", "a/memory.max": "4294967296\n", "a/memory.current": "1073741824\n"}, 3 << 30),
        (
            {
                "a/b/memory.max": "2147483648\n",
                "a/b/memory.current": "2147483648\n",
                "a/b/memory.stat": "anon 7\nactive_file 1048576\ninactive_file 2097152\n",
            },
            3 << 20,
        ),
        ({"a/b/memory.max": "1000\n", "a/b/memory.current": "2000\n"}, 0),
    ],
)
def test_the_memory_that_is_left_is_that_of_the_host_or_of_the_cgroup_that_has_least(
    tmp_path: Path, files: dict[str, str], left: int
) -> None:
    written = {
        "proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n",
        "proc/self/cgroup": "0::/a/b\n",
        "proc/self/mountinfo": f"30 20 0:30 / {tmp_path}/cg rw shared:9 - cgroup2 cgroup rw\n",
        **{f"cg/{name}": text for name, text in files.items()},
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert counters.memory_left_bytes(tmp_path / "proc") == left


def test_a_limit_of_cgroups_version_1_counts_its_page_cache_as_free(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("4:memory:/job\n0::/\n")
    (tmp_path / "self/mountinfo").write_text(f"30 20 0:30 / {tmp_path} rw shared:9 - cgroup cgroup rw,memory\n")
    for name, text in {
        "limit_in_bytes": "1000000", "usage_in_bytes": "900000",
        "stat": "active_file 1\ntotal_active_file 20000\ntotal_inactive_file 30000\n",
    }.items():  # fmt: skip
        (tmp_path / "job" / f"memory.{name}").write_text(text)
    assert counters.memory_left_bytes(tmp_path) == 150_000
    (tmp_path / "job/memory.limit_in_bytes").write_text("9223372036854771712")
    assert counters.memory_left_bytes(tmp_path) is None


ALLOCATOR = {
    "allocated_bytes": {"all": {"current": 3 << 30, "peak": 9 << 30}},
    "reserved_bytes": {"all": {"current": 4 << 30}},
    "num_alloc_retries": 7,
}


def test_torchs_allocator_is_read_once_the_rank_uses_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is torch's own; what the CUDA build answers is made up."""
    asked = []
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: asked.append(device) or ALLOCATOR)
    assert allocator_counters(1) == {}
    assert asked == [], "asking makes a context on the GPU"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    told = {"gpu_allocated_bytes": 3 << 30, "gpu_reserved_bytes": 4 << 30, "gpu_alloc_retries": 7}
    assert (allocator_counters(1), asked) == (told, [1])
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda _: {})
    assert allocator_counters(1) == {}, "a script's own allocator"
