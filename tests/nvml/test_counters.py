"""Test that values of the real nvidia-ml-py reach a rank's samples, and that errors leave them unknown."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
import torch

from ddpmon import proc
from ddpmon.doctor import machine
from ddpmon.doctor.check import Level
from ddpmon.doctor.training import Torch
from ddpmon.launch import spec
from ddpmon.messages import GPU_COUNTERS, GpuUser, Sample
from ddpmon.probe import gpu_counters
from ddpmon.probe.devices import Sampler
from ddpmon.probe.identity import Identity
from tests.conftest import wait_for
from tests.nvml.library import GIB, Nvml, gpu

UUID = "00000001-1111-2222-3333-444444444444"
OF_TORCH = {"gpu_allocated_bytes", "gpu_reserved_bytes", "gpu_alloc_retries"}
FIELDS = [name for name in Sample.__struct_fields__ if name.startswith("gpu") and name not in OF_TORCH]
WHOLE = {
    "gpu_percent": 81.0,
    "gpu_memory_used_bytes": 61 * GIB,
    "gpu_memory_total_bytes": 80 * GIB,
    "gpu_power_w": 651.5,
    "gpu_temperature_c": 61,
    "gpu_clock_mhz": 1901,
    "gpu_throttled": "",
}
NOTHING = dict.fromkeys(FIELDS)
READERS = {
    "nvmlDeviceGetUtilizationRates": ["gpu_percent"],
    "nvmlDeviceGetMemoryInfo": ["gpu_memory_used_bytes", "gpu_memory_total_bytes"],
    "nvmlDeviceGetPowerUsage": ["gpu_power_w"],
    "nvmlDeviceGetTemperature": ["gpu_temperature_c"],
    "nvmlDeviceGetClockInfo": ["gpu_clock_mhz"],
}
CPU = Torch("2.13.0+cpu", "", "", distributed=True, threads=2, armed=True)
CUDA = Torch("2.13.0", "13.0", "", distributed=True, threads=2, armed=True, gpus=["H100", "H100"])
Read = Callable[[], dict[str, object]]


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Identity:
    """A rank whose second GPU by CUDA's count is the first that torch sees."""
    properties = SimpleNamespace(uuid=UUID)
    monkeypatch.setattr(socket, "gethostname", lambda: "test-host")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _index: properties)
    identity = Identity("test")
    identity.cuda_device = 0
    return identity


