"""What the real nvidia-ml-py reads from the library reaches a rank's samples; errors leave values unknown."""

from __future__ import annotations

import ctypes
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pynvml
import pytest
import torch

from ddpmon.doctor import machine
from ddpmon.doctor.check import Level
from ddpmon.doctor.training import Torch
from ddpmon.launch import spec
from ddpmon.messages import GPU_COUNTERS, Sample
from ddpmon.probe import gpu_counters
from ddpmon.probe.devices import Sampler
from ddpmon.probe.identity import Identity
from tests.nvml.library import GIB, Nvml, gpu

UUID = "00000001-1111-2222-3333-444444444444"
FIELDS = [name for name in Sample.__struct_fields__ if name.startswith("gpu")]
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
    monkeypatch.setattr(gpu_counters, "ANSWER_S", 60.0)
    missing = partial(identity.set_missing, GPU_COUNTERS)
    sampler = Sampler(threading.get_native_id, identity.cuda_uuid, missing, identity.note_gpu_error)

    def call() -> dict[str, object]:
        sample = sampler.sample()
        return {name: getattr(sample, name) for name in FIELDS}

    return call


def told(identity: Identity) -> tuple[dict[str, str], list[str]]:
    hello = identity.hello()
    return hello.missing, hello.notes


def test_the_librarys_structs_are_as_large_as_those_of_nvidia_ml_py(nvml: Nvml) -> None:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    sizes = {
        "utilization": pynvml.c_nvmlUtilization_t,
        "memory": pynvml.c_nvmlMemory_t,
        "event": pynvml.c_nvmlEventData_t,
    }
    for name, struct in sizes.items():
        assert ctypes.c_uint.in_dll(library, f"sizeof_{name}").value == ctypes.sizeof(struct)


def test_every_value_arrives_and_follows_the_gpu(nvml: Nvml, identity: Identity, read: Read) -> None:
    assert read() == WHOLE
    nvml.set(gpu(1, percent=3, clock_mhz=345, reasons=0x4 | 0x40, temperature_c=92))
    changed = {"gpu_percent": 3.0, "gpu_clock_mhz": 345, "gpu_throttled": "thermal, power cap", "gpu_temperature_c": 92}
    assert read() == WHOLE | changed
    assert told(identity) == ({}, [])


def test_critical_errors_are_noted_once_each(nvml: Nvml, identity: Identity, read: Read) -> None:
    assert read() == WHOLE
    nvml.set({"1.xids": "79,13,79", "0.xids": "31"})
    for _ in range(2):
        assert read() == WHOLE
    missing, notes = told(identity)
    assert missing == {}
    assert [note.split(" of test-host ")[0] for note in notes] == [
        f"the GPU of rank 0 had a critical error: Xid {xid}; the kernel log" for xid in (79, 13)
    ]


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
    reason = f"no GPU counters: {words}"
    for _ in range(2):
        nvml.set({"1.error": code})
        version = identity.version
        for _ in range(3):
            assert read() == NOTHING
        assert told(identity) == ({GPU_COUNTERS: reason}, [reason])
        assert identity.version - version == 1, "each change of the facts is a message to the hub"
        nvml.set({"1.error": None})
        assert read() == WHOLE
        assert told(identity) == ({}, [])


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetHandleByUUID"])
def test_a_gpu_that_cannot_be_opened_is_noted_and_asked_no_more(
    nvml: Nvml, identity: Identity, read: Read, function: str
) -> None:
    nvml.set({f"{function}.error": pynvml.NVML_ERROR_NO_PERMISSION})
    assert read() == NOTHING
    nvml.set({f"{function}.error": None})
    assert read() == NOTHING
    reason = "no GPU counters: Insufficient Permissions"
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
    monkeypatch.setattr(gpu_counters, "ANSWER_S", 0.001)
    nvml.set({"nvmlDeviceGetPowerUsage.sleep_ms": 500})
    unanswered = [read() for _ in range(gpu_counters.UNANSWERED_SAMPLES)]
    assert unanswered == [NOTHING] * gpu_counters.UNANSWERED_SAMPLES
    reason = "no GPU counters: NVML does not answer"
    assert told(identity) == ({GPU_COUNTERS: reason}, [reason])
    nvml.set({"nvmlDeviceGetPowerUsage.sleep_ms": None})
    monkeypatch.setattr(gpu_counters, "ANSWER_S", 60.0)
    read()  # what the call that hung brings
    assert read() == WHOLE
    assert told(identity) == ({}, [])


@pytest.mark.parametrize(
    ("count", "torch_sees", "levels", "last"),
    [
        (2, CUDA, [Level.OK], "2 x NVIDIA H100 80GB HBM3; driver 580.1"),
        (8, CUDA, [Level.OK, Level.NOTE], "torch sees 2 of 8"),
        (2, CPU, [Level.OK, Level.NOTE], "built for the CPU and uses none of 2"),
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
    assert spec._gpus() == count
    checks = list(machine.gpus(torch_sees))
    assert [check.level for check in checks] == levels
    assert last in checks[-1].text


def test_gpus_that_nvml_cannot_count_are_a_note(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml.set({"nvmlDeviceGetCount_v2.error": pynvml.NVML_ERROR_UNKNOWN})
    assert spec._gpus() == 0
    (check,) = machine.gpus(CUDA)
    assert check.text == "does not answer (Unknown Error): 2 GPUs without utilization, memory, power and clocks"
