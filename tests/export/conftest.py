"""The run that ships with ddpmon, for tests that read it."""

import pytest

from ddpmon.cli.commands.replaying import unpack


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return the run, in a home of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPMON_HOME", str(tmp_path_factory.mktemp("demo") / "home"))
        yield unpack()
