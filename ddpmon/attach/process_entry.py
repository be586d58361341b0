"""Makes a running Python process run code on its main thread, between two bytecodes. Standard library only.

Python 3.14 and later have sys.remote_exec for this. Before 3.14, a debugger stops the process for a moment and calls
two functions in it, both of which are safe at any instruction: mmap, which allocates memory for the code, and
Py_AddPendingCall, which schedules a call of PyRun_SimpleString with that code. The process then continues, and its main
thread makes the scheduled call where it would check for signals. If the main thread is in C code, it makes the call
when it returns to Python code.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ddpmon import proc
from ddpmon.attach import symbols
from ddpmon.launch import processes
from ddpmon.runs import Process

HOLD_S = 30.0
"""Longest time in seconds for a debugger to stop a process. A thread that is in the kernel delays the stop."""
_PYTHON_NAMES = ("libpython", "python", "pypy")
_C_NAMES = ("libc.so", "libc-", "ld-musl")
_ADD, _RUN, _MMAP = "Py_AddPendingCall", "PyRun_SimpleString", "mmap"
_VERSION = re.compile(rb"\.cpython-(\d)(\d+)t?-|/(?:lib)?python(\d)\.(\d+)t?(?:\.so| |$)", re.MULTILINE)
REMOTE = (3, 14)
"""The first Python version that can run code in another process."""
_PAGE = 4096
_HELD, _PLACED, _SCHEDULED = "ddpmon: held", "ddpmon: placed", "ddpmon: scheduled"

_MAP = "((unsigned long (*)(unsigned long, unsigned long, int, int, int, long)) {mmap})(0, {size}, 3, 34, -1, 0)"
"""The call mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) as gdb evaluates it."""
_NOTE = "((int (*)(unsigned long, unsigned long)) {add})({run}, $page)"
_GDB = f"""set pagination off
set confirm off
set unwindonsignal on
handle all nostop noprint pass
handle SIGINT nostop noprint pass
echo {_HELD}\\n
if !$_isvoid($xmm0)
  set $xmm0.v4_int32[0] = ~$xmm0.v4_int32[0]
  set $xmm0.v4_int32[0] = ~$xmm0.v4_int32[0]
end
set $page = {_MAP}
printf "{_PLACED} %lx\\n", $page
restore {{text}} binary $page
printf "{_SCHEDULED} %d\\n", {_NOTE}
detach
quit
"""
"""The commands for gdb. The commands end at the first error, and gdb then detaches.

After each call, gdb restores the registers of the process one by one. If gdb cannot write the vector registers, the
other registers stay half restored, and the process aborts. So the commands first change a vector register and change it
back. If this test fails, the process has not been harmed.
"""
_CANNOT_RESTORE = "Couldn't write extended state status"
FIRST_WITH_AMX = 14
"""The first version of gdb that can write the registers of CPUs with AMX. Older ones expect fewer bytes.

Source: gdb-patches, "Handle variable XSAVE layouts" (2023). Measured: gdb 13 fails on an Intel Xeon with AMX.
"""


class EntryError(Exception):
    """A process cannot be entered. The message is one line that says why, and what to do."""


def python_version(pid: int) -> tuple[int, int] | None:
    """Return the version of Python that a process runs, read from the names of the libraries it has mapped.

    Returns None if no library shows a version. Raises OSError if the process cannot be read.
    """
    match = _VERSION.search(proc.mapped(pid))
    if match is None:
        return None
    major, minor, *other = match.groups()
    return int(major or other[0]), int(minor or other[1])


def debugger() -> str | None:
    """Return the path of gdb; None if it is not installed."""
    return shutil.which("gdb")


def unfit_debugger(program: str, cpu: Path = Path("/proc/cpuinfo")) -> str:
    """Return why a gdb cannot enter processes on this machine's CPU, and what to install; "" if it can."""
    try:
        if b" amx_tile" not in cpu.read_bytes():
            return ""
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    version = re.search(r"(\d+)\.\d+\S*$", said.partition("\n")[0])
    if version is None or int(version[1]) >= FIRST_WITH_AMX:
        return ""
    return _too_old(f"gdb {version[1]}")


def _too_old(debugger: str) -> str:
    return (
        f"{debugger} cannot restore the registers of this machine's CPU; install gdb {FIRST_WITH_AMX} or later, for "
        "example with conda install -c conda-forge gdb"
    )


@dataclass(frozen=True)
class Addresses:
    """Addresses in a process of the functions that the debugger calls there."""

    mmap: int
    add: int
    run: int


