"""`ddpmon export --format openmetrics`: how a run stands, for Prometheus (the node exporter's textfile collector)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ddpmon.messages import PHASES, STATES, RankView, Snapshot
from ddpmon.plain import plain

Labels: TypeAlias = Mapping[str, object]
Sample: TypeAlias = tuple[Labels, float | None]


def text(snapshot: Snapshot) -> str:
    """The snapshot in OpenMetrics 1.0 text; what is not known is left out."""
    lines: list[str] = []
    for name, kind, unit, what, samples in _families(snapshot):
        told = [(labels, value) for labels, value in samples if value is not None]
        if not told:
            continue
        lines += [f"# TYPE {name} {kind}", *([f"# UNIT {name} {unit}"] if unit else []), f"# HELP {name} {what}"]
        suffix = "_total" if kind == "counter" else ""
        for labels, value in told:
            mine = {"run": snapshot.run.name, "run_id": snapshot.run.id, **labels}
            written = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in mine.items())
            lines.append(f"{name}{suffix}{{{written}}} {_number(value)}")
    return "\n".join([*lines, "# EOF", ""])


def _families(shot: Snapshot) -> Iterator[tuple[str, str, str, str, list[Sample]]]:
    """Name, type, unit, help, samples. Times are in seconds, as OpenMetrics wants them."""
    states: list[Sample] = [({"state": name}, float(name == shot.state)) for name in STATES]
    yield "ddpmon_run_state", "gauge", "", "1 for the state that the run is in.", states
    yield "ddpmon_world_size", "gauge", "", "Ranks of the run.", [({}, float(shot.run.world_size))]
    yield "ddpmon_steps", "counter", "", "Steps finished.", [({}, float(shot.step))]
    yield "ddpmon_records_lost", "counter", "", "Records of steps that were lost.", [({}, float(shot.records_lost))]
    yield (
        *("ddpmon_step_seconds", "gauge", "seconds", "Median length of a step in the window."),
        [({}, _seconds(shot.step_ms_p50))],
    )
    yield "ddpmon_samples_per_second", "gauge", "", "Of all ranks together.", [({}, shot.samples_per_s)]
    yield "ddpmon_loss", "gauge", "", "Mean of the last steps over all ranks.", [({}, shot.loss)]
    yield "ddpmon_wait_ratio", "gauge", "ratio", "Share of the step spent waiting for others.", [({}, shot.wait_share)]
    kinds = sorted({(finding.kind, finding.severity) for finding in shot.findings})
    counts: list[Sample] = [
        (
            {"kind": kind, "severity": severity},
            float(sum((f.kind, f.severity) == (kind, severity) for f in shot.findings)),
        )
        for kind, severity in kinds
    ]
    yield "ddpmon_findings", "gauge", "", "What was found, by kind.", counts
    yield from _of_ranks(shot.ranks)


def _of_ranks(ranks: list[RankView]) -> Iterator[tuple[str, str, str, str, list[Sample]]]:
    def each(value: str, scale: float = 1.0) -> list[Sample]:
        found = [(rank.rank, getattr(rank, value)) for rank in ranks]
        return [({"rank": rank}, None if value is None else value * scale) for rank, value in found]

    phases: list[Sample] = [
        ({"rank": rank.rank, "phase": phase}, ms / 1e3)
        for rank in ranks
        for phase in PHASES
        if (ms := rank.phase_ms(phase)) is not None
    ]
    yield "ddpmon_rank_steps", "counter", "", "Steps finished by the rank.", each("steps")
    yield "ddpmon_rank_own_seconds", "gauge", "seconds", "Own time a step, mean.", each("own_ms", 1e-3)
    yield "ddpmon_rank_phase_seconds", "gauge", "seconds", "Time a step in each phase, mean.", phases
    yield (
        "ddpmon_rank_late_seconds",
        "gauge",
        "seconds",
        "Arrival less the median arrival, mean.",
        each("late_ms", 1e-3),
    )
    yield "ddpmon_rank_critical_ratio", "gauge", "ratio", "Share of steps that waited for it.", each("critical_share")
    yield "ddpmon_rank_loss", "gauge", "", "Latest loss.", each("loss")
    yield "ddpmon_rank_cpu_ratio", "gauge", "ratio", "Of one core.", each("cpu_percent", 0.01)
    yield "ddpmon_rank_resident_memory_bytes", "gauge", "bytes", "Of the rank's process.", each("rss_bytes")
    gpus = [(rank.rank, rank.gpu) for rank in ranks if rank.gpu]
    used: list[Sample] = [({"rank": rank}, gpu.memory_used_bytes) for rank, gpu in gpus]
    busy: list[Sample] = [({"rank": rank}, None if gpu.percent is None else gpu.percent / 100) for rank, gpu in gpus]
    yield "ddpmon_rank_gpu_memory_bytes", "gauge", "bytes", "Used on the rank's GPU.", used
    yield "ddpmon_rank_gpu_utilization_ratio", "gauge", "ratio", "Of the rank's GPU.", busy


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1e3


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _escaped(label: str) -> str:
    return plain(label).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
