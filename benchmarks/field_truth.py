"""What ddpmon told of a run against what the run printed and its witness noted."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from itertools import pairwise

from field_program import Program
from field_runs import Run

NOT_OF_RANKS = {"cpu_starved", "telemetry_lost"}
"""True of a machine that is too busy; told apart."""
ALARMS = re.compile(r"^\d\d:\d\d:\d\d  (stalled|slow|failed|lost)\b")
PAUSE = 3.0
"""Steps that many times the median long had something between them: an evaluation, a checkpoint."""


def same_output(bare: Run, watched: Run) -> list[str]:
    """Lines that only one of them printed, - bare and + watched; where ranks share a stream, in whatever order."""
    differences = []
    for name in bare.output.keys() | watched.output.keys():
        lines, others = bare.output.get(name, []), watched.output.get(name, [])
        if lines == others or (name == "all" and Counter(lines) == Counter(others)):
            continue
        missing, extra = Counter(lines) - Counter(others), Counter(others) - Counter(lines)
        differences += [f"{name} - {text}" for text in missing] + [f"{name} + {text}" for text in extra]
        if not missing and not extra:
            differences.append(f"{name}: another order")
    return differences


def step_ms(run: Run) -> tuple[float, float] | None:
    """Median and mean of the times between two steps of the first optimizer; the mean leaves pauses out."""
    if not run.stamps or len(run.stamps[0]) < 3:
        return None
    gaps = [(after - before) * 1000 for before, after in pairwise(run.stamps[0])]
    usual = statistics.median(gaps)
    return usual, statistics.fmean(gap for gap in gaps if gap <= PAUSE * usual)


def pauses(run: Run) -> str:
    """How many steps are told to be as long as only a pause is; "" if none."""
    lengths_ms = [float(row["length_ms"]) for row in run.rows if row["rank"] == "0" and row["length_ms"]]
    true = step_ms(run)
    if not lengths_ms or not true:
        return ""
    gaps = [(after - before) * 1000 for before, after in pairwise(run.stamps[0])]
    real, taken = (sum(ms > PAUSE * true[0] for ms in series) for series in (gaps, lengths_ms))
    return f"{taken} steps told over {PAUSE:g} times the usual, {real} were" if taken else ""


def loss_agreement(program: Program, run: Run) -> str:
    """How many printed losses the export has, in their order: 19/20; else what one has to multiply by."""
    if not program.losses:
        return "none printed"
    text = run.raw.get("all") or "".join(text for name, text in run.raw.items() if name.startswith("0 "))
    printed = [(float(found), tolerance(found)) for found in re.findall(program.losses, text)][program.skip :]
    values = exported(program, run)
    if not values:
        return f"none of {len(printed)}"
    found, at = 0, 0
    for value, within in printed:
        anywhere = program.losses_are == "any rank's"
        places = range(0 if anywhere else at, len(values))
        place = next((i for i in places if abs(values[i] - value) <= within), None)
        if place is not None:
            found += 1
            at = place + 1
    if found > len(printed) // 2 or not printed:
        return f"{found}/{len(printed)}"
    factor = statistics.median(value for value, _ in printed) / (statistics.median(values) or float("nan"))
    return f"{found}/{len(printed)} ×{factor:.3g}"


def exported(program: Program, run: Run) -> list[float]:
    """Losses in the order of steps: rank 0's, the ranks' mean, or each."""
    steps: dict[tuple[int, int], dict[int, float]] = {}
    for row in run.rows:
        if row["loss"]:
            steps.setdefault((int(row["attempt"]), int(row["step"])), {})[int(row["rank"])] = float(row["loss"])
    if program.losses_are == "the mean of ranks":
        return [statistics.fmean(ranks.values()) for ranks in steps.values()]
    if program.losses_are == "any rank's":
        return [loss for ranks in steps.values() for loss in ranks.values()]
    return [ranks[0] for ranks in steps.values() if 0 in ranks]


def tolerance(printed: str) -> float:
    """Half of the last digit that was printed, and what single precision adds."""
    mantissa, _, exponent = printed.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 0.5001 * 10.0 ** (int(exponent or 0) - digits) + 2e-7 * abs(float(printed))


def false_findings(run: Run) -> list[str]:
    """Of a clean run: findings above info, and alarms that --headless raised while it ran."""
    texts = [f["text"] for f in run.findings if f["severity"] != "info" and f["kind"] not in NOT_OF_RANKS]
    alarms = Counter(match[1] for text in run.headless if (match := ALARMS.match(text)))
    texts += [f"--headless said {word} {times} times" for word, times in alarms.items()]
    return texts if run.report else [*texts, "no report"]


def busy(run: Run) -> list[str]:
    return sorted({f["kind"] for f in run.findings if f["severity"] != "info" and f["kind"] in NOT_OF_RANKS})


def named(run: Run, rank: int) -> str:
    """Whether a finding above info is of this rank alone: in the report, else in a line of --headless."""
    if any(f["severity"] != "info" and f["ranks"] == [rank] for f in run.findings):
        return "yes"
    return "live" if any(re.match(rf"^\S+  !+ rank {rank} is slow", text) for text in run.headless) else "NO"
