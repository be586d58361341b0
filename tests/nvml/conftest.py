from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml import library
from tests.nvml.library import Nvml


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library.compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library.compiled(tmp_path_factory.mktemp("old-nvml"), "-DOLD_DRIVER")


def _loaded(path: Path, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    """The library in this process, with two GPUs."""
    nvml = Nvml(folder / "nvml-state")
    nvml.set(library.gpu(0) | library.gpu(1), count=2)
    patch.setitem(os.environ, "NVML_STATE", str(nvml.path))  # also in the C environment
    loaded = ctypes.CDLL(str(path))
    try:
        yield nvml
    finally:
        library.unload(loaded)


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    yield from _loaded(nvml_library, tmp_path, monkeypatch)


@pytest.fixture
def old_nvml(old_nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    yield from _loaded(old_nvml_library, tmp_path, monkeypatch)
