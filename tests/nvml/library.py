"""A C library that answers as NVML does, with the values and errors that a test chooses.

The real nvidia-ml-py loads it through ctypes, so what a machine without a GPU can test ends only at the driver.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml.c")
NAME = "libnvidia-ml.so.1"
"""The name that nvidia-ml-py loads; a library of this name that a process has loaded already is taken first."""
CUDA = "libcuda.so.1"
"""The name of the CUDA driver, of which the library has the one function that ddpmon calls itself."""
GIB = 1 << 30


def gpu(index: int, **changes: object) -> dict[str, object]:
    """Return the values of one GPU. A change to None means that the GPU does not support the value."""
    values: dict[str, object] = {
        "uuid": f"GPU-0000000{index}-1111-2222-3333-444444444444",
        "name": "NVIDIA H100 80GB HBM3",
        "percent": 80 + index,
        "memory_used_bytes": (60 + index) * GIB,
        "memory_total_bytes": 80 * GIB,
        "power_mw": 650_500 + 1000 * index,
        "temperature_c": 60 + index,
        "clock_mhz": 1900 + index,
        "reasons": 0x1,  # it is idle
    }
    values |= changes
    return {f"{index}.{name}": value for name, value in values.items() if value is not None}


class Nvml:
    """The values that processes with this library read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, object] = {}

    def set(self, values: Mapping[str, object] = {}, **more: object) -> None:
        """Change values for all calls from now on; None removes one."""
        self.values |= {**values, **more}
        self.values = {key: value for key, value in self.values.items() if value is not None}
        written = self.path.with_suffix(".new")
        written.write_text("".join(f"{key} {value}\n" for key, value in self.values.items()))
        written.replace(self.path)

    @property
    def capture_mode(self) -> str:
        """Return the stream capture mode that a thread with this library chose last; "" if none did."""
        path = self.path.with_name(f"{self.path.name}.capture")
        return path.read_text() if path.exists() else ""


def compiled(folder: Path, *options: str) -> Path:
    """Compile the library into a folder and return its path. Skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (cc or gcc), which the tests of NVML need")
    path = folder / NAME
    words = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{NAME}", *options]
    subprocess.run([compiler, *words, "-o", str(path), str(SOURCE)], check=True)
    path.with_name(CUDA).symlink_to(path.name)
    return path


def environment(library: Path, nvml: Nvml) -> dict[str, str]:
    """Return the variables with which a new process finds this library and its values."""
    paths = [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(paths), "NVML_STATE": str(nvml.path)}


def unload(library: ctypes.CDLL) -> None:
    """Have this process forget the library, and nvidia-ml-py too."""
    import _ctypes

    import pynvml

    for loaded in filter(None, (pynvml.nvmlLib, library)):
        _ctypes.dlclose(loaded._handle)
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
