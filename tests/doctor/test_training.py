"""Python, torch and the probe, as ranks would have them."""

from __future__ import annotations

import os
import subprocess

import pytest

from ddpmon.doctor import training
from ddpmon.doctor.check import Level
from ddpmon.doctor.training import Torch


def told(torch: Torch) -> dict[str, tuple[Level, str]]:
    return {check.about: (check.level, check.text) for check in training.torch_checks(torch)}


@pytest.fixture
def broken(tmp_path):
    """An environment in which torch is what a test says it is."""

    def call(source: str) -> dict[str, str]:
        (tmp_path / "torch.py").write_text(source)
        return {**os.environ, "PYTHONPATH": str(tmp_path)}

    return call


def test_torch_of_this_environment_is_watched_and_reduces_over_gloo():
    torch = training.ask_torch(os.environ)
    assert isinstance(torch, Torch)
    assert torch.armed
    assert torch.gloo
    assert not torch.gloo_error
    levels = {about: level for about, (level, _) in told(torch).items()}
    if torch.cuda_error and not training.DRIVER.exists():
        assert levels.pop("CUDA") is Level.NOTE
    assert set(levels.values()) == {Level.OK}


def test_a_torch_that_does_not_import_is_a_problem_with_its_own_last_line(broken):
    check = training.ask_torch(broken("raise ImportError('libcudnn.so.9: cannot open shared object file')"))
    assert check.level is Level.PROBLEM
    assert check.text == "importing torch fails: ImportError: libcudnn.so.9: cannot open shared object file"
    assert "import torch" in check.way_out


def test_a_torch_that_ends_python_is_a_problem(broken):
    check = training.ask_torch(broken("import os; os._exit(9)"))
    assert (check.level, check.text) == (Level.PROBLEM, "importing torch fails: exit code 9")


def test_a_torch_that_is_not_imported_in_time_is_a_problem(monkeypatch):
    def late(*_args: object, timeout: float, **_options: object) -> None:
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(subprocess, "run", late)
    check = training.ask_torch(os.environ)
    assert check.level is Level.PROBLEM
    assert "more than 120 s" in check.text


def test_without_torch_what_works_is_said(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    check = training.ask_torch(os.environ)
    assert check.level is Level.NOTE
    assert "demo, attach, replay and report work" in check.text
    assert "ddpmon[training]" in check.way_out


WELL = Torch("2.13.0+cu130", "13.0", "", distributed=True, threads=8, armed=True, gloo=True, nccl=True, gpus=["H100"])


@pytest.mark.parametrize(
    ("change", "about", "level", "text"),
    [
        ({}, "torch", Level.OK, "2.13.0+cu130, built for CUDA 13.0"),
        ({"version": "2.3.1"}, "torch", Level.NOTE, "ddpmon needs 2.4 or later"),
        ({"version": "2.10.0"}, "torch", Level.OK, "2.10.0"),
        ({"distributed": False}, "torch", Level.PROBLEM, "without torch.distributed"),
        ({"armed": False}, "probe", Level.PROBLEM, "does not start in the ranks"),
        ({"gloo_error": "unable to resolve hostname"}, "gloo", Level.PROBLEM, "unable to resolve hostname"),
        ({"cuda_error": "driver too old"}, "CUDA", Level.PROBLEM, "driver too old"),
        ({"nccl": False}, "NCCL", Level.NOTE, "this build of torch has no NCCL"),
        ({"nccl_version": "2.30.4"}, "NCCL", Level.OK, "2.30.4"),
    ],
)
def test_what_torch_says_is_told(change, about, level, text, monkeypatch, tmp_path):
    monkeypatch.setattr(training, "DRIVER", tmp_path)
    torch = Torch(**{name: getattr(WELL, name) for name in WELL.__struct_fields__} | change)
    at, words = told(torch)[about]
    assert at is level
    assert text in words


def test_a_torch_built_for_cuda_on_a_machine_without_a_driver_is_no_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(training, "DRIVER", tmp_path / "none")
    torch = Torch(**{name: getattr(WELL, name) for name in WELL.__struct_fields__} | {"cuda_error": "no driver"})
    level, words = told(torch)["CUDA"]
    assert level is Level.NOTE
    assert "trains on the CPU" in words
