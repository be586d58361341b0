"""Test that the file with a rank's exception is whole or missing: half of one would end torchrun itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing import ProcessFailure
from torch.distributed.elastic.multiprocessing.errors import error_handler

from ddpmon.probe import arm


@pytest.fixture
def error_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    return path


def fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the interpreter at the end of a script that raised. Not in a fixture: pytest forgets it before a test."""
    monkeypatch.setattr(sys, "last_value", ValueError("the first cause"), raising=False)
    arm._write_error_file()


def failure(error_file: Path) -> ProcessFailure:
    """Return what torchrun makes of a rank that failed."""
    return ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file=str(error_file))


def test_a_rank_that_is_killed_while_it_writes_leaves_no_file(
    error_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(data: object, file: object) -> None:
        file.write(json.dumps(data)[:9])
        raise KeyboardInterrupt  # nothing of ours runs after it, as after SIGKILL

    monkeypatch.setattr(error_handler.json, "dump", killed)
    with pytest.raises(KeyboardInterrupt):
        fail(monkeypatch)
    assert not error_file.exists()
    assert failure(error_file).exitcode == 1
