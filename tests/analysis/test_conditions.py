"""Causes of lateness that processes and devices show: named where they set the late rank apart, silent where not."""

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.messages import CpuProgram, CpuRivals
from tests.findings import judged, of_kinds
from tests.worlds import own_times, world_with


def straggler(conditions, phase=2, ranks=4):
    """The finding about rank 1, which is 8 ms late in a phase."""
    own = own_times(120, ranks, noise=0.02)
    own[:, 1, phase] += 8.0
    found = judged(world_with(own), Evidence(world_size=ranks, conditions=conditions))
    (finding,) = [f for f in found if f.kind == "straggler" and f.ranks == [1]]
    assert len(finding.text) <= 76
    return finding


def everyone(ranks=4, **values):
    """The same for all ranks; a list gives each its own."""
    each = [{k: v[rank] if isinstance(v, list) else v for k, v in values.items()} for rank in range(ranks)]
    return [Conditions(rank, **given) for rank, given in enumerate(each)]


NONE, TAR = CpuRivals(), CpuRivals([CpuProgram(7, "tar", 0.9)])
WIDE, CORE_3 = frozenset(range(8)), frozenset({3})
CAUSES = [
    (
        "gpu_clock",
        2,
        {"gpu_clock_mhz": [1750.0, 1200.0, 1740.0, 1755.0], "gpu_temperature_c": 84.0},
        "1,200 of 1,750 MHz",
    ),
    ("gpu_throttled", 1, {"gpu_throttled": [(), ("thermal",), (), ()]}, "throttled: thermal"),
    ("other_program", 2, {"other_program": ["", "pid 4711 (vllm)", "", ""]}, "GPU also used by pid 4711 (vllm)"),
    ("cpu_starved", 2, {"starved_share": [0.01, 0.3, 0.02, 0.0]}, "starved 30%"),
    (
        "cpu_starved",
        2,
        {
            "starved_share": [0.01, 0.3, 0.02, 0.0],
            "cpu_rivals": [NONE, CpuRivals([CpuProgram(7, "tar", 0.9)]), NONE, NONE],
        },
        "starved 30% by tar",
    ),
    ("cpu_quota", 2, {"cpu_rivals": [NONE, CpuRivals([], 1.5, 0.4), NONE, NONE]}, "CPU quota of 1.5 cores"),
    ("affinity", 2, {"affinity": [WIDE, CORE_3, WIDE, WIDE], "compute_threads": 4}, "on core 3 alone"),
    ("affinity", 2, {"affinity": [WIDE, CORE_3, WIDE, WIDE], "starved_share": [0.0, 0.3, 0.0, 0.0]}, "on core 3 alone"),
    (
        "cpu_starved",
        2,
        {
            "affinity": [WIDE, CORE_3, WIDE, WIDE],
            "starved_share": [0.0, 0.3, 0.0, 0.0],
            "cpu_rivals": [NONE, TAR, NONE, NONE],
        },
        "starved 30% by tar",
    ),
    ("affinity", 0, {"worker_cores": [WIDE, CORE_3, WIDE, WIDE], "loader_workers": 2}, "on core 3 alone"),
    ("page_faults", 2, {"major_faults_per_s": [0.0, 220.0, 1.0, 0.0]}, "220 page faults/s"),
    ("loader_workers", 0, {"loader_workers": [4, 0, 4, 8]}, "0 workers, peers 4; "),
    ("reads", 0, {"read_bytes_per_s": [1e5, 84e6, 0.0, 2e5]}, "reads 80.1 MiB/s"),
]


@pytest.mark.parametrize(("name", "phase", "values", "words"), CAUSES)
def test_what_sets_the_late_rank_apart_is_its_cause(name, phase, values, words):
    finding = straggler(everyone(**values), phase)
    assert finding.evidence["cause"] == name
    assert words in finding.text
    assert "no measurement" not in finding.advice


