"""A log stays within its bound and outlives a full disk, and says to the byte what is missing where."""

import re

import pytest

from ddpmon.errors import UsageError
from ddpmon.launch.boundedlog import FIRST_BYTES, RUN_BYTES, BoundedLog, bound_bytes
from ddpmon.runs import rotated_logs

MISSING = re.compile(rb"\[ddpmon\] ([\d,]+) bytes (after this|of output) are missing[^\n]*\n")


@pytest.fixture
def path(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "launcher.log"


def whole(path):
    """All files of a log in their order, without the sentences about what is missing; and how much is."""
    files = [rotated_logs.first(path), rotated_logs.older(path), path]
    text = b"".join(file.read_bytes() for file in files if file.exists())
    missing = sum(int(found[1].replace(b",", b"")) for found in MISSING.finditer(text))
    return MISSING.sub(b"", text), missing


def lines(count, width=100):
    return [f"{number:09d} ".encode() + b"x" * (width - 11) + b"\n" for number in range(count)]


@pytest.mark.parametrize("count", [10, 900, 1_500, 3_500, 20_000])
def test_beginning_and_end_are_kept_and_what_is_between_is_counted(path, count):
    log = BoundedLog(path, 200_000)
    printed = lines(count)
    for at in range(0, count, 7):
        data = b"".join(printed[at : at + 7])
        assert log.write(data) == len(data)
    log.close_with_note()
    kept, missing = whole(path)
    assert len(kept) + missing == 100 * count
    assert kept.endswith(b"".join(printed[-900:]))
    assert kept.startswith(b"".join(printed[: min(count, FIRST_BYTES // 100)]))
    assert path.stat().st_size <= 100_000
    if missing:
        assert rotated_logs.older(path).stat().st_size <= 100_000
        assert b"after this are missing" in rotated_logs.first(path).read_bytes().splitlines()[-1]


def test_what_was_dropped_is_counted_though_the_line_that_said_so_is_discarded(path):
    log = BoundedLog(path, 200_000)
    printed = lines(10_000)
    for at in range(0, 10_000, 100):
        log.write(b"".join(printed[at : at + 50]))
        log.count_missing(5_000, "a test")
    log.close_with_note()
    kept, missing = whole(path)
    assert len(kept) + missing == 1_000_000


def test_one_that_goes_on_with_a_log_counts_on(path):
    printed = lines(6_000)
    for part in range(0, 6_000, 100):
        log = BoundedLog(path, 100_000)
        log.write(b"".join(printed[part : part + 100]))
        log.close_with_note()
    kept, missing = whole(path)
    assert len(kept) + missing == 600_000
    assert kept.endswith(printed[-1])


def test_a_full_disk_is_no_error_and_nothing_is_twice_or_torn(small_disk):
    disk = small_disk(2)
    (disk.path / "logs").mkdir()
    path = disk.path / "logs" / "launcher.log"
    log = BoundedLog(path, 1 << 20)
    first = b"".join(lines(50))
    assert log.write(first) == len(first)
    disk.fill()
    more = b"".join(lines(2_000))
    taken = log.write(more)
    assert taken < len(more)
    assert log.full
    assert log.write(more[taken:]) == 0
    log.count_missing(150_000)
    disk.free()
    log._again_at = 0.0
    rest = more[150_000 + taken :]
    assert log.write(rest) == len(rest)
    assert not log.full
    log.close_with_note()
    text = path.read_bytes()
    assert b"\n[ddpmon] 150,000 bytes of output are missing: the disk was full\n" in text
    kept, missing = whole(path)
    assert missing == 150_000
    assert kept.replace(b"\n", b"") == (first + more[:taken] + rest).replace(b"\n", b"")


def test_what_a_removed_run_prints_makes_no_folder_again(path):
    log = BoundedLog(path, 1 << 20)
    path.parent.rmdir()
    assert log.write(b"x\n") == 0
    assert not path.parent.exists()


def test_the_tail_of_a_log_that_was_rotated_just_now_is_whole(path):
    rotated_logs.older(path).write_bytes(b"abcdef")
    path.write_bytes(b"gh")
    assert rotated_logs.tail(path, 4) == "efgh"
    assert rotated_logs.tail(path, 1) == "h"
    assert rotated_logs.tail(path.with_name("none"), 4) == ""


@pytest.mark.parametrize(
    ("text", "size"), [("", RUN_BYTES), ("256M", 256 << 20), ("2g", 2 << 30), ("1000", 1000), ("64KB", 64 << 10)]
)
def test_the_bound_is_a_size(text, size):
    assert bound_bytes({"DDPMON_LOGS": text}) == size


@pytest.mark.parametrize("text", ["lots", "-1M", "1.5G", "M", "9" * 5000], ids=lambda text: text[:9])
def test_what_is_no_size_is_said(text):
    with pytest.raises(UsageError, match="give a size"):
        bound_bytes({"DDPMON_LOGS": text})
