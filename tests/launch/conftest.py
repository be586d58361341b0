"""Commands of these tests are called in their own process; their scripts and they tell each other how far they are."""

import os
import sys
import textwrap

import pytest

from ddpmon import runs

WAITS = "import sys, time, pathlib\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\nsys.exit(7)"
"""A script that ends with 7 once there is a file."""
PRELUDE = """
import os, signal, subprocess, sys, time
from pathlib import Path
here = Path({here!r})

def done(what):
    (here / what).touch()

def until(what):
    while not (here / what).exists():
        time.sleep(0.01)
"""


@pytest.fixture
def python(launch, tmp_path):
    """Start a Python script under a supervisor; it and the test say how far they are by making files."""

    def call(source, **options):
        script = tmp_path / "script.py"
        script.write_text(PRELUDE.format(here=str(tmp_path)) + textwrap.dedent(source))
        return launch(sys.executable, str(script), **options)

    return call


@pytest.fixture
def refused_run(cli, tmp_path):
    """Call `ddpmon run` where an environment says what cannot be; the one line that says so: nothing was started."""

    def call(environment, *options):
        script = tmp_path / "train.py"
        script.write_text("print(1)")
        told = cli("run", *options, str(script), env=os.environ | environment)
        assert (told.returncode, told.stdout) == (2, "")
        assert len(told.stderr.splitlines()) == 1
        assert runs.all_runs() == []
        return told.stderr

    return call