@pytest.mark.parametrize(
    ("phase", "values"),
    [
        (2, {"gpu_clock_mhz": 1200.0, "gpu_throttled": ("thermal",)}),  # all alike
        (2, {"gpu_clock_mhz": [1750.0, 1700.0, 1740.0, 1755.0]}),  # 3% lower, as one GPU is
        (2, {"gpu_clock_mhz": [1750.0, 1600.0, 1740.0, 1755.0]}),  # 9% lower: too little for a third more
        (0, {"gpu_clock_mhz": [1750.0, 1200.0, 1740.0, 1755.0]}),  # the data does not come from the GPU
        (2, {"other_program": "pid 4711 (vllm)"}),
        (2, {"cpu_rivals": CpuRivals([], 1.5, 0.4)}),  # all alike
        (2, {"cpu_rivals": [NONE, CpuRivals([], 1.5, 0.05), NONE, NONE]}),  # too little
        (0, {"other_program": ["", "pid 4711 (vllm)", "", ""]}),
        (2, {"starved_share": 0.3}),
        (2, {"affinity": [WIDE, CORE_3, WIDE, WIDE], "compute_threads": 1}),  # one thread needs no more
        (2, {"affinity": [frozenset({rank}) for rank in range(4)], "compute_threads": 4}),  # each has one
        (2, {"worker_cores": [WIDE, CORE_3, WIDE, WIDE], "loader_workers": 2}),  # workers do no backward
        (0, {"loader_workers": 2}),
        (0, {"loader_workers": [1, 4, 2, 2]}),  # more of them, and late all the same
        (0, {"loader_workers": [2, 1, 0, 2]}),
        (2, {"loader_workers": [4, 0, 4, 4]}),  # backward loads nothing
        (2, {"starved_share": [0.01, 0.05, 0.02, 0.0]}),
        (2, {"major_faults_per_s": [80.0, 120.0, 90.0, 100.0]}),
        (0, {"read_bytes_per_s": [5e7, 6e7, 4e7, 5e7]}),
        (2, {"read_bytes_per_s": [1e5, 84e6, 0.0, 2e5]}),  # backward reads no files
        (2, {}),
    ],
)
def test_what_is_alike_or_explains_too_little_is_no_cause(phase, values):
    finding = straggler(everyone(**values), phase)
    assert "cause" not in finding.evidence
    assert "no measurement" in finding.advice


def test_a_cause_that_only_the_late_rank_was_measured_for_is_not_compared():
    assert "cause" not in straggler([Conditions(1, gpu_clock_mhz=600.0, read_bytes_per_s=9e9)]).evidence


def test_all_ranks_of_a_host_that_are_late_in_phases_of_their_own_stay_with_it_each():
    own = own_times(120, 6, noise=0.02)
    own[:, 1, 1] += 8
    own[:, 2, 4] += 8
    conditions = everyone(6, host=["a", "b", "b", "c", "c", "c"])
    found = judged(world_with(own), Evidence(world_size=6, conditions=conditions))
    assert {(finding.kind, finding.phase, *finding.ranks) for finding in found} == {
        ("straggler", "forward", 1), ("straggler", "other", 2),
    }  # fmt: skip
    assert all(finding.evidence["host"] == "b" and "All 2 ranks of b" in finding.advice for finding in found)


@pytest.mark.parametrize(
    ("hosts", "host"),
    [(["a"] * 6, None), (["a", "b", "c", "b", "c", "c"], None), (["a", "b", "b", "b", "a", "a"], "b")],
)
def test_a_host_is_not_blamed_for_some_of_its_ranks_nor_where_there_is_but_one(hosts, host):
    own = own_times(120, 6, noise=0.02)
    own[:, [1, 2], 2] += 8
    (finding,) = judged(world_with(own), Evidence(world_size=6, conditions=everyone(6, host=hosts)))
    assert (finding.kind, finding.ranks, finding.evidence.get("host")) == ("several_stragglers", [1, 2], host)
    assert "machine" not in finding.advice
    assert ("They are all on b." in finding.advice) == bool(host)


def test_rank_0_late_between_its_steps_is_told_what_only_rank_0_does():
    own = own_times(120, 4, noise=0.02)
    own[:, 0, 4] += 6
    (finding,) = judged(world_with(own), Evidence())
    assert "rank 0 only" in finding.advice
    assert "costs all ranks 6.0 ms a step" in finding.advice


def test_batches_of_ranks_of_different_speed_are_balanced_by_what_one_sample_takes():
    own = own_times(120, 4, noise=0.01)
    own[:, 1] *= 1.5
    own[:, 3] *= 0.7
    (finding,) = [
        f for f in judged(world_with(own, samples=[64, 96, 64, 64]), Evidence()) if f.kind == "load_imbalance"
    ]
    assert (
        "With 65 and 65 to 93, at the present speed of each rank, the slowest rank would take 27.7 ms" in finding.advice
    )


def test_gpus_that_hold_their_clocks_down_are_a_warning_only_where_one_is_clearly_slower():
    def throttled(**conditions):
        return of_kinds("gpu_throttled", conditions=everyone(**conditions), world_size=4)

    (warn,) = throttled(gpu_clock_mhz=[1750.0, 1200.0, 1740.0, 1750.0], gpu_throttled=[(), ("thermal",), (), ()])
    assert (warn.kind, warn.severity, warn.ranks) == ("gpu_throttled", "warn", [1])
    (info,) = throttled(gpu_clock_mhz=1700.0, gpu_throttled=("thermal",))
    assert info.severity == "info"
    assert throttled(gpu_clock_mhz=1700.0, gpu_throttled=("power cap",)) == []
    assert throttled(gpu_clock_mhz=1700.0) == []
    assert all(len(f.text) <= 76 for f in (warn, info))