@pytest.fixture
def read(identity: Identity, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Take a sample and return the values of its GPU."""
    monkeypatch.setattr(gpu_counters, "MAX_NVML_WAIT_S", 60.0)
    monkeypatch.setattr(gpu_counters, "SLOW_SAMPLES", 1)
    sampler = Sampler(threading.get_native_id, identity)

    def call() -> dict[str, object]:
        sample = sampler.take_sample()
        return {name: getattr(sample, name) for name in FIELDS}

    return call


def told(identity: Identity) -> tuple[dict[str, str], list[str]]:
    hello = identity.facts
    return hello.missing, hello.notes


def test_the_librarys_structs_are_as_large_as_those_of_nvidia_ml_py(nvml: Nvml) -> None:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    sizes = {
        "utilization": pynvml.c_nvmlUtilization_t,
        "memory": pynvml.c_nvmlMemory_t,
        "memory_v2": pynvml.c_nvmlMemory_v2_t,
        "event": pynvml.c_nvmlEventData_t,
        "process": pynvml.c_nvmlProcessInfo_v3_t,
    }
    for name, struct in sizes.items():
        assert ctypes.c_uint.in_dll(library, f"sizeof_{name}").value == ctypes.sizeof(struct)


def test_every_value_arrives_and_follows_the_gpu(nvml: Nvml, identity: Identity, read: Read) -> None:
    assert read() == WHOLE
    nvml.set(gpu(1, percent=3, clock_mhz=345, reasons=0x4 | 0x40, temperature_c=92))
    changed = {"gpu_percent": 3.0, "gpu_clock_mhz": 345, "gpu_throttled": "thermal, power cap", "gpu_temperature_c": 92}
    assert read() == WHOLE | changed
    assert told(identity) == ({}, [])


def test_what_the_driver_keeps_of_the_memory_is_not_used_as_in_nvidia_smi(nvml: Nvml, read: Read) -> None:
    nvml.set({"1.memory_reserved_bytes": GIB})
    assert read() == WHOLE | {"gpu_memory_total_bytes": 79 * GIB}
    nvml.set({"1.nvmlDeviceGetMemoryInfo_v2.error": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
    assert read() == WHOLE, "an old driver does not tell what it keeps"


def test_critical_errors_are_told_once_each(nvml: Nvml, identity: Identity, read: Read) -> None:
    nvml.set({"1.ecc": 2})
    assert read() == WHOLE
    nvml.set({"1.xids": "79,13,79", "0.xids": "31", "0.ecc": 7})
    for _ in range(2):
        assert read() == WHOLE
    assert identity.facts.gpu_errors == ["Xid 79", "Xid 13"], "ECC errors of before are none of this run"
    nvml.set({"1.ecc": 3})
    for _ in range(2):
        assert read() == WHOLE
    assert identity.facts.gpu_errors == ["Xid 79", "Xid 13", "uncorrectable ECC errors"]
    assert told(identity) == ({}, [])


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Start another process with variables of its environment, and return its pid."""
    started = []

    def start(*shell: str, **environment: str) -> int:
        command = ["sh", "-c", *shell] if shell else ["sleep", "600"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        return int(process.stdout.readline()) if shell else process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_who_else_uses_the_gpu_is_told_with_name_and_memory(
    nvml: Nvml, identity: Identity, read: Read, other: Callable[..., int]
) -> None:
    foreign, worker = other(), other(DDPMON_RUN_ID="test")
    nvml.set({"1.processes": f"{os.getpid()}:1000,{worker}:300,{foreign}:2000", "0.processes": f"{foreign}:4000"})
    read()
    assert identity.facts.gpu_users == [
        GpuUser(foreign, "sleep", 2000 << 20),
        GpuUser(worker, "sleep", 300 << 20, of_run=True),
    ]
    version = identity.version
    nvml.set({"1.processes": f"{os.getpid()}:3000,{worker}:310,{foreign}:1990"})
    read()
    assert identity.version == version, "a few MiB are not worth a message to the hub"
    nvml.set({"1.processes": f"{os.getpid()}:3000,{2**22}:40"})
    read()
    assert identity.facts.gpu_users == [GpuUser(2**22, "", 40 << 20)], "one that /proc does not show"
    nvml.set({"1.nvmlDeviceGetComputeRunningProcesses_v3.error": pynvml.NVML_ERROR_NOT_SUPPORTED})
    assert read() == WHOLE
    nvml.set({"1.nvmlDeviceGetComputeRunningProcesses_v3.error": None, "1.processes": f"{os.getpid()}:3000"})
    read()
    assert identity.facts.gpu_users == []


def test_a_rank_whose_launcher_has_ended_is_left_over(
    nvml: Nvml, identity: Identity, read: Read, other: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell ends once it has started what it leaves: whoever takes orphans in becomes the parent."""
    rank = other("sleep 600 >/dev/null & echo $!", RANK="1", MASTER_PORT="29500")
    service = other("sleep 600 >/dev/null & echo $!")
    try:
        adopts = Path(f"/proc/{rank}/stat")
        wait_for(lambda: adopts.read_text().split()[3] == Path(f"/proc/{service}/stat").read_text().split()[3])
        name = proc.program(proc.parent(rank))
        monkeypatch.setattr(gpu_counters, "ADOPTING", name)  # where these processes are in no container it has pid 1
        nvml.set({"1.processes": f"{os.getpid()}:1000,{rank}:300,{service}:200"})
        read()
        assert identity.facts.gpu_users == [
            GpuUser(rank, "sleep", 300 << 20, left_over=True),
            GpuUser(service, "sleep", 200 << 20),
        ]
    finally:
        for pid in (rank, service):
            os.kill(pid, signal.SIGKILL)


def test_pids_of_another_namespace_are_told_of_nobody(nvml: Nvml, identity: Identity, read: Read) -> None:
    nvml.set({"1.processes": f"{os.getpid() + 1}:1000,17:300"})
    read()
    assert identity.facts.gpu_users == []


def test_a_gpu_that_reports_no_critical_errors_has_its_values(nvml: Nvml, identity: Identity, read: Read) -> None:
    nvml.set({"1.nvmlDeviceRegisterEvents.error": pynvml.NVML_ERROR_NOT_SUPPORTED, "1.xids": "79"})
    assert read() == WHOLE
    assert told(identity) == ({}, [])


@pytest.mark.parametrize("function", READERS)
def test_a_value_that_a_gpu_does_not_support_is_unknown_and_the_others_are_not(
    nvml: Nvml, identity: Identity, read: Read, function: str
) -> None:
    nvml.set({f"1.{function}.error": pynvml.NVML_ERROR_NOT_SUPPORTED})
    assert read() == WHOLE | dict.fromkeys(READERS[function])
    assert told(identity) == ({}, [])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, "GPU is lost"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"),
        (pynvml.NVML_ERROR_UNINITIALIZED, "Uninitialized"),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, "Not Supported"),
        (pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
    ],
)
def test_why_a_gpu_has_no_value_is_noted_until_it_has_some_again(
    nvml: Nvml, identity: Identity, read: Read, code: int, words: str
) -> None:
    assert read() == WHOLE
    reason = f"there are no GPU counters: {words}"
    for errors in (code == pynvml.NVML_ERROR_GPU_IS_LOST, 0):
        nvml.set({"1.error": code})
        version = identity.version
        for _ in range(3):
            assert read() == NOTHING
        assert told(identity) == ({GPU_COUNTERS: reason}, [reason])
        assert identity.version - version == 1 + errors, "each change of the facts is a message to the hub"
        nvml.set({"1.error": None})
        assert read() == WHOLE
        assert told(identity) == ({}, [])
    assert identity.facts.gpu_errors == ["GPU is lost"] * (code == pynvml.NVML_ERROR_GPU_IS_LOST)


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetHandleByUUID"])
def test_a_gpu_that_cannot_be_opened_is_noted_and_asked_no_more(
    nvml: Nvml, identity: Identity, read: Read, function: str
) -> None:
    nvml.set({f"{function}.error": pynvml.NVML_ERROR_NO_PERMISSION})
    assert read() == NOTHING
    nvml.set({f"{function}.error": None})
    assert read() == NOTHING
    reason = "there are no GPU counters: Insufficient Permissions"
    assert told(identity) == ({GPU_COUNTERS: reason}, [reason])


def test_a_part_of_a_gpu_that_mig_made_is_found_and_shows_its_memory(
    nvml: Nvml, identity: Identity, read: Read
) -> None:
    """NVML names it with another prefix than a GPU, and has utilization, power and clocks of the whole GPU only."""
    whole_gpu = dict.fromkeys(("percent", "power_mw", "temperature_c", "clock_mhz", "reasons"))
    nvml.set(dict.fromkeys(gpu(1)))
    nvml.set(gpu(1, uuid=f"MIG-{UUID}", memory_total_bytes=10 * GIB, memory_used_bytes=GIB, **whole_gpu))
    assert read() == NOTHING | {"gpu_memory_used_bytes": GIB, "gpu_memory_total_bytes": 10 * GIB}
    assert told(identity) == ({}, [])


def test_a_driver_older_than_the_clock_event_reasons_answers_to_their_former_name(
    old_nvml: Nvml, identity: Identity, read: Read
) -> None:
    old_nvml.set({"1.reasons": 0x80})
    assert read() == WHOLE | {"gpu_throttled": "power brake"}
    assert told(identity) == ({}, [])


def test_a_call_that_hangs_leaves_values_unknown_and_nobody_waits_for_it(
    nvml: Nvml, identity: Identity, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read() == WHOLE
    monkeypatch.setattr(gpu_counters, "MAX_NVML_WAIT_S", 0.001)
    nvml.set({"nvmlDeviceGetPowerUsage.sleep_ms": 500})
    unanswered = [read() for _ in range(gpu_counters.UNANSWERED_SAMPLES)]
    assert unanswered == [NOTHING] * gpu_counters.UNANSWERED_SAMPLES
    reason = "there are no GPU counters, because NVML does not answer"
    assert told(identity) == ({GPU_COUNTERS: reason}, [reason])
    nvml.set({"nvmlDeviceGetPowerUsage.sleep_ms": None})
    monkeypatch.setattr(gpu_counters, "MAX_NVML_WAIT_S", 60.0)
    read()  # what the call that hung brings
    assert read() == WHOLE
    assert told(identity) == ({}, [])


@pytest.mark.parametrize(
    ("count", "torch_sees", "levels", "last"),
    [
        (2, CUDA, [Level.OK], "2 x NVIDIA H100 80GB HBM3; driver 580.1"),
        (8, CUDA, [Level.OK, Level.NOTE], "torch can use 2 of 8"),
        (2, CPU, [Level.OK, Level.NOTE], "uses none of the 2 GPUs"),
        (2, None, [Level.OK], "2 x NVIDIA H100"),
    ],
)
def test_the_machines_gpus_are_counted_named_and_held_against_what_torch_sees(
    nvml: Nvml,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    torch_sees: Torch | None,
    levels: list[Level],
    last: str,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml.set({key: value for index in range(count) for key, value in gpu(index).items()}, count=count)
    assert spec._gpu_count() == count
    checks = list(machine.gpus(torch_sees))
    assert [check.level for check in checks] == levels
    assert last in checks[-1].text


def test_processes_that_use_a_gpu_are_a_note_with_what_they_hold(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.set({key: value for index in range(2) for key, value in gpu(index).items()}, count=2)
    nvml.set({"1.processes": f"{os.getpid()}:38912,{2**22 + 1}:1024"})
    monkeypatch.setattr(machine, "HOST_PIDS", proc.namespace("pid"))
    _, check = machine.gpus(CUDA)
    assert check.level is Level.NOTE
    name = Path(sys.executable).name
    assert re.fullmatch(rf"GPU 1 is in use: pid {os.getpid()} \({name[:6]}.*\), pid {2**22 + 1}, 39\.0 GiB", check.text)
    assert "CUDA_VISIBLE_DEVICES" in check.way_out
    monkeypatch.setattr(machine, "HOST_PIDS", "another")
    assert [each.text[:30] for each in machine.gpus(CUDA)][1] == "GPU 1 is in use: 2 processes, "
    nvml.set({"1.nvmlDeviceGetComputeRunningProcesses_v3.error": pynvml.NVML_ERROR_NOT_SUPPORTED})
    assert [each.level for each in machine.gpus(CUDA)] == [Level.OK]


def test_gpus_that_nvml_cannot_count_are_a_note(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml.set({"nvmlDeviceGetCount_v2.error": pynvml.NVML_ERROR_UNKNOWN})
    assert spec._gpu_count() == 0
    (check,) = machine.gpus(CUDA)
    assert (
        check.text
        == "NVML does not answer (Unknown Error), so ddpmon cannot show utilization, memory, power and clocks of 2 GPUs"
    )
