"""A text runs on the main thread of another process, between two bytecodes, and leaves nothing behind there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon.attach import probe_code, process_entry, symbols
from ddpmon.attach.process_entry import Entry, EntryError
from ddpmon.runs import Process
from tests.attach.conftest import Program, needs_gdb
from tests.conftest import wait_for

SCRIPT = """
import signal, sys, time
def leave(*_):
    raise SystemExit(7)
signal.signal(signal.SIGTERM, leave)
names = set(globals()) | {"names"}
print("up", flush=True)
try:
    while True:
        time.sleep(0.01)
        if extra := set(globals()) - names - {"extra"}:
            print(extra, flush=True)
finally:
    print("left", flush=True)
"""


@pytest.fixture
def target():
    """A Python process that loops."""
    with Program([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        yield process


def ran(target, body, folder, name="try"):
    """Have a process run a text, up to where it is scheduled; the file that gets its answer."""
    reply = folder / f"{name}.json"
    running = Entry(Process.of(target.pid), probe_code.written(body, reply), folder, name)
    wait_for(running.poll)
    return reply


@needs_gdb
def test_a_text_runs_and_leaves_no_name_in_the_script(target, tmp_path):
    reply = ran(
        target, f"        open({str(tmp_path / 'ran')!r}, 'x').close()\n        raise ValueError('no')", tmp_path
    )
    wait_for(reply.exists)
    assert json.loads(reply.read_text()) == {"ok": False, "error": "ValueError: no"}
    assert (tmp_path / "ran").exists()
    target.terminate()
    assert target.stdout.read() == "left\n"


@needs_gdb
def test_other_versions_of_python_are_entered_alike(tmp_path):
    pythons = sorted(Path(sys.base_prefix).parent.glob("3.1?.*/bin/python3"))
    for python in pythons or [Path(sys.executable)]:
        with Program([python, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "up\n"
            reply = ran(process, "        raise ValueError(sys.executable)", tmp_path)
            wait_for(reply.exists)
            assert str(python) in json.loads(reply.read_text())["error"]
            reply.unlink()


@needs_gdb
def test_what_a_signal_handler_raises_meanwhile_reaches_the_script(target, tmp_path):
    mark = tmp_path / "runs"
    body = f"        open({str(mark)!r}, 'x').close()\n        import time\n        while True: time.sleep(0.01)"
    reply = ran(target, body, tmp_path)
    wait_for(mark.exists)
    target.terminate()
    assert target.wait(60) == 7
    assert target.stdout.read() == "left\n"
    assert "signal handler" in json.loads(reply.read_text())["error"]


@needs_gdb
def test_a_text_that_comes_while_another_runs_runs_after_it(target, tmp_path):
    order, first_begun = tmp_path / "order", tmp_path / "begun"
    write = f"with open({str(order)!r}, 'a') as file: file.write"
    slow = f"""
        import os, time
        open({str(first_begun)!r}, 'x').close()
        while not os.path.exists({str(tmp_path / "second.ready")!r}): time.sleep(0.01)
        for _ in range(100): time.sleep(0.01)
        {write}('first ')
        raise ValueError"""
    ran(target, slow, tmp_path)
    wait_for(first_begun.exists)
    reply = ran(target, f"        {write}('second')\n        raise ValueError", tmp_path, "second")
    (tmp_path / "second.ready").touch()
    wait_for(reply.exists)
    assert order.read_text() == "first second"


@pytest.mark.skipif(sys.version_info < process_entry.REMOTE, reason="a debugger enters Python below 3.14")
def test_a_python_that_refuses_the_probe_is_an_error_in_one_line(tmp_path):
    with Program([sys.executable, "-X", "disable-remote-debug", "-c", SCRIPT], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(EntryError, match="refused to load the probe"):
            ran(process, "        pass", tmp_path)


def test_functions_are_found_in_memory(target):
    memory = os.open(f"/proc/{target.pid}/mem", os.O_RDONLY)
    found = {}
    for image in symbols.images(target.pid):
        if image.path.name.startswith(("libpython", "python", "libc.so")):
            names = ("Py_AddPendingCall", "mmap", "no_such_function")
            found |= symbols.find(image, names, lambda at, size: os.pread(memory, size, at))
    os.close(memory)
    assert found.keys() == {"Py_AddPendingCall", "mmap"}
    assert process_entry.addresses(target.pid).mmap == found["mmap"]


def test_a_program_without_python_has_no_addresses():
    with Program(["sleep", "600"]) as process, pytest.raises(EntryError, match="Py_AddPendingCall"):
        wait_for(lambda: process_entry.addresses(process.pid))


@needs_gdb
def test_an_ended_process_is_an_error_in_one_line(target, tmp_path):
    process = Process.of(target.pid)
    target.kill()
    target.wait()
    with pytest.raises((EntryError, OSError)):
        Entry(process, "pass", tmp_path, "try")


AMX = "flags\t\t: fpu avx512f amx_bf16 avx512_fp16 amx_tile amx_int8\n"


@pytest.mark.parametrize(
    ("flags", "first_line", "fits"),
    [
        (AMX, "GNU gdb (Debian 13.1-3) 13.1", False),
        (AMX, "GNU gdb (Ubuntu 12.1-0ubuntu1~22.04) 12.1", False),
        (AMX, "GNU gdb (Ubuntu 15.0.50.20240403-0ubuntu1) 15.0.50.20240403-git", True),
        (AMX, "GNU gdb (GDB) 14.1", True),
        (AMX, "something else", True),
        ("flags\t\t: fpu avx512f\n", "GNU gdb (Debian 13.1-3) 13.1", True),
    ],
)
def test_an_old_gdb_is_refused_on_a_cpu_whose_registers_it_cannot_restore(tmp_path, flags, first_line, fits):
    cpu, gdb = tmp_path / "cpuinfo", tmp_path / "gdb"
    cpu.write_text(flags)
    gdb.write_text(f"#!/bin/sh\necho '{first_line}'\necho more\n")
    gdb.chmod(0o755)
    why = process_entry.unfit_debugger(str(gdb), cpu)
    assert (why == "") is fits
    assert fits or "install gdb 14 or later" in why
    assert process_entry.unfit_debugger(str(tmp_path / "no-gdb"), cpu) == ""


@needs_gdb
def test_gdb_stops_at_a_register_that_it_cannot_write_and_the_process_goes_on(target, tmp_path, monkeypatch):
    fails = "echo Couldn't write extended state status: Bad address.\\n\nprint no_such_symbol\nset $xmm0"
    assert "set $xmm0" in process_entry._GDB.partition("mmap")[0]
    monkeypatch.setattr(process_entry, "_GDB", process_entry._GDB.replace("set $xmm0", fails, 1))
    with pytest.raises(EntryError, match="cannot restore the registers of this machine's CPU; install gdb 14 or later"):
        ran(target, f"        open({str(tmp_path / 'ran')!r}, 'x').close()", tmp_path)
    target.terminate()
    assert target.stdout.read() == "left\n"
    assert not (tmp_path / "ran").exists()
