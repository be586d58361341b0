"""However a script comes to torch, the probe is armed once torch has been executed, and no trace of that is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.conftest import SCRIPTS, Ear, python

pytestmark = pytest.mark.e2e
SCRIPT = SCRIPTS / "importers.py"
WAYS = [
    "looked_up",
    "listed",
    "loaded_lazily",
    "reloaded",
    "at_once",
    "second_try",
    "another_finder_first",
    "wrapped",
    "finders_replaced",
]


@pytest.fixture(scope="module")
def without_us() -> str:
    """What a script finds in the import system when nobody watches."""
    bare = python(SCRIPT, "looked_up", address=None)
    facts, armed = bare.stdout.splitlines()
    assert armed == "armed: False"
    return facts


@pytest.mark.parametrize("way", WAYS)
def test_torch_is_noticed_however_it_is_imported(ear: Ear, without_us: str, way: str) -> None:
    done = python(SCRIPT, way, address=ear.address)
    assert (done.returncode, done.stderr) == (0, "")
    *traces, facts, armed = done.stdout.splitlines()
    assert armed == "armed: True"
    assert facts == without_us
    assert not any("sitecustomize" in line for line in traces)


def test_a_probe_that_cannot_be_armed_says_so_and_leaves_no_trace(ear: Ear, without_us: str, tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('no msgspec here')\n")
    done = python(SCRIPT, "looked_up", address=ear.address, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0
    assert done.stderr == "ddpmon: not watching this process: ImportError: no msgspec here\n"
    assert done.stdout.splitlines() == [without_us, "armed: False"]
