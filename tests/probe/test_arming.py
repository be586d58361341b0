"""However a script comes to torch, the probe is armed once torch has been executed, and no trace of that is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.probe.conftest import SCRIPTS, Ear, environment, python

pytestmark = pytest.mark.e2e
SCRIPT = SCRIPTS / "importers.py"
WAYS = [
    "looked_up",
    "loaded_lazily",
    "at_once",
    "second_try",
    "wrapped",
]


@pytest.fixture(scope="module")
def without_us() -> str:
    """Return what a script finds in the import system when nobody watches."""
    bare = python(SCRIPT, "looked_up", address=None)
    facts, armed = bare.stdout.splitlines()
    assert armed == "armed: False"
    return facts


@pytest.mark.parametrize("way", WAYS)
def test_torch_is_noticed_however_it_is_imported(ear: Ear, without_us: str, way: str) -> None:
    done = python(SCRIPT, way, address=ear.address)
    if way == "loaded_lazily" and done.returncode and python(SCRIPT, way, address=None).returncode:
        pytest.skip("this Python's LazyLoader cannot load torch, watched or not")
    assert (done.returncode, done.stderr) == (0, "")
    *traces, facts, armed = done.stdout.splitlines()
    assert armed == "armed: True"
    assert facts == without_us
    assert not any("sitecustomize" in line for line in traces)


def test_a_probe_that_cannot_be_armed_says_so_and_leaves_no_trace(ear: Ear, without_us: str, tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('no msgspec here')\n")
    done = python(SCRIPT, "looked_up", address=ear.address, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0
    assert done.stderr == "ddpmon: cannot watch this process: ImportError: no msgspec here\n"
    assert done.stdout.splitlines() == [without_us, "armed: False"]


def test_torchrun_itself_looks_for_garbage_rarely_and_what_else_runs_as_often_as_ever(ear: Ear, tmp_path: Path) -> None:
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    for name in ("run", "other"):
        (package / f"{name}.py").write_text("import gc\nprint(*gc.get_threshold())\n")

    def thresholds(name: str, address: str | None) -> list[int]:
        command = [sys.executable, "-P", "-m", f"torch.distributed.{name}"]
        said = subprocess.check_output(command, env=environment(address, PYTHONPATH=str(tmp_path)), text=True)
        return [int(word) for word in said.split()]

    usual = thresholds("run", None)
    assert thresholds("other", ear.address) == usual
    assert all(rare > often for rare, often in zip(thresholds("run", ear.address), usual, strict=True))
