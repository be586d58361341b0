"""ddpmon export: files for other tools."""

from __future__ import annotations

import json
import os
import stat

import pytest

from tests.recordings import record
from tests.worlds import own_times


@pytest.fixture
def told(home):
    return record(own_times(20, 2))


def test_a_format_goes_to_standard_output_or_into_a_file(told, cli, tmp_path):
    rows = cli("export", "--format", "csv")
    assert (rows.returncode, rows.stderr) == (0, "")
    assert len(rows.stdout.splitlines()) == 1 + 2 * 20
    assert len(cli("export", "told", "--format", "csv", "--last", "3").stdout.splitlines()) == 1 + 2 * 3
    path = tmp_path / "trace.json"
    kept = cli("export", "told", "--format", "perfetto", "-o", str(path))
    assert (kept.returncode, kept.stdout, kept.stderr) == (0, "", "")
    assert json.loads(path.read_text())["traceEvents"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]
    (link := tmp_path / "link").symlink_to(path)
    assert cli("export", "told", "--format", "csv", "--last", "1", "-o", str(link)).returncode == 0
    assert (link.is_symlink(), path.read_text().count("\n")) == (True, 1 + 2)
    assert cli("export", "--format", "openmetrics").stdout.endswith("# EOF\n")


def test_what_is_no_file_is_written_to_and_not_replaced(told, cli, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert cli("export", "told", "--format", "csv", "--last", "1", "-o", str(pipe)).returncode == 0
        assert len(os.read(reading, 1 << 16).splitlines()) == 1 + 2
    finally:
        os.close(reading)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reading, writing = os.pipe()
    try:  # as /dev/stdout is one, of which no path leads to the pipe
        assert cli("export", "told", "--format", "csv", "--last", "1", "-o", f"/proc/self/fd/{writing}").returncode == 0
        assert len(os.read(reading, 1 << 16).splitlines()) == 1 + 2
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "--format"),
        (["--format", "parquet"], 2, "--format"),
        (["--format", "csv", "--last", "0"], 2, "--last"),
        (
            ["--format", "openmetrics", "--last", "3"],
            2,
            "--last works only with formats that list steps, and --format openmetrics does not",
        ),
        (["nothing", "--format", "csv"], 2, "no run 'nothing'"),
        (["--format", "csv", "-o", "/no/such/folder/x.csv"], 2, "cannot write /no/such/folder/x.csv"),
        (["--format", "csv", "-o", "/"], 2, "'/' is a directory"),
        (["--format", "csv", "-o", ""], 2, "--output '': give the name of a file"),
    ],
)
def test_what_cannot_be_exported_is_one_line(told, cli, arguments, code, said):
    refused = cli("export", *arguments)
    assert (refused.returncode, refused.stdout) == (code, "")
    assert len(refused.stderr.splitlines()) == 1
    assert said in refused.stderr


def test_a_run_without_a_recording_leaves_no_file_behind(home, cli, made, tmp_path):
    made(name="never")
    refused = cli("export", "never", "--format", "csv", "-o", str(tmp_path / "x.csv"))
    assert refused.returncode == 1
    assert "never has no recording: " in refused.stderr
    assert list(tmp_path.iterdir()) == []
