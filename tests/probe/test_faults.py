"""Whatever happens to the hub or inside the probe, training goes on, and what is lost is counted."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from ddpmon.messages import Batch, Bye, Hello, decode_from_rank
from ddpmon.messages.folder import STACKS, TAILS, unpack_tail
from tests.probe.conftest import SCRIPTS, Ear, forked
from tests.ranks import INJECT

pytestmark = pytest.mark.e2e
SMALL = SCRIPTS / "small_ddp.py"


def test_a_probe_that_fails_says_so_once_and_leaves(ear: Ear, tmp_path: Path) -> None:
    args = ("--save", str(tmp_path / "weights"))
    done = forked(2, SMALL, *args, "--break-probe", address=ear.address)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the probe failed (RuntimeError: broken on purpose)") == 2
    assert (tmp_path / "weights.0").exists()


def test_a_new_hub_gets_everything_the_old_one_did_not_take(socket_dir: Path) -> None:
    """The first hub hears nothing it could acknowledge and goes; the second one has every step."""
    address = f"ipc://{socket_dir}/ingest.sock"
    first = Ear(address)
    first.answering = False
    arguments = 1, SMALL, "--steps", "120", "--slow", "other:0"
    rank = threading.Thread(target=forked, args=arguments, kwargs={"address": address})
    rank.start()
    try:
        first.wait(lambda: len(first.steps(0)) > 10)
    finally:
        first.close()
    second = Ear(address)
    second.epoch = "second"
    try:
        second.wait(lambda: second.goodbyes() == {0})
        assert {step.step for step in second.steps(0)} == set(range(1, 121))
    finally:
        second.close()
        rank.join()


def test_a_hub_that_never_answers_does_not_hold_up_the_end(ear: Ear, tmp_path: Path) -> None:
    """The unacknowledged batches are in the run's folder afterwards, and nothing else is."""
    ear.answering = False
    tmp_path.chmod(0o700)
    done = forked(2, SMALL, address=ear.address, DDPMON_RUN_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert len(ear.steps(0)) == 30
    left = {path.name.partition("-")[0]: path for path in (tmp_path / TAILS).iterdir()}
    assert sorted(left) == ["0", "1"]
    assert left["0"].stat().st_mode & 0o777 == 0o600
    frames, trouble = unpack_tail(left["0"].read_bytes())
    messages = [decode_from_rank(frame) for frame in frames]
    assert (trouble, type(messages[0]), type(messages[-1])) == ("", Hello, Bye)
    assert [step.step for m in messages if isinstance(m, Batch) for step in m.steps] == list(range(1, 31))
    assert not list((tmp_path / STACKS).iterdir()), "nobody is offered an answer any more"


def test_a_restarted_rank_that_fails_leaves_the_cause_and_its_own_traceback(ear: Ear, tmp_path: Path) -> None:
    error_file = tmp_path / "error.json"
    torchruns = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_ERROR_FILE": str(error_file)}
    done = forked(1, SMALL, "--fail", "10", address=ear.address, **torchruns)
    assert done.returncode == 1, done.stderr
    ear.wait(lambda: ear.failures() and ear.goodbyes())
    assert {hello.restart for hello in ear.hellos()} == {1}
    (failure,) = ear.failures()
    assert (failure.error, failure.step) == ("ValueError: wrong on purpose, password=…", 10)
    assert "small_ddp.py" in failure.traceback
    assert str(INJECT.parent) not in failure.traceback
    assert "hunter2" not in failure.traceback
    assert json.loads(error_file.read_text())["message"]["message"].startswith("ValueError: wrong on purpose")
    assert [step.step for step in ear.steps(0)] == list(range(1, 11))


def test_a_script_that_takes_all_descriptors_trains_on_and_every_step_is_heard(ear: Ear, tmp_path: Path) -> None:
    """Before there are any of the probe's and after, with os.closerange and in C, by dup2, in a forked daemon."""
    tmp_path.chmod(0o700)
    script = SCRIPTS / "takes_descriptors.py"
    done = forked(None, script, str(tmp_path), address=ear.address, DDPMON_RUN_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    ear.wait(lambda: ear.goodbyes() == {0})
    assert {step.step for step in ear.steps(0)} == set(range(1, 26))
    assert (tmp_path / "theirs").read_bytes() == b""
    assert (tmp_path / "daemon").read_bytes() == b"alive"
