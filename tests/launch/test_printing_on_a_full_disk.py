"""A disk that is full for a while is no matter of the training: ranks go on to their end, and to the same weights."""

from __future__ import annotations

import pytest

from ddpmon import runs
from ddpmon.launch import start
from ddpmon.launch.prepare import Asked, prepare_run
from ddpmon.messages.folder import Places
from ddpmon.probe import run_settings, stack_signal
from tests.conftest import Started, wait_for


@pytest.mark.e2e
def test_a_rank_that_prints_much_on_a_full_disk_and_dies_is_heard_to_its_last_line(
    small_disk, home, tmp_path, monkeypatch
):
    disk = small_disk(8)
    monkeypatch.setenv("DDPMON_HOME", str(disk.path / "home"))
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "here = Path(sys.argv[1])\n"
        "(here / 'started').touch()\n"
        "while not (here / 'full').exists():\n"
        "    time.sleep(0.01)\n"
        "for number in range(5_000):\n"
        "    print(number, 'z' * 2_000, flush=True)\n"
        "(here / 'printed').touch()\n"
        "while not (here / 'freed').exists():\n"
        "    time.sleep(0.01)\n"
        "print('last words', file=sys.stderr)\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    run_id = runs.new_id()
    started = Started(start.start_run(prepare_run(Asked(str(script), [str(tmp_path)]), run_id)).id)
    wait_for((tmp_path / "started").exists)
    disk.fill()
    (tmp_path / "full").touch()
    wait_for((tmp_path / "printed").exists)
    disk.free()
    (tmp_path / "freed").touch()
    ended = started.until_gone(60)
    assert (ended.state(), ended.exit_code) == ("failed", 1)
    (out,) = started.folder.glob("logs/ranks/*/attempt_0/0/stdout.log")
    (err,) = started.folder.glob("logs/ranks/*/attempt_0/0/stderr.log")
    assert err.read_text() == "last words\n"
    lines = out.read_text().splitlines()
    (missing,) = [line for line in lines if line.startswith("[ddpmon]")]
    assert "bytes of output are missing: the disk was full" in missing
    kept = sum(len(line) + 1 for line in lines if line is not missing)
    whole = sum(len(f"{number} ") + 2_001 for number in range(5_000))
    assert kept + int(missing.split()[1].replace(",", "")) - whole in {0, 1}  # a newline before the sentence
    assert lines[-1].startswith("4999 ")


def test_what_a_rank_leaves_in_its_runs_folder_raises_nothing_on_a_full_disk(small_disk, monkeypatch):
    disk = small_disk(1)
    disk.path.chmod(0o700)
    monkeypatch.setenv("DDPMON_RUN_DIR", str(disk.path))
    for made in ("stacks", "tail"):
        (disk.path / made).mkdir(mode=0o700)
    disk.fill()
    assert not run_settings.leave_tail(3, [b"x" * 100_000])
    assert list((disk.path / "tail").iterdir()) == []
    monkeypatch.setattr(stack_signal, "handler_of", lambda *_: 0)
    stack_signal.arm(Places("", ["/lib"], ["/home"] * 1_000))
    assert stack_signal._armed is None
    assert list((disk.path / "stacks").iterdir()) == []  # an offer that does not hold would have the signal kill
