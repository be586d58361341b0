"""A real run of two ranks whose GPUs' values come from the library, from NVML to the screen and the recording."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from ddpmon import source
from ddpmon.export import report
from ddpmon.messages import GPU, GPU_COUNTERS, SAMPLED, RankView, Snapshot
from ddpmon.recording.recording import recording_path
from tests.conftest import Started, wait_for
from tests.in_process import called
from tests.nvml import library
from tests.nvml.library import GIB, Nvml, gpu
from tests.ranks import launcher
from tests.tui.driving import drive

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parent / "scripts" / "on_gpus.py"


def measured(rank: RankView, *, clock_mhz: float = 0.0) -> bool:
    return rank.has_gpu_sample and (not clock_mhz or rank.sample.gpu_clock_mhz == clock_mhz)


def test_a_runs_gpus_are_shown_recorded_and_reported_while_they_change_break_and_hang(
    nvml_library: Path, launch: Callable[..., Started], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nvml, ends = Nvml(tmp_path / "nvml-state"), tmp_path / "ends"
    nvml.set(gpu(0, memory_used_bytes=79 * GIB, reasons=0x40, clock_mhz=900, temperature_c=91) | gpu(1), count=2)
    for name, value in library.environment(nvml_library, nvml).items():
        monkeypatch.setenv(name, value)
    started = launch(*launcher(2, SCRIPT, str(ends), fresh=True))
    watched = source.LiveSource(started.run)

    def shown(holds: Callable[[Snapshot], object]) -> Snapshot:
        return wait_for(lambda: (shot := watched.snapshot()) and len(shot.ranks) == 2 and holds(shot) and shot)

    shot = shown(lambda shot: all(measured(rank) for rank in shot.ranks))
    values = [[getattr(rank.sample, row.field) for row in SAMPLED if row.where == GPU] for rank in shot.ranks]
    assert [(*each[:6], rank.throttled) for each, rank in zip(values, shot.ranks, strict=True)] == [
        (81.0, 61 * GIB, 80 * GIB, 651.5, 61.0, 1901.0, ""),
        (80.0, 79 * GIB, 80 * GIB, 650.5, 91.0, 900.0, "thermal"),
    ]
    assert shot.missing == {}
    assert nvml.capture_mode == "1", "CUDA calls of ddpmon's thread may spoil a graph that the script captures"
    mine, other = (rank.pid for rank in shot.ranks)
    nvml.set({"1.processes": f"{mine}:9000,{other}:512", "0.processes": f"{other}:9000", "0.xids": "79"})
    shot = shown(lambda shot: any(finding.kind == "gpu_memory" for finding in shot.findings))
    _, screen = drive(shot, "6", size=(160, 50))
    lines = [line for line in screen.splitlines() if " 900 " in line]
    assert any("thermal" in line and "91" in line and "79" in line for line in lines), screen
    assert "2 × NVIDIA H100 80GB HBM3" in screen
    status = json.loads(called("status", "--json", started.id).stdout)
    assert status["gpu_percent"] == 80.5
    (full,) = [finding for finding in status["findings"] if finding["kind"] == "gpu_memory"]
    assert full["ranks"] == [1]

    shot = shown(lambda shot: any(finding.kind == "gpu_shared" for finding in shot.findings))
    text = {finding.kind: finding.text for finding in shot.findings}
    assert text["gpu_shared"] == "rank 1 also holds 512 MiB on rank 0's GPU"
    assert text["gpu_error"].startswith("the GPU of rank 1 had a critical error: Xid 79")
    _, screen = drive(shot, "6", size=(160, 50))
    assert "also on GPUs: rank 1, 512 MiB on rank 0's" in screen, screen

    nvml.set(gpu(0), **{"1.error": pynvml.NVML_ERROR_GPU_IS_LOST})
    shot = shown(lambda shot: not shot.ranks[0].has_gpu_sample and measured(shot.ranks[1], clock_mhz=1900))
    lost = "there are no GPU counters: GPU is lost"
    shot = shown(lambda shot: shot.missing == {GPU_COUNTERS: lost})
    assert lost in drive(shot, "6", size=(160, 50))[1]
    nvml.set({"1.error": None})
    shot = shown(lambda shot: measured(shot.ranks[0]) and not shot.missing)

    nvml.set({"nvmlDeviceGetTemperature.sleep_ms": 3_600_000})
    shot = shown(lambda shot: shot.missing == {GPU_COUNTERS: "there are no GPU counters, because NVML does not answer"})
    assert [rank.has_gpu_sample for rank in shot.ranks] == [False, False]
    begun = shot.step
    shot = shown(lambda shot: shot.step > begun + 20 and {rank.health for rank in shot.ranks} == {"ok"})
    ends.touch()
    watched.close()
    ended = started.until_gone(60)
    made = report.build(ended)
    assert (made["run"]["state"], made["steps"]["records_lost"]) == ("done", 0)
    assert made["ranks"][0]["steps"] == made["ranks"][1]["steps"] >= shot.step
    with sqlite3.connect(f"file:{recording_path(ended.id)}?mode=ro", uri=True) as db:
        rows = db.execute(
            "SELECT DISTINCT rank, gpu_clock_mhz, gpu_throttled FROM samples JOIN processes ON id = process"
            " WHERE gpu_percent IS NOT NULL"
        )
        assert set(rows) >= {(0, 1901.0, ""), (1, 900.0, "thermal"), (1, 1900.0, "")}
