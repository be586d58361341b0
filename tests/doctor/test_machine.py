"""GPUs, cores against ranks, memory that workers share."""

from __future__ import annotations

import os
import resource
from types import SimpleNamespace

import pynvml
import pytest

from ddpmon import proc
from ddpmon.doctor import machine
from ddpmon.doctor.check import Level
from ddpmon.doctor.training import Torch

CPU = Torch("2.13.0+cpu", "", "", distributed=True, threads=2, armed=True)
CUDA = Torch("2.13.0", "13.0", "", distributed=True, threads=2, armed=True, gpus=["H100", "H100"])


@pytest.fixture
def no_driver(monkeypatch):
    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)


@pytest.fixture
def cores(monkeypatch):
    def call(count: int) -> None:
        monkeypatch.setattr(machine, "cores_here", lambda: count)

    return call


def test_a_machine_without_gpus_is_well(no_driver):
    [check] = machine.gpus(CPU)
    assert check.level is Level.OK
    assert "train on the CPU" in check.text


def test_gpus_whose_counters_do_not_answer_are_a_note(no_driver):
    [check] = machine.gpus(CUDA)
    assert check.level is Level.NOTE
    assert "cannot show utilization, memory, power and clocks of 2 GPUs" in check.text


@pytest.mark.parametrize(
    ("here", "ranks", "threads", "level", "way_out"),
    [
        (8, 4, "", Level.OK, ""),
        (2, 4, "", Level.NOTE, "--nproc 2 gives each rank a core"),
        (8, 4, "2", Level.OK, ""),
        (8, 4, "8", Level.NOTE, "with OMP_NUM_THREADS=2, each rank has enough cores"),
        (8, 4, "many", Level.OK, ""),
    ],
)
def test_more_ranks_or_threads_than_cores_are_a_note(cores, here, ranks, threads, level, way_out):
    cores(here)
    check = machine.cores(ranks, CPU, {"OMP_NUM_THREADS": threads})
    assert check.level is level
    assert way_out in check.way_out


@pytest.mark.parametrize(
    ("limit", "cores"), [("150000 100000", 1), ("max 100000", None), ("10000 100000", 1), ("", None)]
)
def test_a_containers_limit_counts_as_cores(tmp_path, limit, cores):
    (tmp_path / "cpu.max").write_text(limit)
    assert machine.cores_here(tmp_path) == (cores or len(os.sched_getaffinity(0)))


def test_little_shared_memory_is_a_note_with_dockers_option(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(total=64 << 20))
    check = machine.shared_memory(tmp_path)
    assert (check.level, check.text) == (Level.NOTE, f"{tmp_path} holds 64.0 MiB")
    assert "--shm-size" in check.way_out
    monkeypatch.undo()
    assert machine.shared_memory(tmp_path / "none").level is Level.NOTE


def test_too_few_open_files_are_a_problem(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (128, 128))
    check = machine.open_files(ranks=8)
    assert check.level is Level.PROBLEM
    assert check.way_out == "ulimit -n 192"
    assert machine.open_files(ranks=4).level is Level.OK


def test_whether_other_programs_may_look_into_ranks_is_said_beside_that_ddpmon_need_not(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(proc, "PTRACE_SCOPE", tmp_path / "scope")
    assert "ddpmon stack, py-spy and gdb work" in machine.ptrace().text
    (tmp_path / "scope").write_text("1\n")
    assert "cannot attach to processes (ptrace_scope 1)" in machine.ptrace().text
