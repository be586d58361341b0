"""A disk that is full for a while is no matter of the training: ranks go on to their end, and to the same weights."""

from __future__ import annotations

import pytest

from ddpmon import runs
from ddpmon.launch import start
from ddpmon.launch.prepare import Asked, prepare
from ddpmon.messages.folder import Places
from ddpmon.probe import run_settings, stack_signal
from tests.conftest import Started, wait_for
from tests.probe.conftest import forked
from tests.ranks import EAGER, launcher

TRAINS = f"""
import os, sys, time
from pathlib import Path
here, alone = Path(sys.argv[1]), sys.argv[2] == "alone"
rank = os.environ["RANK"]

def meet(said, heard):
    (here / f"{{said}}-{{rank}}").touch()
    while not alone and not (here / heard).exists():
        time.sleep(0.01)

meet("started", "full")
print("importing", "x" * 5_000, flush=True)
{EAGER}
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    optimizer.zero_grad()
    model(torch.full((4, 8), float(step + int(rank)) / 60)).square().sum().backward()
    optimizer.step()
    print("step", step, "y" * 5_000)
    if step % 10 == 0:
        print("complaint", step, file=sys.stderr)
    if step == 40:
        meet("half", "freed")
dist.barrier()
weights = b"".join(tensor.numpy().tobytes() for tensor in model.module.state_dict().values())
(here / f"weights-{{'alone' if alone else 'watched'}}-{{rank}}").write_bytes(weights)
print("trained")
del model  # else gloo's thread and this one may wait for each other for ever
dist.destroy_process_group()
"""


@pytest.mark.e2e
def test_ranks_train_on_while_the_disk_is_full_and_to_the_same_weights(small_disk, launch, tmp_path, monkeypatch):
    disk = small_disk(8)
    monkeypatch.setenv("DDPMON_HOME", str(disk.path / "home"))
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    started = launch(*launcher(2, script, str(tmp_path), "watched"))
    wait_for(lambda: all((tmp_path / f"started-{rank}").exists() for rank in range(2)))
    disk.fill()
    assert disk.is_full()
    (tmp_path / "full").touch()
    wait_for(lambda: all((tmp_path / f"half-{rank}").exists() for rank in range(2)), 120)
    disk.free()
    (tmp_path / "freed").touch()
    ended = started.until_gone(120)
    assert (ended.state(), ended.exit_code) == ("done", 0)
    for rank in range(2):
        (out,) = started.folder.glob(f"logs/ranks/*/attempt_0/{rank}/stdout.log")
        steps = [line.split()[1] for line in out.read_text().splitlines() if line.startswith("step")]
        assert steps == [str(step) for step in range(60)]
        assert out.read_text().endswith("trained\n")
    alone = forked(2, script, str(tmp_path), "alone", address=None)
    assert alone.returncode == 0, alone.stderr
    for rank in range(2):
        weights = (tmp_path / f"weights-watched-{rank}").read_bytes()
        assert len(weights) == 4 * (8 * 8 + 8)
        assert weights == (tmp_path / f"weights-alone-{rank}").read_bytes()


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
    started = Started(start.start(prepare(Asked(str(script), [str(tmp_path)]), run_id)).id)
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
