"""Runs one ssh connection to another machine, and exchanges messages over it."""

from __future__ import annotations

import codecs
import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Self

from ddpmon.errors import RunNotFoundError, UnreachableError
from ddpmon.messages import Snapshot, WireError
from ddpmon.messages.changes import apply_changes
from ddpmon.plain import plain
from ddpmon.remote import channel
from ddpmon.remote.address import NOT_THERE, Address, command

HELD_MESSAGES_S = 0.3
"""Seconds for which ssh's messages are held back. If ssh ends meanwhile, the messages explain its end, and are printed
only once, with the error."""
SSH_END_S = 2.0
GENTLE_S = 0.5
_LAST_WORDS_S = 0.2
"""Seconds for which ssh's standard error is read after the end of ssh. The limit is needed because another process of
ssh (ControlPersist) may hold standard error open."""
_SSH_FAILED = 255
_FROM_SSH = re.compile(
    r"ssh|kex_|Connection |client_loop|Timeout, server|Host key|Bad configuration|.*: Permission denied"
)
_CHUNK = 1 << 16
_KEPT_LINES = 20


class Line:
    """A running ssh process, connected to ddpmon on another machine. `stdin` and `stdout` are those of ssh."""

    def __init__(self, address: Address, words: list[str], *, unattended: bool) -> None:
        """Start ssh, which may prompt for passwords in the terminal unless it is unattended.

        Args:
            address: The machine.
            words: The command for ddpmon on the other machine.
            unattended: True if nobody can answer a prompt.

        Raises:
            UnreachableError: ssh is not installed.

        """
        self.where = address.where
        self._unattended = unattended
        self._fallback = f"ssh -t {address.host} ddpmon attach {address.run or ''}".rstrip()
        self._error_lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._has_greeted = False
        self._passes_on = not unattended
        self._unshown = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lock = threading.Lock()
        self._ended = threading.Event()
        started = command(address.host, words, unattended=unattended)
        try:
            self._ssh = subprocess.Popen(
                started,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=unattended,  # ssh must not read what is typed into the dashboard.
            )
        except OSError as error:
            raise UnreachableError(
                f"cannot start {started[0]}, which connects to {self.where}: {error.strerror}"
            ) from None
        self._streams = [stream for stream in (self._ssh.stdin, self._ssh.stdout, self._ssh.stderr) if stream]
        self.stdin, self.stdout, self._errors = (stream.fileno() for stream in self._streams)
        self._error_reader = threading.Thread(target=self._read_errors, name="ddpmon-ssh", daemon=True)
        self._error_reader.start()

    def greeted(self) -> tuple[str, bytes]:
        """Wait for the greeting of ddpmon on the other machine, which may take as long as typing a password.

        Returns:
            The version of ddpmon on the other machine, and the bytes after the greeting that were read with it.

        Raises:
            UnreachableError: The greeting does not arrive. The message has the reason.

        """
        came = b""
        while (match := channel.GREETING.search(came)) is None:
            data = os.read(self.stdout, _CHUNK)
            if not data:
                raise UnreachableError(self.why())
            came += data
            if len(came) > channel.GREETING_MOST:
                raise UnreachableError(
                    f"{self.where}: the login prints text without end, and ddpmon does not answer; try {self._fallback}"
                )
        self._has_greeted = True
        version = match[2].decode()
        if int(match[1]) != channel.CHANNEL_PROTOCOL:
            raise UnreachableError(
                f"{self.where} has ddpmon {version}, which is incompatible with the version here; try {self._fallback}"
            )
        return version, came[match.end() :]

    @property
    def there(self) -> bool:
        """Return whether the greeting of ddpmon on the other machine has arrived."""
        return self._has_greeted

    def read(self) -> bytes:
        """Return the next bytes from ddpmon on the other machine; b"" at the end."""
        return os.read(self.stdout, _CHUNK)

    def exit_code(self) -> int:
        """Wait for the end of ssh, and return the exit code of the command on the other machine.

        Raise UnreachableError if the connection was cut before the command ended.
        """
        code = self._ssh.wait()
        self._ended.wait(_LAST_WORDS_S)
        if code == _SSH_FAILED and (not self._error_lines or _FROM_SSH.match(self._error_lines[-1])):
            raise UnreachableError(self.why())
        self._show(last=True)
        return code if code >= 0 else 128 - code

    def why(self) -> str:
        """Wait for the end of ssh, and return a sentence with the reason."""
        try:
            code = self._ssh.wait(SSH_END_S)
        except subprocess.TimeoutExpired:
            return f"{self.where}: ddpmon on that machine no longer answers"
        self._ended.wait(_LAST_WORDS_S)
        lines = [line for line in map(str.strip, self._error_lines) if line]
        last = plain(lines[-1])[:300] if lines else ""
        if code < 0:
            return f"{self.where}: the connection is lost (ssh ended with {signal.Signals(-code).name})"
        if code == _SSH_FAILED:
            return self._why_no_ssh(last, "\n".join(lines))
        if self._has_greeted:
            return f"{self.where}: ddpmon on that machine ended with {code}" + (f": {last}" if last else "")
        if any(NOT_THERE in line for line in lines):
            return (
                f"{self.where}: ddpmon is neither on the PATH of that machine, nor in ~/.local/bin or "
                "~/.venv/bin; set DDPMON_REMOTE to the path of ddpmon on that machine, or try "
                f"{self._fallback}"
            )
        if any("No such command '_" in line for line in lines):
            return f"{self.where}: ddpmon on that machine is too old for the version here; try {self._fallback}"
        detail = f" ({last})" if last else ""
        return f"{self.where}: ddpmon on that machine does not start: exit code {code}{detail}; try {self._fallback}"

    def _why_no_ssh(self, last: str, lines: str) -> str:
        detail = last or "ssh ended with 255"
        if "Host key verification failed" in lines or "REMOTE HOST IDENTIFICATION HAS CHANGED" in lines:
            changed = "has changed" if "HAS CHANGED" in lines else "is unknown to your ssh"
            return (
                f"{self.where}: the host key of this machine {changed}, so ssh refuses to connect; run ssh "
                f"{self.where} for details"
            )
        if "Permission denied" in lines and self._unattended and not self._has_greeted:
            return (
                f"{self.where}: the login needs a password ({detail}); leave the dashboard, run ddpmon attach "
                "again, and type the password"
            )
        if "Permission denied" in lines:
            return f"{self.where}: login refused ({detail})"
        return f"{self.where}: {'the connection is lost' if self._has_greeted else 'cannot be reached'} ({detail})"

    def _read_errors(self) -> None:
        """Read ssh's standard error, and print it after `HELD_MESSAGES_S`."""
        while True:
            try:
                data = os.read(self._errors, _CHUNK)
            except OSError:
                data = b""
            if not data:
                break
            self._error_lines.extend(data.decode(errors="replace").splitlines())
            with self._lock:
                self._unshown += data
            if self._passes_on:
                later = threading.Timer(0.0 if self._has_greeted else HELD_MESSAGES_S, self._show)
                later.daemon = True
                later.start()
        self._ended.set()

    def _show(self, *, last: bool = False) -> None:
        with self._lock:
            if not self._passes_on or (self._ssh.poll() is not None and not last):
                return
            data, self._unshown = self._unshown, b""
            with contextlib.suppress(OSError, ValueError):
                # sys.stderr removes control characters if it is a terminal.
                sys.stderr.write(self._decoder.decode(data).replace("\r", ""))
                sys.stderr.flush()

    def keep_quiet(self) -> None:
        """Print nothing from now on, because the dashboard owns the terminal."""
        with self._lock:
            self._passes_on = False

    def hang_up(self) -> None:
        """End ssh, from any thread. A thread that is reading gets the end of the stream."""
        with contextlib.suppress(ProcessLookupError):
            self._ssh.terminate()
            self._ssh.send_signal(signal.SIGCONT)  # A stopped process does not end before it continues.

    def close(self) -> None:
        """End the connection. The command on the other machine ends when its standard input ends."""
        _close(self._streams[0])
        try:
            self._ssh.wait(GENTLE_S)  # ssh may carry other sessions (ControlMaster), so it gets time to end by itself.
        except subprocess.TimeoutExpired:
            self.hang_up()
            try:
                self._ssh.wait(SSH_END_S)
            except subprocess.TimeoutExpired:
                self._ssh.kill()
                self._ssh.wait()
        _close(self._streams[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(stream: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        stream.close()


_GARBAGE = "the answer does not come from ddpmon; perhaps a login script prints text"


class Conversation:
    """Messages over an ssh connection.

    The methods raise UnreachableError, with the reason, if the connection ends or invalid data arrives.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self.version = ""
        """Version of ddpmon on the other machine, once its greeting has arrived."""
        self._framer, self._unframer = channel.Framer(), channel.Unframer()
        self._base: Snapshot | None = None
        """The last snapshot, to which the next changes are applied."""
        self._unread: list[bytes] = []
        """Messages that arrived together with the first one, and have not been returned yet."""

    def begin(self) -> channel.About:
        """Wait for the login and the first message. Raise RunNotFoundError if the other machine has no such run."""
        self.version, data = self.line.greeted()
        self.line.keep_quiet()
        os.set_blocking(self.line.stdin, False)
        self._unread = self._unframe(data)
        while not self._unread:
            self._unread = self._read()
        first = _decoded(self._unread.pop(0))
        if isinstance(first, channel.Remark):
            raise RunNotFoundError(f"{self.line.where}: {plain(first.text)}")
        if not isinstance(first, channel.About):
            raise UnreachableError(f"{self.line.where}: {_GARBAGE}")
        return first

    @property
    def pending(self) -> bool:
        """Return whether `messages` can yield a message without reading from ssh."""
        return bool(self._unread)

    def messages(self) -> Iterator[channel.FromThere]:
        """Yield the messages that have arrived. If there are none, wait for the first."""
        unread, self._unread = self._unread or self._read(), []
        for encoded in unread:
            message = _decoded(encoded)
            if message is not None:
                yield message

    def send(self, message: channel.FromHere) -> None:
        """Send a message. If the connection does not accept the message at once, cut the connection."""
        frame = self._framer.frame(message)
        try:
            written = os.write(self.line.stdin, frame)
        except BlockingIOError:
            written = 0
        if written != len(frame):
            self.line.hang_up()
            raise UnreachableError(f"{self.line.where}: the connection accepts no more data")

    def snapshot(self, shot: channel.Shot) -> Snapshot:
        """Return the snapshot that results from applying a message to the previous one."""
        try:
            self._base = apply_changes(self._base, shot.changes)
        except WireError:
            raise self._garbage() from None
        return self._base

    def _read(self) -> list[bytes]:
        data = self.line.read()
        if not data:
            raise UnreachableError(self.line.why())
        return self._unframe(data)

    def _unframe(self, data: bytes) -> list[bytes]:
        try:
            return self._unframer.feed(data)
        except WireError:
            raise self._garbage() from None

    def _garbage(self) -> UnreachableError:
        self.line.hang_up()
        return UnreachableError(f"{self.line.where}: {_GARBAGE}")


def _decoded(message: bytes) -> channel.FromThere | None:
    """Return the decoded message, or None if it is invalid or only a newer ddpmon knows it."""
    try:
        return channel.from_there(message)
    except WireError:
        return None
