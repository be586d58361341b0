import time

import pytest


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch, tmp_path):
    """The same terminal, time zone and (no) runs wherever the tests run."""
    monkeypatch.setenv("DDPMON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("NO_COLOR", "DDPMON_THEME", "COLORFGBG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
