"""A ZeroMQ DEALER socket in a few lines of Python: ZMTP 3.0 (rfc.zeromq.org/spec/23) over a Unix socket.

libzmq uses a dozen file descriptors, and aborts the process if the script closes one of them. Daemons do that: they
close all descriptors that they do not know. This class uses a single descriptor. If the script closes it, the next use
raises an OSError, which this class handles.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import deque

from ddpmon.messages.guarded_socket import folder_identity, opened_folder
from ddpmon.probe.own_descriptor import OwnDescriptor

MAX_HUB_FRAME_BYTES = 65_536
"""Largest frame that a hub may send. A larger one drops the connection."""
_IPC = "ipc://"
_READ_BYTES = 65_536
_GREETING_BYTES = 64
_HANDSHAKE_POLLS, _POLL_MS = 10, 10
"""Largest number of polls for which `connect` waits for the handshake, and milliseconds of each poll. One poll is
usually enough. The limit bounds the time for which a stopped hub delays the rank.
"""
_LONG, _COMMAND = 0x02, 0x04
_MOST_SHORT_BYTES = 255
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"


class Dealer:
    """A connection that `connect` restores when it is lost. No method raises; `connect` and `wait_for_data` wait."""

    def __init__(self, address: str) -> None:
        self._folder, _, self._name = address.removeprefix(_IPC).rpartition("/")
        self._connected_folder: tuple[int, int] | None = None
        self._descriptor: OwnDescriptor | None = None
        self._socket: socket.socket | None = None
        self._unsent = b""
        self._received = bytearray()
        self._has_greeting = self._is_ready = False
        self._frames: deque[bytes] = deque()

    @property
    def connected(self) -> bool:
        """Return whether there is a connection. A hub that has just ended is noticed at the next send or receive."""
        return self._usable() is not None

    def connect(self) -> bool:
        """Connect if there is no connection, or if the socket's folder was replaced; return whether this connected.

        Frames that were sent over the old connection may be lost.
        """
        if self._usable() is not None and folder_identity(self._folder) in {None, self._connected_folder}:
            return False  # A connection survives the removal of its folder.
        folder = opened_folder(self._folder)
        if folder is None:
            return False
        try:
            identity = folder_identity(folder)
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                made.connect(f"/proc/self/fd/{folder}/{self._name}")
                descriptor = OwnDescriptor(made.detach())
            finally:
                made.close()
        except OSError:  # No hub listens on the socket.
            return False
        finally:
            with contextlib.suppress(OSError):
                os.close(folder)
        self.close()
        self._connected_folder, self._descriptor = identity, descriptor
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor.number)
        self._unsent = _GREETING + _frame(_READY, _COMMAND)
        for _ in range(_HANDSHAKE_POLLS):
            self._flush()
            self.wait_for_data(_POLL_MS)
            self._read()
            if self._is_ready:
                break
        return True

    def send(self, payload: bytes) -> bool:
        """Send a message of one frame; return False if that is impossible now.

        Nothing is sent before the hub is ready: libzmq would take an early message for a part of the handshake, and
        drop the connection.
        """
        if not self._flush() or not self._is_ready:
            return False
        self._unsent = _frame(payload)
        self._flush()
        return True

    def receive(self) -> bytes | None:
        """Return the next message; None if none has arrived."""
        if not self._frames:
            self._read()
        return self._frames.popleft() if self._frames else None

    def wait_for_data(self, milliseconds: int) -> None:
        """Wait until data arrives, for at most `milliseconds`."""
        waiting = select.poll()
        if self._usable() is not None and self._descriptor is not None:
            waiting.register(self._descriptor.number, select.POLLIN)
        waiting.poll(milliseconds)

    def close(self) -> None:
        """Close the connection and discard what was not sent."""
        if self._socket is not None and self._descriptor is not None:
            self._socket.detach()  # Do not close the descriptor: its number may belong to another file by now.
            self._descriptor.close()
        self._socket = self._descriptor = self._connected_folder = None
        self._unsent, self._has_greeting, self._is_ready = b"", False, False
        self._received.clear()

    def _read(self) -> None:
        """Read what has arrived; drop the connection if it has ended or the data is not ZMTP."""
        if (usable := self._usable()) is None:
            return
        try:
            data = usable.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        if not data or not self._parse():
            self.close()

    def _usable(self) -> socket.socket | None:
        """Return the socket while its descriptor still belongs to this connection; None otherwise."""
        if self._descriptor is not None and not self._descriptor.is_intact:
            self.close()
        return self._socket

    def _flush(self) -> bool:
        """Send the unsent bytes; return whether all of them were sent."""
        while self._unsent and (usable := self._usable()) is not None:
            try:
                sent = usable.send(self._unsent, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            except OSError:
                self.close()
                return False
            self._unsent = self._unsent[sent:]
        return self._socket is not None

    def _parse(self) -> bool:
        """Split the received bytes into frames; return False if they cannot be ZMTP."""
        received = self._received
        if not self._has_greeting:
            if len(received) < _GREETING_BYTES:
                return True
            if received[0] != 0xFF or received[9] != 0x7F:
                return False
            del received[:_GREETING_BYTES]
            self._has_greeting = True
        while True:
            begin = 9 if received and received[0] & _LONG else 2
            if len(received) < begin:
                return True
            size = int.from_bytes(received[1:begin], "big")
            if size > MAX_HUB_FRAME_BYTES:
                return False
            if len(received) < begin + size:
                return True
            body = bytes(received[begin : begin + size])
            if received[0] & _COMMAND:
                self._is_ready |= body.startswith(b"\x05READY")
            else:
                self._frames.append(body)
            del received[: begin + size]


def _frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > _MOST_SHORT_BYTES:
        return bytes((flags | _LONG,)) + len(body).to_bytes(8, "big") + body
    return bytes((flags, len(body))) + body
