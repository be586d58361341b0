import time

import pytest
from textual.css.stylesheet import Stylesheet


@pytest.fixture(autouse=True, scope="session")
def css_is_parsed_once():
    """Textual parses the style sheets of each app anew, and here hundreds of apps have the same."""
    parse, parsed = Stylesheet._parse_rules, {}

    def parse_once(self, *arguments, **named):
        key = (tuple(sorted(self._variables.items())), arguments, tuple(sorted(named.items())))
        if key not in parsed:
            parsed[key] = parse(self, *arguments, **named)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


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