def addresses(pid: int) -> Addresses:
    """Return the addresses in a process of the functions that the debugger calls.

    Raises:
        EntryError: The Python of the process does not export the functions.
        OSError: This user may not read the memory of the process.

    """
    found: dict[str, int] = {}
    memory = os.open(f"{proc.PROC_ROOT}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for image in symbols.images(pid):
            is_python = image.path.name.startswith(_PYTHON_NAMES)
            if not is_python and not image.path.name.startswith(_C_NAMES):
                continue
            names = (_ADD, _RUN) if is_python else (_MMAP,)
            try:
                found |= symbols.find(image, names, lambda at, size: os.pread(memory, size, at))
            except symbols.NoSymbolError:
                continue
    finally:
        os.close(memory)
    if missing := [name for name in (_ADD, _RUN, _MMAP) if name not in found]:
        raise EntryError(
            f"the job's Python was built without the symbol {missing[0]}, which attaching needs; the "
            "Pythons of distributions, conda and python.org have it"
        )
    return Addresses(found[_MMAP], found[_ADD], found[_RUN])


class Entry:
    """An attempt to make one process run Python code. It begins at once; `poll` returns whether it has succeeded."""

    def __init__(self, process: Process, text: str, folder: Path, name: str) -> None:
        """Begin to enter the process.

        Args:
            process: The process to enter.
            text: Python code for it to run.
            folder: Folder for the files of this entry.
            name: Prefix of the names of these files.

        Raises:
            EntryError: The process cannot be entered.
            OSError: A file cannot be written, or the process cannot be read.

        """
        self.process = process
        self.began_at = time.monotonic()
        self._debugger: Process | None = None
        self._log = folder / f"{name}.log"
        self._log.unlink(missing_ok=True)
        if sys.version_info >= REMOTE and python_version(process.pid) == sys.version_info[:2]:
            path = folder / f"{name}.py"
            path.write_text(text)
            try:
                sys.remote_exec(process.pid, str(path))  # type: ignore[attr-defined,unused-ignore]  # not before 3.14
            except (RuntimeError, ValueError) as error:
                raise EntryError(f"Python refused to load the probe: {error}") from None
            return
        path = folder / f"{name}.text"
        path.write_bytes(text.encode() + b"\0")
        self._start_debugger(path, folder / f"{name}.commands", addresses(process.pid))

    def _start_debugger(self, text: Path, commands: Path, at: Addresses) -> None:
        program = debugger()
        if program is None:
            raise EntryError("gdb is missing on this machine")
        commands.write_text(
            _GDB.format(text=text, mmap=at.mmap, add=at.add, run=at.run, size=-(-text.stat().st_size // _PAGE) * _PAGE)
        )
        # Loading symbols would take gdb seconds, in which the process stands still, so gdb gets addresses as numbers.
        quick = ["set auto-solib-add off", "set auto-load off", "set debuginfod enabled off"]
        options = ["-nx", "-batch", "-readnever", *(word for each in quick for word in ("-iex", each))]
        line = [program, *options, "-p", str(self.process.pid), "-x", str(commands)]
        pid = processes.spawn_session(line, {**os.environ, "LC_ALL": "C"}, self._log)
        self._debugger = Process.of(pid) or Process(pid, 0)

    def poll(self) -> bool:
        """Return whether the process is certain to run the code. Raises EntryError if it will not."""
        if self._debugger is None:
            return True
        ended = processes.reap_if_ended(self._debugger)
        said = self._log.read_text(errors="replace") if self._log.exists() else ""
        if not ended:
            # Never kill gdb after it has stopped the process: it may be in the middle of a call there.
            if _HELD not in said and time.monotonic() - self.began_at > HOLD_S:
                processes.send_signal(self._debugger, signal.SIGKILL)
                raise EntryError(f"the debugger could not stop the process within {HOLD_S:.0f} s")
            return False
        if f"{_SCHEDULED} 0" in said:
            return True
        if not self.process.alive():
            raise EntryError("the process ended before it had loaded the probe")
        raise EntryError(_why(said))


def _why(said: str) -> str:
    """Return the debugger's error as one line that says what to do."""
    if f"{_SCHEDULED} -1" in said:
        return "Python's queue of pending calls in the process is full; try again when the process runs Python code"
    if _CANNOT_RESTORE in said:
        return _too_old("this gdb")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    complaint = next((line for line in lines if "ptrace" in line or "not permitted" in line), "")
    if complaint:
        return (
            f"the debugger has no permission to trace the process ({complaint}); if it runs in a "
            "container, start the container with "
            "--cap-add=SYS_PTRACE"
        )
    last = next((line for line in reversed(lines) if not line.startswith("[")), "the debugger printed nothing")
    return f"the debugger could not load the probe into the process: {last}"
