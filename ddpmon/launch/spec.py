"""Checks the script, torch and the number of processes before a run starts. Every error is a UsageError of one line."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import sys
import warnings
from pathlib import Path

from ddpmon.errors import UsageError

MOST_PROCESSES = 1024
"""Largest number of ranks on one machine. A larger number is probably a typo, and would overload the machine."""


def current_folder() -> str:
    """Return the current folder. Raise UsageError if it no longer exists."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("the current folder no longer exists; change to another one") from None


def check_script(path: str, cwd: str | None = None) -> None:
    """Raise UsageError unless the path, relative to a folder, is a file that Python can compile."""
    file = Path(cwd or "", path)
    if file.is_dir():
        raise UsageError(f"{path} is a folder; give a script in this folder")
    try:
        source = file.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"no script {path}" + ("" if Path(path).is_absolute() else f" in {cwd or current_folder()}")
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The script shows its own warnings when it runs.
            compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise UsageError(f"{path} is not Python: {line}{error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} is not Python: {error}") from None


def check_module(name: str, cwd: str | None = None) -> None:
    """Raise UsageError unless `python -m NAME` would find the module from folder `cwd`. Imports no packages."""
    folder = cwd or current_folder()
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f"-m {name}: this is not the name of a module")
    spec = importlib.machinery.PathFinder.find_spec(parts[0], [folder]) or _find_spec(parts[0], None)
    for end in range(2, len(parts) + 1):
        folders = spec and spec.submodule_search_locations
        spec = _find_spec(".".join(parts[:end]), list(folders)) if folders else None
    if spec is None:
        raise UsageError(f"no module {name} from {folder}")
    if (folders := spec.submodule_search_locations) and _find_spec(f"{name}.__main__", list(folders)) is None:
        raise UsageError(f"-m {name}: this package has no __main__.py; give a module of the package")


def _find_spec(name: str, path: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        if spec := finder.find_spec(name, path):
            return spec
    return None


def check_torch() -> None:
    """Raise UsageError unless the ranks will find torch. Do not import it."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"no torch in {sys.executable}; install ddpmon into the environment that has torch, "
            "or pip install 'ddpmon[training]'"
        )


def processes(text: str) -> int:
    """Return the number of ranks for a value of `--nproc`: a number, or gpu, cpu or auto as torchrun defines them."""
    if text in {"gpu", "auto"} and (gpus := _gpu_count()):
        return gpus
    if text == "gpu":
        raise UsageError("--nproc gpu: this machine has no GPU; give a number, or cpu")
    if text in {"cpu", "auto"}:
        return os.cpu_count() or 1
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"--nproc {text}: give a number, gpu, cpu or auto") from None
    if not 1 <= number <= MOST_PROCESSES:
        raise UsageError(f"--nproc {number}: give 1 to {MOST_PROCESSES} processes per machine")
    return number


def _gpu_count() -> int:
    """Return how many GPUs the ranks would see, without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        listed = [entry.strip() for entry in visible.split(",")]
        return sum(1 for entry in listed if entry and not entry.startswith("-"))
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def name_for(script: str) -> str:
    """Derive a run's name from what it runs: training/mnist.py becomes mnist, package.train becomes train."""
    last = script.rstrip("/").rpartition("/")[2].removesuffix(".py").rpartition(".")[2]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip("._-")[:64] or "run"
