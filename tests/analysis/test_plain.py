"""Test that findings can be sent and written into reports, whatever types their numbers have."""

import json
from dataclasses import replace

import numpy as np

from ddpmon.analysis import findings as finding
from ddpmon.analysis.evidence import Evidence, Memory
from ddpmon.analysis.kinds import gpu_memory
from ddpmon.analysis.kinds.kind import Words, plain
from ddpmon.analysis.statistics.trend import Trend
from ddpmon.messages import encode
from tests.findings import judged
from tests.worlds import own_times, world_with


def test_numbers_of_numpy_become_pythons_own():
    told = plain({"a": np.float64(1.5), "b": [np.int64(2), {"c": np.array([1.0, 2.0])}], "d": "x", "e": (np.True_,)})
    assert told == {"a": 1.5, "b": [2, {"c": [1.0, 2.0]}], "d": "x", "e": [True]}
    assert type(told["a"]) is float
    assert type(told["b"][0]) is int


def test_a_detector_that_leaves_numpys_numbers_in_what_it_found_ends_no_hub(monkeypatch):
    evidence = {"share": np.float32(0.5), "left_bytes": np.int64(4096), "more": np.float32(0.25)}
    left = gpu_memory.finding("warn", Words("x"), [0], evidence=evidence, cost_ms=np.float64(2.0))
    monkeypatch.setattr(finding, "KINDS", [replace(gpu_memory, detect=lambda _: [left])])
    (told,) = judged(None, Evidence())
    encode(told)
    assert json.loads(json.dumps(told.evidence)) == {"share": 0.5, "left_bytes": 4096, "more": 0.25}


def test_growing_memory_and_a_late_rank_can_be_sent():
    own = own_times(200, 4, noise=0.02)
    own[:, 1, 0] += 20
    grows = {"rss_bytes": Trend(1e8, 0.9e8, 1.1e8)}
    growing = [Memory(r, trained_s=100.0, rss_bytes=1 << 30, left_bytes=1 << 34, trends=grows) for r in range(4)]
    found = judged(world_with(own), Evidence(memory=growing, world_size=4))
    assert {"straggler", "memory_growth"} <= {f.kind for f in found}
    for one in found:
        encode(one)
        json.dumps(one.evidence)
