"""A spool gives what was printed once and in order; a plain file frees what was taken, and tells where to go on."""

import os
import random
import resource
import subprocess

import pytest

from ddpmon.inject import ddpmon_spool
from ddpmon.launch import spool

RUN = "20260101-000001-0001"


@pytest.fixture(params=["pipe", "file"])
def printed(request, tmp_path):
    """The writing end of a spool."""
    if request.param == "pipe":
        made = ddpmon_spool.make_pipe(str(tmp_path), RUN, "launcher.log")
        assert not list(tmp_path.iterdir())
    else:
        made = os.open(tmp_path / "stdout.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield made
    os.close(made)


only_pipes = pytest.mark.parametrize("printed", ["pipe"], indirect=True)
only_files = pytest.mark.parametrize("printed", ["file"], indirect=True)


def end_of(made):
    return spool.open_spool(f"/proc/self/fd/{made}")


def test_what_was_printed_is_read_once_in_order_and_freed(printed):
    kept = end_of(printed)
    random.seed(1)
    expected, got = b"", b""
    for number in range(300):
        data = b"%d %s\n" % (number, b"x" * random.randrange(2_000))
        os.write(printed, data)
        expected += data
        piece = kept.peek_bytes(random.randrange(1, 3_000))
        kept.remove_bytes(len(piece))
        got += piece
    while piece := kept.peek_bytes(10_000):
        kept.remove_bytes(len(piece))
        got += piece
    assert got == expected
    assert os.fstat(printed).st_blocks * 512 <= 4096
    assert kept.close() == 0


@only_files
def test_another_reader_goes_on_where_the_first_ended(printed):
    first = end_of(printed)
    os.write(printed, b"taken " * 2_000 + b"left")
    first.remove_bytes(12_000)
    first.close()
    second = end_of(printed)
    assert second.peek_bytes(100) == b"left"
    second.close()


def test_zeros_that_were_printed_are_output(printed):
    kept = end_of(printed)
    for data in (b"a\0b", b"\0" * 10_000, b"c"):
        os.write(printed, data)
        assert kept.peek_bytes(20_000) == data
        kept.remove_bytes(len(data))
    kept.close()


@only_pipes
def test_a_limit_on_the_size_of_files_is_none_on_what_is_printed(printed):
    kept = end_of(printed)
    limit = 1_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for _ in range(5):
        subprocess.run(
            ["sh", "-c", "printf %1000s"], stdout=printed, check=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )  # fmt: skip
    assert len(kept.peek_bytes(100_000)) == 5_000
    kept.close()


@only_pipes
def test_a_pipe_that_nobody_can_print_into_any_more_has_ended(printed):
    kept = end_of(printed)
    writing = os.dup(printed)
    os.write(writing, b"last words")
    assert (kept.unread_bytes(), kept.ended) == (10, False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), printed)
    os.close(writing)
    assert (kept.unread_bytes(), kept.ended) == (10, True)
    assert kept.close() == 10


@only_files
def test_on_a_file_system_that_frees_nothing_all_is_read_once_too(printed, monkeypatch):
    monkeypatch.setattr(spool._libc, "fallocate", lambda *_: -1)
    kept = end_of(printed)
    for number in range(5):
        os.write(printed, b"line %d\n" % number)
        assert kept.peek_bytes(100) == b"line %d\n" % number
        kept.remove_bytes(7)
    kept.close()


@only_pipes
def test_a_spool_is_found_by_its_name_in_whoever_has_it_open(printed):
    child = subprocess.Popen(["sleep", "60"], stdout=printed)
    try:
        found = dict(spool.spools_in_use(RUN, "/nowhere", os.getpid()))
        assert found == {f"/proc/{child.pid}/fd/1": "launcher.log"}
        assert not dict(spool.spools_in_use("20260101-000001-0002", "/nowhere", os.getpid()))
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("log", "is_log"),
    [
        ("launcher.log", True),
        ("ranks/a_b/attempt_0/12/stderr.log", True),
        ("ranks/../attempt_0/1/stdout.log", False),
        ("../launcher.log", False),
        ("ranks/a/attempt_0/1/stdout.log\n", False),
        ("/etc/passwd", False),
    ],
)
def test_only_a_runs_own_logs_are_written(log, is_log):
    assert spool.is_log(log) is is_log
