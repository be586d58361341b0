"""The hub's two sockets, which only one hub of a run owns at a time. Reads and sends messages on them."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import zmq

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.messages import ToRank, encode
from ddpmon.messages.folder import MAX_FOLDER_FRAME_BYTES
from ddpmon.recording.collector import Collector
from ddpmon.store.peers import Peer

Socket = zmq.Socket[bytes]
REPLY_KIB = 64
LAST_WORDS_MS = 500
RANK_MESSAGES, VIEWER_MESSAGES = 100, 20
"""Largest number of messages from one rank, and from one viewer, in the hub's queue. Further ones wait in the
sender."""


class HeldError(DdpmonError):
    """Another live hub of the same run owns the sockets."""


class Sockets:
    """The socket `ingest` for ranks and the socket `view` for viewers, both ROUTER on ipc.

    Binding silently replaces another process's socket at the same path, so the hub locks the folder first. The lock
    also prevents programs that clean /tmp from deleting the folder.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.ingest: Socket
        self.view: Socket
        self._context = zmq.Context(io_threads=1)
        self._lock = -1
        try:
            self._hold()
            self.ingest = self._socket(rcvhwm=RANK_MESSAGES, most=MAX_FOLDER_FRAME_BYTES)
            self.view = self._socket(rcvhwm=VIEWER_MESSAGES, most=REPLY_KIB << 10)
            self.view.setsockopt(zmq.SNDHWM, 20)
            self.view.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self.view.setsockopt(zmq.LINGER, LAST_WORDS_MS)
            # The socket of viewers is bound last, because its existence means that the hub is ready.
            self._bind()
        except BaseException:
            self.close()
            raise

    def _hold(self) -> None:
        folder = runs.make_socket_dir(self.run_id)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise HeldError(f"run {self.run_id} already has a hub, so this hub exits") from None
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = lock

    def _socket(self, rcvhwm: int, most: int) -> Socket:
        socket = self._context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, rcvhwm)
        socket.setsockopt(zmq.MAXMSGSIZE, most)
        socket.setsockopt(zmq.IPC_FILTER_UID, os.geteuid())
        return socket

    def _bind(self) -> None:
        mask = os.umask(0o177)
        try:
            for socket, address in self._addresses():
                with suppress(zmq.ZMQError):
                    socket.unbind(address)
                socket.bind(address)
        finally:
            os.umask(mask)
        self._inodes = self._read_inodes()

    def _addresses(self) -> list[tuple[Socket, str]]:
        return [(self.ingest, runs.ingest_address(self.run_id)), (self.view, runs.view_address(self.run_id))]

    def _read_inodes(self) -> list[int]:
        inodes = []
        for _, address in self._addresses():
            try:
                inodes.append(Path(address.removeprefix("ipc://")).stat().st_ino)
            except OSError:
                inodes.append(0)
        return inodes

    def rebind_deleted(self) -> bool:
        """Bind again if the socket files were deleted, and return whether that was needed.

        Without the files, existing connections still work, but new ones are impossible.

        Raises:
            HeldError: another hub has taken over meanwhile.

        """
        if all(self._inodes) and self._read_inodes() == self._inodes:
            return (
                False  # Inode 0: the file disappeared right after the bind, because ZeroMQ may unlink an old file late.
            )
        if os.fstat(self._lock).st_nlink == 0:
            self._hold()
        self._bind()
        return True

    def close(self) -> None:
        """Close the sockets after sending pending messages to viewers. The files stay for the next hub."""
        for name in ("ingest", "view"):
            socket = getattr(self, name, None)
            if socket is not None:
                socket.close()
        self._context.term()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def receive_message(socket: Socket) -> tuple[list[bytes], Peer]:
    """Return a message (the connection's name and the frames) and its sender, or raise zmq.Again if there is none."""
    first, *others = socket.recv_multipart(zmq.NOBLOCK, copy=False)
    return [first.bytes, *(frame.bytes for frame in others)], _peer_of(first)


def _peer_of(frame: zmq.Frame) -> Peer:
    """Return the process at the other end of the connection on which a frame arrived."""
    try:
        return _peer_at(str(frame.get("Peer-Address")))
    except zmq.ZMQError:
        return Peer(0)


@lru_cache(maxsize=4096)
def _peer_at(address: str) -> Peer:
    """Return the peer at ZeroMQ's address of an ipc connection, HOST:UID:GID:PID."""
    pid = address.rpartition(":")[2]
    return Peer(int(pid) if pid.isdecimal() else 0)


FRAMES_PER_TURN = 500
MAX_FRAMES_TURN_S = 0.1
"""Longest time in seconds for which frames are processed in one turn, because viewers wait meanwhile."""


def process_messages(socket: Socket, collector: Collector, now: float, unix: float) -> int:
    """Pass messages that ranks have sent to the collector, as many as fit into a turn, and return their number."""
    end = time.monotonic() + MAX_FRAMES_TURN_S
    count = 0
    while count < FRAMES_PER_TURN and time.monotonic() < end:
        try:
            frames, peer = receive_message(socket)
        except zmq.Again:
            break
        count += 1
        collector.process_message(frames, now, unix, peer)
    return count


def send_to_rank(socket: Socket, identity: bytes, message: ToRank) -> None:
    """Send a message to a connected rank. A message that is lost because the rank does not read is
    requested again by the rank.
    """
    with suppress(zmq.ZMQError):
        socket.send_multipart([identity, encode(message)], zmq.NOBLOCK)
