"""A short piece of benchmarks/hostile_recordings.py: every reader, on recordings that were damaged in every way."""

import importlib.util
import signal
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(method="thread")  # the program ends a reader that hangs by an alarm of its own
_PROGRAM = Path(__file__).parents[2] / "benchmarks" / "hostile_recordings.py"


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("hostile_recordings", _PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.modules["hostile_recordings"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def base(program, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPMON_HOME", str(home))
        before = signal.signal(signal.SIGALRM, program.hang)
        yield program.base(home)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("seed", [2, 7, 12, 14])  # a file that is cut, flipped bits, other values, other tables
def test_no_reader_crashes_or_hangs(program, base, seed):
    told, refused, crashes = program.attack(seed, 2, base)
    assert not crashes, f"{told}\n" + "\n".join(crashes)
    assert all("\n" not in line for line in refused.values())
