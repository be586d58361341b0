"""Test that findings can be sent and written into reports, whatever types their numbers have."""

import json
from dataclasses import replace

import numpy as np

from ddpmon.analysis import findings as finding
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds import gpu_memory
from ddpmon.analysis.kinds.kind import Moment, Words, without_numpy
from ddpmon.messages import encode
from tests.findings import judged


def test_numbers_of_numpy_become_pythons_own():
    told = without_numpy(
        {"a": np.float64(1.5), "b": [np.int64(2), {"c": np.array([1.0, 2.0])}], "d": "x", "e": (np.True_,)}
    )
    assert told == {"a": 1.5, "b": [2, {"c": [1.0, 2.0]}], "d": "x", "e": [True]}
    assert type(told["a"]) is float
    assert type(told["b"][0]) is int


def test_a_detector_that_leaves_numpys_numbers_in_what_it_found_ends_no_hub(monkeypatch):
    evidence = {"share": np.float32(0.5), "left_bytes": np.int64(4096), "more": np.float32(0.25)}
    left = Moment(Evidence(), None, asked=gpu_memory).finding(evidence, [0], words=Words("x"), cost_ms=np.float64(2.0))
    monkeypatch.setattr(finding, "KINDS", [replace(gpu_memory, detect=lambda _: [left])])
    (told,) = judged(None, Evidence())
    encode(told)
    assert json.loads(json.dumps(told.evidence)) == {"share": 0.5, "left_bytes": 4096, "more": 0.25}
