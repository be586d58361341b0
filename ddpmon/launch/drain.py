"""python -m ddpmon.launch.drain RUN_ID SUPERVISOR: copies what a run prints into logs of bounded length.

Standard library only. SUPERVISOR is the pid of the process that started this one.

Processes of the run print into spools (`ddpmon.launch.spool`), whatever the state of the disk. This process empties
them into the run's logs, whose total size is bounded. A process that makes a spool sends its descriptor over a socket;
spools that an earlier drain had are found in /proc.

While the disk is full, the last `HELD_BYTES` of all spools are held in memory, and dropped bytes are counted.

    SIGTERM    write what has been printed so far, and end
    The drain ends by itself once its supervisor is gone and no process has a spool of the run open.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import signal
import socket
import sys
import time

from ddpmon import proc, runs
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import spool
from ddpmon.launch.boundedlog import FIRST_BYTES, LEAST_BYTES, RUN_BYTES, BoundedLog, bound_bytes
from ddpmon.launch.spool import PlainFile, Spool
from ddpmon.runs import Run

DRAIN_PAUSE_S = 0.1
SCAN_INTERVAL_S = 1.0
"""Interval, in seconds, at which the drain searches for files that torchrun has opened."""
ALONE_S = 2.0
"""Interval, in seconds, at which a drain without a supervisor checks whether any process still prints."""
RELEASE_S = 60.0
"""Interval, in seconds, at which the drain closes files that no process has open any more."""
HELD_BYTES = 16 << 20
LEAST_HELD_BYTES = 256 << 10
CHUNK_BYTES = 256 << 10
TURN_BYTES = 4 << 20
"""Largest number of bytes to read from one spool before the drain reads the next spool."""
INTRODUCTION_S = 10.0
"""Longest time, in seconds, for a process that connects to send its spool."""
TAKE_OVER_S = 10.0
_ENDS = {signal.SIGTERM, signal.SIGINT}


class Drain:
    """All spools of one run, and the logs that they are written to."""

    def __init__(self, run: Run, most_bytes: int, supervisor: int) -> None:
        """Prepare to drain a run.

        Args:
            run: The run.
            most_bytes: Limit of the total size of its logs.
            supervisor: Pid of the supervisor. getppid() would be wrong if the supervisor was killed early.

        """
        self._run_id = run.id
        self._logs_folder = runs.run_dir(run.id) / "logs"
        self._sockets = os.path.realpath(runs.socket_dir(run.id))
        self._most_bytes = most_bytes
        self._expected = 2 * (run.world_size // max(1, run.nnodes)) + 1
        self._spools: dict[tuple[int, int], tuple[Spool, BoundedLog]] = {}
        self._done: set[tuple[int, int]] = set()
        """Plain files into which no process will print any more."""
        self._logs: dict[str, BoundedLog] = {}
        self._listener: socket.socket | None = None
        self._waiting: list[tuple[float, socket.socket]] = []
        self._supervisor = supervisor

    def run_until_signal(self) -> None:
        """Drain until a signal ends this process, or until no process is left that could print."""
        self._find_open_spools()
        scan_at = release_at = alone_at = 0.0
        while True:
            now = time.monotonic()
            if now >= scan_at:
                scan_at = now + SCAN_INTERVAL_S
                self._open_new_spools()
            if now >= release_at:
                release_at = now + RELEASE_S
                self._close_unused()
            if os.getppid() != self._supervisor and now >= alone_at:
                alone_at = now + ALONE_S
                if not self._find_open_spools():
                    break
            self._receive_spools(now)
            more = self._drain_once()
            if signal.sigtimedwait(_ENDS, 0 if more else DRAIN_PAUSE_S) is not None:
                break
        self._drain_the_rest()

    def _drain_the_rest(self) -> None:
        self._receive_spools(time.monotonic())
        self._open_new_spools()
        unread = 0
        for spooled, log in self._spools.values():
            log.try_again()
            with contextlib.suppress(OSError):
                unread += spooled.unread_bytes()
        for _ in range(unread // TURN_BYTES + 2):  # Later output is left to the next drain.
            if not self._drain_once():
                break
        for spooled, log in self._spools.values():
            if lost := spooled.close():
                log.count_missing(lost)
        for log in self._logs.values():
            log.close_with_note()

    def _drain_once(self) -> bool:
        """Drain each spool once; return whether any has more."""
        more = False
        held_bytes = max(LEAST_HELD_BYTES, HELD_BYTES // max(1, len(self._logs)))
        for identity, (spooled, log) in list(self._spools.items()):
            with contextlib.suppress(OSError):
                more |= _drain_spool(spooled, log, held_bytes)
                if spooled.ended and not spooled.unread_bytes():
                    spooled.close()
                    del self._spools[identity]
        return more

    def _take_in(self, path: str, log: str) -> None:
        """Start to drain the spool at a path, if it can be opened."""
        try:
            status = os.stat(path)
            identity = status.st_dev, status.st_ino
            if identity in self._spools or identity in self._done:
                return
            opened = spool.open_spool(path)
        except OSError:
            return
        if log not in self._logs:
            share = max(LEAST_BYTES, self._most_bytes // max(self._expected, len(self._logs) + 1))
            for bounded_log in self._logs.values():
                bounded_log.limit_size(share)
            self._logs[log] = BoundedLog(self._logs_folder / log, share)
            self._logs[log].ensure_open()
        self._spools[opened.identity] = opened, self._logs[log]

    def _find_open_spools(self) -> bool:
        """Start to drain the spools that processes have open; return whether there are any."""
        open_spools = list(spool.spools_in_use(self._run_id, self._sockets, os.getpid()))
        for path, log in open_spools:
            self._take_in(path, log)
        return bool(open_spools)

    def _open_new_spools(self) -> None:
        """Start to drain the files that torchrun opened, and make sure that the socket for new spools exists."""
        if self._listener is None or not os.path.exists(os.path.join(self._sockets, "drain.sock")):
            self._open_listener()
        for path in glob.glob(os.path.join(glob.escape(self._sockets), "ranks/*/attempt_*/*/std*.log")):
            log = os.path.relpath(path, self._sockets)
            if spool.is_log(log):
                self._take_in(path, log)

    def _open_listener(self) -> None:
        with contextlib.suppress(OSError):
            status = os.lstat(self._sockets)
            if status.st_uid != os.getuid() or status.st_mode & 0o077:
                return  # The folder belongs to another user.
            path = os.path.join(self._sockets, "drain.sock")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.bind(path)
                listener.listen(4096)
                listener.setblocking(False)
            except OSError:
                listener.close()
                raise
            if self._listener is not None:
                self._listener.close()
            self._listener = listener

    def _receive_spools(self, now: float) -> None:
        """Receive the spools that processes sent over the socket."""
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            connection.setblocking(False)
            self._waiting.append((now + INTRODUCTION_S, connection))
        waiting, self._waiting = self._waiting, []
        for until, connection in waiting:
            try:
                _, files, _, _ = socket.recv_fds(connection, 1, 4)
            except BlockingIOError:
                if now < until:
                    self._waiting.append((until, connection))
                    continue
                files = []
            except OSError:
                files = []
            connection.close()
            for file in files:
                self._take_in_sent(file)

    def _take_in_sent(self, file: int) -> None:
        log = spool.log_of(proc.descriptor_link(file), self._run_id, self._sockets)
        if log is not None:
            self._take_in(proc.descriptor_path(file), log)
        os.close(file)

    def _close_unused(self) -> None:
        """Close drained files that no process has open, so that a run with many restarts needs few descriptors."""
        if len(self._spools) <= 2 * self._expected:
            return
        open_now = set()
        for path, _ in spool.spools_in_use(self._run_id, self._sockets, os.getpid()):
            with contextlib.suppress(OSError):
                status = os.stat(path)
                open_now.add((status.st_dev, status.st_ino))
        for identity, (spooled, _) in list(self._spools.items()):
            with contextlib.suppress(OSError):
                if isinstance(spooled, PlainFile) and identity not in open_now and not spooled.unread_bytes():
                    spooled.close()
                    del self._spools[identity]
                    self._done.add(identity)


def _drain_spool(spooled: Spool, log: BoundedLog, held_bytes: int) -> bool:
    """Write a spool's contents into its log; return whether there is more. held_bytes: limit while the disk is full."""
    if not spooled.peek_bytes(1):
        return False
    printed_ns = spooled.printed_ns()
    is_flood = spooled.unread_bytes() >= CHUNK_BYTES
    room = held_bytes if log.full else log.half_bytes
    if spooled.unread_bytes() > room and log.is_empty:
        spooled.remove_bytes(log.write(spooled.peek_bytes(FIRST_BYTES)))
    if (surplus := spooled.unread_bytes() - room) > 0:
        spooled.remove_bytes(surplus)
        cut = spooled.peek_bytes(CHUNK_BYTES).find(b"\n") + 1
        spooled.remove_bytes(cut)
        log.count_missing(surplus + cut, "" if log.full else "the output came faster than ddpmon could write it")
    for _ in range(TURN_BYTES // CHUNK_BYTES):
        data = spooled.peek_bytes(CHUNK_BYTES)
        written = log.write(data)
        spooled.remove_bytes(written)
        if written < len(data) or not data:
            break
    else:
        return True
    log.printed_at(printed_ns)
    return is_flood and not log.full  # A process that prints this much may be waiting for room in the pipe.


def _replace_older_drain(run_id: str) -> None:
    """Make this the run's only drain: end an older one, and hold the lock until this process ends."""
    try:
        lock = os.open(runs.socket_dir(run_id) / "drain.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # The folder was removed. Spools are then found through /proc.
        return
    begin = time.monotonic()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - begin
            if waited > TAKE_OVER_S:
                raise DdpmonError(f"an earlier process still writes the logs of {run_id}, and does not end") from None
            _signal_drain(os.pread(lock, 32, 0), run_id, signal.SIGKILL if waited > TAKE_OVER_S / 2 else signal.SIGTERM)
            time.sleep(DRAIN_PAUSE_S)
        else:
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            return


def _signal_drain(pid: bytes, run_id: str, number: signal.Signals) -> None:
    with contextlib.suppress(OSError, ValueError):
        if run_id in proc.arguments(int(pid)):
            os.kill(int(pid), number)
            os.kill(int(pid), signal.SIGCONT)


def main() -> None:
    """Drain the run that the command line names."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    proc.allow_most_files()  # The drain needs two descriptors for each stream of each attempt.
    try:
        most_bytes = bound_bytes(os.environ)
    except UsageError:  # `start` has already reported the error where the run was started.
        most_bytes = RUN_BYTES
    try:
        run = runs.load(sys.argv[1])
        _replace_older_drain(run.id)
    except (DdpmonError, OSError) as error:
        sys.exit(f"drain: {error}")
    Drain(run, most_bytes, int(sys.argv[2])).run_until_signal()


if __name__ == "__main__":
    main()
