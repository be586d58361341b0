"""Says it outside the dashboard when a run gets worse or ends: a bell, or a notification of the desktop.

Terminals have no common way to notify. OSC 9 is iTerm's, taken up by kitty, WezTerm, Ghostty and Windows Terminal;
OSC 777 is rxvt's, taken up by foot and the terminals of GNOME. A terminal that knows neither shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ddpmon.messages import Snapshot
from ddpmon.plain import plain

QUIET_S = 60.0
"""A run that was as bad within this time is not announced again."""
MOST = 200
"""Characters of a notification."""
_WELL, _LOOK, _GRAVE, _STALLED, _OVER = range(5)
_STATES = {"stalled": _STALLED, "done": _OVER, "stopped": _OVER, "failed": _OVER, "detached": _OVER, "lost": _OVER}
_SEVERITIES = {"warn": _LOOK, "critical": _GRAVE}
_BELL, _ESCAPE, _END = "\x07", "\x1b", "\x1b\\"
_PROTOCOLS = {"kitty": "9", "wezterm": "9", "ghostty": "9", "iterm": "9", "foot": "777", "rxvt": "777"}
"""Terminals that would show both, or spell out the one that they do not know."""


def standing(snapshot: Snapshot) -> int:
    """Return how bad a run is; an end is the worst, since nothing follows it."""
    grade = _STATES.get(snapshot.state)
    if grade is None:
        grade = max(_SEVERITIES.get(snapshot.severity, _WELL), _LOOK if snapshot.state == "slow" else _WELL)
    return grade


class Worsening:
    """Notices when the run that is watched gets worse."""

    def __init__(self, *, begun: bool) -> None:
        """begun: the run was started here, so that even a first snapshot may be news."""
        self._standing: int | None = _WELL if begun else None
        self._run = ""
        self._last: dict[int, float] = {}
        """Time of the last notification at each severity."""

    def news(self, snapshot: Snapshot, now: float) -> bool:
        """Return whether people want to know of this snapshot. now: seconds of any clock that rises."""
        if self._run not in {"", snapshot.run.id}:  # another run is watched: its present state is no news
            self._standing, self._last = None, {}
        self._run = snapshot.run.id
        before, grade = self._standing, standing(snapshot)
        lately = now - self._last.get(grade, -QUIET_S) < QUIET_S
        self._standing, self._last[grade] = grade, now
        return before is not None and grade > before and (grade == _OVER or not lately)


def sequence(way: str, snapshot: Snapshot, environ: Mapping[str, str]) -> str:
    """Return what to write to the terminal for a snapshot that is news. way: a choice of `--notify`."""
    written = _BELL if way in {"bell", "both"} else ""
    if way not in {"desktop", "both"}:
        return written
    last = snapshot.events[-1].text if snapshot.events else snapshot.state
    title = plain(f"ddpmon {snapshot.run.name}")[: MOST // 4]
    body = plain(snapshot.verdict or last)[:MOST]
    # A text that began with a number could be a command of ConEmu's; a semicolon ends a title.
    texts = {"9": f"9;{title}: {body}", "777": f"777;notify;{title.replace(';', ',')};{body.replace(';', ',')}"}
    protocol = _protocol(environ)
    for number, text in texts.items():
        if protocol in {None, number}:
            written += _through(f"{_ESCAPE}]{text}{_END}", environ)
    return written


def _protocol(environ: Mapping[str, str]) -> str | None:
    """The protocol of this terminal; None: the terminal is unknown, or hidden behind tmux."""
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
