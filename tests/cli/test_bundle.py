"""ddpmon bundle: a run as one file for an issue, in which no secret is left."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import tarfile
import zlib
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.cli.commands import bundling
from ddpmon.export import bundle
from ddpmon.recording.recording import recording_path
from tests.ranks import EAGER, launcher
from tests.recordings import record
from tests.worlds import own_times

PASSWORD, TOKEN, DSN, KEY, HEADER = "Zebra7crossing", "Quokka8token9", "Lemur4dsn2pw", "MIIEwallaby55", "Okapi3bearer"
SECRETS = (PASSWORD, TOKEN, DSN, KEY, HEADER)
SCRIPT = f"""
import os
import sys

import torch
import torch.distributed as dist

import ddpmon

password = sys.argv[sys.argv.index("--password") + 1]
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    with ddpmon.phase(f"as {{password}}"):
        model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    ddpmon.log(**{{f"to {{password}}": 1.0}})
print(f"hello {{password}}, {{os.environ['HF_TOKEN']}} is in use")
print("-----BEGIN RSA PRIVATE KEY-----", "{KEY}", "-----END RSA PRIVATE KEY-----", sep="\\n")
print("Authorization: Bearer {HEADER}", file=sys.stderr, flush=True)
raise ValueError(f"no database postgres://bob:{DSN}@db for {{password}}")
"""


def contents(path: Path) -> dict[str, bytes]:
    """Every file in a bundle by its name in the run's folder; of a recording also what its compressed blobs hold."""
    found = {}
    with tarfile.open(path) as archive:
        for entry in archive.getmembers():
            assert stat.S_IMODE(entry.mode) == (0o700 if entry.isdir() else 0o600), entry.name
            if entry.isfile():
                found[entry.name.partition("/")[2]] = archive.extractfile(entry).read()
    return found


def inflated(path: Path) -> bytes:
    """All that is packed into the rows of a recording."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return b"".join(zlib.decompress(blob) for (blob,) in db.execute("SELECT records FROM step_blocks") if blob)


@pytest.mark.e2e
def test_no_planted_secret_is_in_it_and_it_can_be_read_on_another_machine(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (tmp_path / "train.py").write_text(EAGER + SCRIPT)
    command = launcher(2, tmp_path / "train.py", "--password", PASSWORD, "--dsn", f"postgres://bob:{DSN}@db")
    assert cli("exec", "--headless", "--name", "train", "--", *command).returncode == 1
    run = runs.find("train")
    before = b"".join(path.read_bytes() for path in runs.run_dir(run.id).rglob("*") if path.is_file())
    packed = inflated(recording_path(run.id))
    assert [secret for secret in SECRETS if secret.encode() not in before] == []
    assert PASSWORD.encode() in packed

    told = cli("bundle", "-o", "b.tar.gz", cwd=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    found = contents(tmp_path / "b.tar.gz")
    named = {line.split()[0] for line in told.stdout.splitlines() if line.startswith("  ")}
    assert {name.partition("/")[0].rstrip("/") for name in found} == {name.rstrip("/") for name in named}
    everything = b"".join(found.values())
    monkeypatch.setenv("DDPMON_HOME", str(tmp_path / "there"))
    (tmp_path / "there" / "runs").mkdir(parents=True, mode=0o700)
    (tmp_path / "there").chmod(0o700)
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        archive.extractall(tmp_path / "there" / "runs", filter="data")
    assert (runs.load(run.id).name, stat.S_IMODE((tmp_path / "b.tar.gz").stat().st_mode)) == ("train", 0o600)
    everything += inflated(recording_path(run.id))
    assert [secret for secret in SECRETS if secret.encode() in everything] == []
    report = json.loads(cli("report", "--format", "json", env={**os.environ}).stdout)
    assert "ValueError: no database postgres://bob:…@db for …" in report["verdict"]
    assert len(report["ranks"]) == 2
    assert any(name.endswith("stdout.log") and "hello …".encode() in text for name, text in found.items())


@pytest.fixture
def without_torch(monkeypatch):
    """Leave out of a bundle what torch says of this machine, which takes an import of torch: tests/doctor asks it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)


@pytest.mark.usefixtures("home", "without_torch")
def test_without_a_recording_the_rest_is_there_and_logs_end_with_whole_lines(cli, tmp_path):
    run = record(own_times(20, 2))
    recording_path(run.id).write_bytes(b"no database" * 1000)
    log = runs.run_dir(run.id) / "logs" / "launcher.log"
    log.parent.mkdir(mode=0o700, exist_ok=True)
    log.write_text(f"password={'x' * bundle.LOG_BYTES}tail\n" + "a.-" * 20_000 + "\nlast\n")
    told = cli("bundle", "told", "-o", str(tmp_path / "b.tar.gz"))
    assert (told.returncode, told.stderr) == (0, "")
    assert any("missing" in line and "telemetry.db" in line for line in told.stdout.splitlines())
    found = contents(tmp_path / "b.tar.gz")
    assert {"run.json", "doctor.json"} <= found.keys()
    assert found["logs/launcher.log"].decode().splitlines() == [("a.-" * 20_000)[: bundle.MAX_LOG_LINE_CHARS], "last"]
    refused = cli("bundle", "told", "-o", "/no/such/folder/b.tar.gz")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "ddpmon: cannot write /no/such/folder/b.tar.gz: No such file or directory\n"


@pytest.mark.usefixtures("home", "without_torch")
def test_a_large_recording_is_left_out_with_a_line_that_says_how_to_include_it(tmp_path, monkeypatch):
    run = record(own_times(20, 2))
    size_bytes = recording_path(run.id).stat().st_size
    for most, whole, included in ((size_bytes, False, True), (size_bytes - 1, False, False), (0, True, True)):
        monkeypatch.setattr(bundle, "MAX_RECORDING_BYTES", most)
        parts = {part.name: part for part in bundle.write_bundle(run, tmp_path / "b.tar.gz", whole=whole)}
        assert ("telemetry.db" in contents(tmp_path / "b.tar.gz")) is included
        assert (parts["telemetry.db"].size_bytes is not None) is included
        assert ("with --whole it is included" in parts["telemetry.db"].text) is not included


def test_the_limit_in_the_help_is_the_one_that_holds():
    assert f"{bundle.MAX_RECORDING_BYTES // 1_000_000} MB" in (bundling.bundle.help or "")
