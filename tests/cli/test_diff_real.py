"""Two real runs, one with a late rank and one without, and what `ddpmon diff` says of them."""

import json

import pytest

from ddpmon import runs
from tests.in_process import called
from tests.ranks import launcher

LOOP = """
import sys, time, torch
import torch.distributed as dist

late_s = float(sys.argv[1])
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(90):
    time.sleep(0.02)
    loss = model(torch.randn(4, 8)).square().mean()
    if dist.get_rank() == 1:
        time.sleep(late_s)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.barrier()
del model  # else gloo's thread and this one may wait for each other for ever
dist.destroy_process_group()
"""


@pytest.mark.e2e
def test_a_fix_is_told_with_how_much_it_helped_and_a_relapse_fails_a_check(cli, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(LOOP)
    for late_s in ("0.04", "0"):
        told = cli("exec", "--name", "train", "--", *launcher(3, script, late_s), timeout=90)
        assert told.returncode == 0, told.stdout + told.stderr
    late, fixed = (run.id for run in runs.all_runs())
    made = json.loads(called("diff", late, fixed, "--format", "json").stdout)
    assert made["outcome"] == "faster"
    assert 1.3 < made["speed"]["median"]["low"] < 3.2
    gone = [(gone["kind"], gone["ranks"]) for gone in made["findings"]["gone"]]
    assert ("straggler", [1]) in gone
    assert {kind for kind, _ in gone} <= {"straggler", "cpu_starved"}, "other programs may keep the cores busy"
    back = cli("diff", fixed, late, "--fail-slower", "10")
    assert back.returncode == 1
    assert "FAIL: B is slower than A by at least" in back.stdout
    assert called("diff", late, fixed, "--fail-slower", "10").returncode == 0
    earlier = json.loads(called("report", "train", "--format", "json").stdout)["earlier_runs"]
    assert earlier["runs"] == 1
    assert earlier["slower_by"] < -0.2
    assert "% faster than your last run of train" in called("report", "train").stdout
