"""A job that trains already is watched and left again: it computes the same, and nothing of the probe remains."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.probe.conftest import SCRIPTS, Both, Ear, forked, listening, python

pytestmark = pytest.mark.e2e
SCRIPT = SCRIPTS / "running.py"
TIMES = 2


@dataclass
class Attached(Both):
    """A job that was attached to, beside one that was not."""

    entries: list[dict[str, Any]]
    """What each rank said of each attach and detach."""


def attached(ear: Ear, folder: Path, *arguments: str) -> Attached:
    """Run the script bare, and with a probe that comes and goes while it trains."""
    for number in range(TIMES):
        (folder / f"run{number}").mkdir(mode=0o700)
    more = ["--save", str(folder / "watched"), "--attach", str(TIMES), "--socket", ear.address]
    watched = forked(2, SCRIPT, *arguments, *more, address=None)
    assert (watched.returncode, watched.stderr) == (0, "")
    *entries, end = [json.loads(line) for line in watched.stdout.splitlines()]
    more = ["--save", str(folder / "bare"), "--epochs", str(end["epochs"])]
    bare = forked(2, SCRIPT, *arguments, *more, address=None)
    assert bare.returncode == 0, bare.stderr
    return Attached(folder, 2, bare.stdout, watched.stdout, ear, entries)


@pytest.fixture(scope="module")
def job(socket_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    """A job with DataLoader workers whose ranks are entered one after the other."""
    with listening(socket_dir) as ear:
        yield attached(ear, tmp_path_factory.mktemp("attached"), "--delay", "0.3", "--workers", "1")


def test_weights_are_bit_identical_after_several_attaches(job: Attached) -> None:
    assert job.same_weights()


def test_each_rank_says_what_it_found(job: Attached) -> None:
    assert len(job.entries) == 2 * TIMES
    for entry in job.entries:
        armed, left = entry["answers"]
        assert armed["ok"]
        assert left == {"pid": armed["pid"], "ok": True, "watched": True, "left": []}
        found = {name: armed[name] for name in ("world", "models", "optimizers")}
        assert found == {"world": 2, "models": 1, "optimizers": 1}
    assert sorted(entry["answers"][0]["rank"] for entry in job.entries) == [0] * TIMES + [1] * TIMES


def test_nothing_of_the_probe_remains(job: Attached) -> None:
    """torch's functions, hooks, threads, descriptors and sys.path are those from before."""
    assert [entry["differences"] for entry in job.entries] == [[]] * (2 * TIMES)


def test_every_step_is_told_until_the_probe_leaves(job: Attached) -> None:
    for rank in (0, 1):
        ends = {step.end_us: step.step for batch in job.ear.batches(rank) for step in batch.steps}
        numbers = [ends[end] for end in sorted(ends)]
        again = numbers.index(1, 1)
        assert numbers == [*range(1, again + 1), *range(1, len(numbers) - again + 1)]
    assert job.ear.goodbyes() == {0, 1}
    assert {hello.parallelism for hello in job.ear.hellos()} >= {"DDP"}


def test_ranks_count_the_same_steps_though_they_are_entered_one_after_the_other(job: Attached) -> None:
    of_ranks = [
        {scalar.value: scalar.step for batch in job.ear.batches(rank) for scalar in batch.scalars} for rank in (0, 1)
    ]
    common = of_ranks[0].keys() & of_ranks[1].keys()
    assert len(common) > 10 * TIMES
    assert all(of_ranks[0][step] == of_ranks[1][step] for step in common)


def test_a_process_without_torch_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    reply = tmp_path / "reply"
    script.write_text(
        "from ddpmon.probe import attached\n"
        f"attached.arm(socket='ipc:///nowhere', run_id='x', folder='/nowhere', reply={str(reply)!r})\n"
        "import sys\nassert 'torch' not in sys.modules\n"
        f"attached.disarm(reply={str(reply)!r} + '2')\n"
    )
    done = python(script, address=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    answer = json.loads(reply.read_text())
    assert not answer["ok"]
    assert answer["error"] == "this process has not imported torch; attach when it trains"
    assert json.loads((tmp_path / "reply2").read_text())["ok"]
