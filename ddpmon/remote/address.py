"""Parses a run's name on the command line, which may name a run on another machine that ssh reaches.

    USER@HOST:RUN   HOST:RUN     a run on HOST, by its name or the beginning of its id
    USER@HOST       HOST:        the latest run on HOST
    [::1]:RUN                    an IPv6 address goes in brackets

HOST is whatever ssh understands: a name, an address, an alias of ~/.ssh/config. A word without ':' and '@' is a run of
this machine, because the name of a run contains neither character.

$DDPMON_SSH is the ssh command with options ("ssh -F config"), as $RSYNC_RSH is for rsync. $DDPMON_REMOTE is the ddpmon
command on the other machine, in the syntax of its shell ("~/project/.venv/bin/ddpmon").
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass

from ddpmon import runs
from ddpmon.errors import UsageError

_LOGIN = re.compile(
    r"(?:(?P<user>[^\s:]+)@)?(?:\[(?P<address>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:@\[\]]*))(?::(?P<run>.*))?"
)
_BARE_IPV6 = re.compile(r"(?:[^\s@]+@)?[0-9A-Fa-f]*:[0-9A-Fa-f]*:")
_PLAIN = re.compile(r"[A-Za-z0-9_.:%+~@\\-]+")
"""Characters allowed in users and hosts. ssh passes both names to shell commands of its configuration (ProxyCommand,
Match exec), so other characters could run code."""

OPTIONS = (
    "-T", "-a", "-x",
    "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3",
    "-o", "ClearAllForwardings=yes",  # Another ssh session may already use the ports that ~/.ssh/config forwards.
    "-o", "RemoteCommand=none",
    "-o", "ConnectTimeout=20",  # The kernel's own timeout takes minutes, without any message.
)  # fmt: skip
UNATTENDED = ("-o", "BatchMode=yes")
"""Options of ssh for a connection that is restored by itself: ssh must not prompt a user who looks at a dashboard."""

_PLACES = ("", "$HOME/.local/bin/", "$HOME/.venv/bin/", "$HOME/venv/bin/")
NOT_THERE = "ddpmon-is-not-there"
"""Answer of the other machine's shell if it finds no ddpmon."""


@dataclass(frozen=True)
class Address:
    """A run on another machine."""

    host: str
    """The host as ssh gets it: USER@HOST or HOST."""
    run: str | None
    """Name or beginning of the id of the run; None means the latest run on the host."""

    @property
    def where(self) -> str:
        """Return the machine's name without the user."""
        return self.host.rpartition("@")[2]

    def word(self, run: str) -> str:
        """Return the word with which a user of this machine names a run on the other machine."""
        user, at, host = self.host.rpartition("@")
        return f"{user}{at}[{host}]:{run}" if ":" in host else f"{self.host}:{run}"

    def of(self, run: str) -> Address:
        """Return the address of another run on the same machine."""
        return Address(self.host, run)


def parse(word: str | None) -> Address | None:
    """Parse a word of the command line into an address; return None if it names a run of this machine.

    Raises:
        UsageError: The word is neither an address nor a possible name of a run.

    """
    if word is None or not (":" in word or "@" in word):
        return None
    match = _LOGIN.fullmatch(word)
    host = (match["address"] or match["host"]) if match else ""
    if _BARE_IPV6.match(word):
        raise UsageError(f"{word!r}: write an IPv6 address in brackets, as in [::1]:RUN")
    if match is None or not host:
        raise UsageError(f"{word!r}: write USER@HOST or HOST:RUN for a run on another machine")
    login = f"{match['user']}@{host}" if match["user"] else host
    if not _PLAIN.fullmatch(login) or login.startswith("-") or host.startswith("-"):
        raise UsageError(f"{word!r}: ssh does not accept {login!r} as the name of a machine")
    run = match["run"] or None
    if run is not None and not runs.NAME_PATTERN.fullmatch(run):
        raise UsageError(
            f"{word!r}: {run!r} cannot be the name of a run, which has at most 64 letters, digits, '.', '_' and '-'"
        )
    return Address(login, run)


def command(host: str, words: list[str], *, unattended: bool) -> list[str]:
    """Return the command line that runs ddpmon on a host.

    Args:
        host: The host.
        words: The command for ddpmon on the host.
        unattended: True if nobody can be asked for a password.

    """
    try:
        ssh = shlex.split(os.environ.get("DDPMON_SSH", "")) or ["ssh"]
    except ValueError as error:
        raise UsageError(f"DDPMON_SSH: {error}") from None
    return [*ssh, *OPTIONS, *(UNATTENDED if unattended else ()), "--", host, _script(words)]


def _script(words: list[str]) -> str:
    """Return the command for the login shell of the other machine. It starts sh, because the login shell may have
    another syntax.
    """
    quoted = " ".join(map(shlex.quote, words))
    if remote_command := os.environ.get("DDPMON_REMOTE"):
        return f"exec sh -c {shlex.quote(f'{remote_command} {quoted}')}"
    tried = " ".join(f'"{place}ddpmon"' for place in _PLACES)
    find = f'for d in {tried}; do command -v "$d" >/dev/null 2>&1 && exec "$d" {quoted}; done'
    return f"exec sh -c {shlex.quote(f'{find}; echo {NOT_THERE} >&2; exit 127')}"
