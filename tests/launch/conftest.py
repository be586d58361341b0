"""Commands of these tests are called in their own process."""

import os

import pytest

from ddpmon import runs


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