def test_what_stands_beside_a_kind_of_finding_is_evidence_of_its_ranks_and_of_their_peers():
    clocks = {"gpu_clock_mhz": [1750.0, 1200.0, 1740.0, 1750.0], "gpu_throttled": [(), ("thermal",), (), ()]}
    means = [{"gpu_power": watts} if watts else {} for watts in (390.0, 240.0, None, 410.0)]
    world = world_with(own_times(40, 4))
    (warn,) = judged(world, Evidence(world_size=4, conditions=everyone(**clocks, means=means)))
    assert (warn.evidence["gpu_power_w"], warn.evidence["peers_gpu_power_w"]) == (240.0, 400.0)
    assert warn.evidence["clock_mhz"] == 1200.0
    (warn,) = judged(world, Evidence(world_size=4, conditions=everyone(**clocks)))
    assert "gpu_power_w" not in warn.evidence


def since_step_120(clocks_before, clocks):
    """Findings about rank 1, whose forward is slow since step 122, and whose clock is known before and after."""
    own = own_times(200, 4, noise=0.02)
    own[120:, 1, 1] += 8

    def at(rank, mhz):
        return Conditions(rank, gpu_clock_mhz=mhz)

    def around(rank):
        return lambda *_: (clocks_before and at(rank, clocks_before[rank]), at(rank, clocks[rank]))

    conditions = [replace(at(rank, mhz), around=around(rank)) for rank, mhz in enumerate(clocks)]
    return judged(world_with(own), Evidence(world_size=4, conditions=conditions))


SLOW, ALIKE = [1980.0, 1500.0, 1980.0, 1980.0], [1980.0] * 4


def test_a_condition_is_a_cause_only_where_it_began_with_the_lateness():
    (began,) = since_step_120(ALIKE, SLOW)
    assert began.evidence["cause"] == "gpu_clock"
    assert "GPU at 1,500 of 1,980 MHz" in began.text
    (earlier,) = since_step_120(SLOW, SLOW)
    assert "cause" not in earlier.evidence
    assert earlier.evidence["remark"] == "gpu_clock"
    assert "since step 122" in earlier.text
    assert earlier.advice.endswith("1,500 MHz, its peers' at 1,980; but this began at another time than the slowdown.")
    (unknown,) = since_step_120(None, SLOW)
    assert unknown.evidence.keys().isdisjoint({"cause", "remark"})
    assert unknown.advice.endswith("; but ddpmon does not know when this began.")


def test_more_samples_explain_their_own_time_and_no_more():
    own = own_times(200, 4, noise=0.02) * 1.5
    own[:, 1, :3] *= 9 / 8
    own[:, 1, 0] += 8
    (finding,) = judged(world_with(own, samples=[8, 9, 8, 8]), Evidence())
    assert (finding.kind, finding.phase) == ("straggler", "data")
    assert "It has 9 samples a step, and the others have 8, which explains" in finding.advice
    own = own_times(200, 4, noise=0.01)
    own[:, 1, :3] *= 1.25
    own[:, 1, 0] += 3
    (finding,) = judged(world_with(own, samples=[64, 80, 64, 64]), Evidence())
    assert finding.kind == "load_imbalance"
    assert finding.evidence["gain"] == pytest.approx(42 / (42 - 6.25), abs=0.01)  # 25% of data, forward, backward
    assert "% of the delay)" in finding.advice


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (64, "Its batches are as large as the others'"),
        (45, "It has 45 samples a step, and the others have 64;"),
        (None, "ddpmon did not measure batch sizes"),
    ],
)
def test_sizes_of_batches_are_compared(samples, words):
    own = own_times(200, 4, noise=0.02)
    own[:, 1, 1] += 16
    (finding,) = judged(world_with(own, samples=[64, samples, 64, 64] if samples else 0), Evidence())
    assert finding.kind == "straggler"
    assert words in finding.advice


def test_a_rank_for_which_others_wait_at_every_eighth_step_is_late():
    own = own_times(200, 4, noise=0.02)
    own[:, 1, 1] += 8
    world = world_with(own)
    waits = world.step % 8 == 0
    world = replace(world, critical=np.where(waits, world.critical, -1), wait_ms=world.wait_ms * waits[:, None])
    (finding,) = judged(world, Evidence())
    assert (finding.kind, finding.ranks, finding.evidence["critical_share"]) == ("straggler", [1], 1.0)
