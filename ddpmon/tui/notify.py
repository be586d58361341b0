"""Notifies the user outside the dashboard when a run gets worse or ends: by a bell or a desktop notification.

Terminals have no common way to notify. OSC 9 comes from iTerm, and kitty, WezTerm, Ghostty and Windows Terminal adopted
it. OSC 777 comes from rxvt, and foot and the terminals of GNOME adopted it. A terminal that supports neither of the two
shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ddpmon.messages import Snapshot
from ddpmon.plain import plain

QUIET_S = 60.0
"""Minimum interval in seconds between two notifications of the same severity."""
MAX_NOTIFICATION_CHARS = 200
"""Longest text of a notification, in characters."""
_WELL, _LOOK, _GRAVE, _STALLED, _OVER = range(5)
_STATES = {"stalled": _STALLED, "done": _OVER, "stopped": _OVER, "failed": _OVER, "detached": _OVER, "lost": _OVER}
_SEVERITIES = {"warn": _LOOK, "critical": _GRAVE}
_BELL, _ESCAPE, _END = "\x07", "\x1b", "\x1b\\"
_PROTOCOLS = {"kitty": "9", "wezterm": "9", "ghostty": "9", "iterm": "9", "foot": "777", "rxvt": "777"}
"""Escape sequence for desktop notifications by terminal, OSC 9 or OSC 777. Other terminals get both sequences. The
listed ones would notify twice, or print one of the sequences as text."""


def severity_level(snapshot: Snapshot) -> int:
    """Return the severity of a run's state as a number. An ended run has the highest number, because its state is
    final.
    """
    grade = _STATES.get(snapshot.state)
    if grade is None:
        grade = max(_SEVERITIES.get(snapshot.severity, _WELL), _LOOK if snapshot.state == "slow" else _WELL)
    return grade


class Worsening:
    """Detects when the watched run gets worse."""

    def __init__(self, *, begun: bool) -> None:
        """Start without a snapshot. `begun` is true if this command started the run. Then even the first snapshot can
        cause a notification.
        """
        self._standing: int | None = _WELL if begun else None
        self._run = ""
        self._last: dict[int, float] = {}
        """Time of the last notification at each severity, on the clock of `now` in `is_worth_notifying`."""

    def is_worth_notifying(self, snapshot: Snapshot, now: float) -> bool:
        """Return whether to notify the user of this snapshot; `now` is the time in seconds of any monotonic clock."""
        if self._run not in {"", snapshot.run.id}:  # another run is watched now, and its present state is no news
            self._standing, self._last = None, {}
        self._run = snapshot.run.id
        before, grade = self._standing, severity_level(snapshot)
        lately = now - self._last.get(grade, -QUIET_S) < QUIET_S
        self._standing, self._last[grade] = grade, now
        return before is not None and grade > before and (grade == _OVER or not lately)


def notification_sequence(way: str, snapshot: Snapshot, environ: Mapping[str, str]) -> str:
    """Return the characters that notify the user of a snapshot; "" if there are none.

    Args:
        way: The value of `--notify`.
        snapshot: The snapshot of which the user is notified.
        environ: The environment variables that identify the terminal.

    """
    written = _BELL if way in {"bell", "both"} else ""
    if way not in {"desktop", "both"}:
        return written
    last = snapshot.events[-1].text if snapshot.events else snapshot.state
    title = plain(f"ddpmon {snapshot.run.name}")[: MAX_NOTIFICATION_CHARS // 4]
    body = plain(snapshot.verdict or last)[:MAX_NOTIFICATION_CHARS]
    # ConEmu could run a text that begins with a number as a command. A semicolon would end the title.
    texts = {"9": f"9;{title}: {body}", "777": f"777;notify;{title.replace(';', ',')};{body.replace(';', ',')}"}
    protocol = _protocol(environ)
    for number, text in texts.items():
        if protocol in {None, number}:
            written += _through(f"{_ESCAPE}]{text}{_END}", environ)
    return written


def _protocol(environ: Mapping[str, str]) -> str | None:
    """Return the OSC number of this terminal; None if the terminal is unknown or hidden behind tmux."""
    if "TMUX" in environ:
        return None
    name = f"{environ.get('TERM_PROGRAM', '')} {environ.get('TERM', '')}".lower()
    protocol = next((number for terminal, number in _PROTOCOLS.items() if terminal in name), None)
    return protocol or ("777" if "VTE_VERSION" in environ else None)


def _through(text: str, environ: Mapping[str, str]) -> str:
    """Wrap an escape sequence so that tmux passes it on to its own terminal, if its allow-passthrough is on."""
    if "TMUX" not in environ:
        return text
    return f"{_ESCAPE}Ptmux;{text.replace(_ESCAPE, _ESCAPE * 2)}{_END}"
