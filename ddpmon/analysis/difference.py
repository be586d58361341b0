"""The sentence that sums up a comparison of two runs: the speed of the second, the interval, and the reason."""

from __future__ import annotations

from ddpmon.analysis.compare import DRIFT, RUN_DIFFERENCE, Comparison
from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.statistics.resampling import Ratio
from ddpmon.analysis.words import format_count
from ddpmon.messages import PHASES, Finding

_PATH = {
    "wait": "the slowest rank waits {b:.1f} ms a step instead of {a:.1f}",
    "transfer": "transfer takes {b:.1f} ms a step instead of {a:.1f}",
}
_WORK = "{phase} of the slowest rank takes {b:.1f} ms a step instead of {a:.1f}"
"""The sentence for the other phases."""


def sentence(comparison: Comparison) -> str:
    """Return the sentence that people read first."""
    speed, where = comparison.speed, _where(comparison)
    if comparison.outcome == "same":
        measured = f"B is {format_ratio(speed.value)}x as fast as A{where}, {interval(speed)}"
        if speed.is_certain:
            return f"A and B are equally fast, to within {RUN_DIFFERENCE.enter:.0%}: {measured}" + _learned(comparison)
        steps = " and ".join(dict.fromkeys(f"{side.steps:,}" for side in (comparison.a, comparison.b)))
        return f"{steps} steps show no significant difference ({measured})" + _learned(comparison)
    if comparison.outcome == "faster":
        head = f"B is {format_ratio(speed.value)}x as fast as A{where} ({interval(speed)})"
    else:
        slow = Ratio(1 / speed.value, 1 / speed.high, 1 / speed.low)
        head = f"B takes {format_ratio(slow.value)}x as long as A{where} ({interval(slow)})"
    why = _why(comparison)
    return head + (f": {why}" if why else "") + _learned(comparison)


def notes(comparison: Comparison) -> list[str]:
    """Return notes that a reader of the comparison must know."""
    a, b = comparison.a, comparison.b
    lines = []
    if comparison.unit != "steps":
        unit = comparison.unit
        lines.append(
            f"a step has {a.work[unit]:,.0f} {unit} in A and {b.work[unit]:,.0f} in B, so ddpmon compares {unit}/s"
        )
    elif a.ranks != b.ranks and not (a.work["samples"] and b.work["samples"]):
        lines.append(
            f"A has {format_count(a.ranks, 'rank')} and B has {b.ranks}; ddpmon does not know the samples per step, so"
            " it compares step times"
        )
    lines += [
        f"{name} ran unevenly: the median step took {first:.1f} ms in the first half of the run and {second:.1f} ms in"
        " the second half"
        for name, (first, second) in (("A", a.halves_ms), ("B", b.halves_ms))
        if max(first, second) > (1 + DRIFT.enter) * min(first, second)
    ]
    if comparison.by_mean:
        lines.append(
            f"the median step of B is {format_ratio(comparison.median.value)}x as fast as that of A, so a few "
            "long steps explain the difference"
        )
    if comparison.losses is None:
        lines.append("ddpmon does not compare losses, because no step has a recorded loss in both runs")
    return lines


def format_ratio(value: float) -> str:
    """Format a ratio with enough digits to distinguish it from 1: 1.004, 1.32, 12.3."""
    return f"{value:.3f}" if abs(value - 1) < 0.0995 else f"{value:.2f}" if value < 9.995 else f"{value:,.1f}"


def interval(speed: Ratio) -> str:
    """Format an interval, "95% 1.29 to 1.35", with enough digits to distinguish its ends from each other and from 1."""
    close = min(abs(speed.low - 1), abs(speed.high - 1)) < 0.0995 or speed.high - speed.low < 0.02
    digits = 3 if close else 2 if speed.high < 9.995 else 1
    return f"95% {speed.low:,.{digits}f} to {speed.high:,.{digits}f}"


def _where(comparison: Comparison) -> str:
    """Return what was compared: work per second or steps, and, if the two differ, whether by mean or by median."""
    work = "" if comparison.unit == "steps" else f" in {comparison.unit}/s"
    if comparison.by_mean:
        return f"{work}, in the mean of all steps"
    differ = abs(comparison.mean.value / comparison.median.value - 1) > RUN_DIFFERENCE.enter
    return f"{work}, in the median step" if differ else work


def _why(comparison: Comparison) -> str:
    faster = comparison.outcome == "faster"
    a, b = comparison.a, comparison.b
    if comparison.unit != "steps":
        work = b.work[comparison.unit] / a.work[comparison.unit]
        length = b.step_ms_mean / a.step_ms_mean if comparison.by_mean else b.step_ms_p50 / a.step_ms_p50
        ratio = format_ratio(work)
        return f"a step of B has {ratio}x the {comparison.unit} of A, and takes {format_ratio(length)}x as long"
    saved = (a.path_ms - b.path_ms) * (1 if faster else -1)
    for finding in comparison.gone if faster else comparison.new:
        cost = finding.cost_ms
        # If several causes coincide, each may explain less than half.
        if kind_of(finding).slows and cost is not None and cost >= EXPLAINS.stay * float(saved.sum()):
            return f"{_named(finding)}, {cost:.1f} ms a step in {'A, is gone' if faster else 'B, is new'}"
    most = int(saved.argmax())
    if saved[most] <= 0:
        return ""
    phase = PHASES[most]
    return _PATH.get(phase, _WORK).format(phase=phase, a=a.path_ms[most], b=b.path_ms[most])


def _named(finding: Finding) -> str:
    rank = finding.ranks[0] if finding.ranks else "?"
    return kind_of(finding).slows.format(rank=rank, host=finding.subject, phase=finding.phase or "steps")


def _learned(comparison: Comparison) -> str:
    """Return a warning if run B has learned less than run A, and so is no better; "" otherwise."""
    losses = comparison.losses
    if losses is None or losses.b_is != "higher":
        return ""
    at = f"step {losses.step_b:,}" if losses.same == "step" else "the same number of samples"
    return f", but the loss of B at {at} is {losses.b:.4g}, and the loss of A is {losses.a:.4g}"
