"""Small recordings, one of each schema that a ddpmon ever wrote. They are opened for ever, and never written anew.

`python -m tests.recorded NAME` adds one as this ddpmon writes it: for each release whose schema differs from the last.
"""

import tarfile
import tempfile
from pathlib import Path

import pytest

from ddpmon import runs
from tests.recordings import record, story

FOLDER = Path(__file__).parent
ENDING = ".tar.xz"
NAMES = sorted(path.name.removesuffix(ENDING) for path in FOLDER.glob(f"*{ENDING}"))


def unpacked(name):
    """The run, in the home of this test."""
    runs.runs_dir().mkdir(mode=0o700, parents=True)
    with tarfile.open(FOLDER / f"{name}{ENDING}") as kept:
        kept.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python has no filters yet
        kept.extractall(runs.runs_dir())
    return runs.find(None)


def add(name):
    """Keep a recording of two ranks that were restarted once, most of whose steps were merged."""
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPMON_HOME", home)
        own = story(steps=70, ranks=2, late=1, begin=30, end=50)
        said = [(6.0, "first step after 5.0 s")]
        run = record(own, restarts=[10], events=said, accuracy=True, room=(1, 60), boot_id="")
        with tarfile.open(FOLDER / f"{name}{ENDING}", "x:xz") as kept:
            kept.add(runs.run_dir(run.id), run.id)
