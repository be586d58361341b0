"""Shows the cost of all-reduce: exposed time per step, its causes as a tree of efficiencies, and possible gains."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.analysis.words import pause_count
from ddpmon.messages import (
    COST_STEPS,
    COST_WINDOWS,
    SYNC_COLLECTIVE,
    SYNC_KINDS,
    AllReduceView,
    CostView,
    EfficiencyView,
    RankView,
    Snapshot,
    ViewRequest,
)
from ddpmon.tui.frame import Frame, finite_or_none
from ddpmon.tui.lines import Line, cut_sentence, line_width, pane_title, paragraph
from ddpmon.tui.widgets.pane import Actions, Pane

_NAME = 22
_WELL = 0.98
"""Efficiency from which on the screen explains no loss."""
_WITH_WORDS = 70
_SHOWN_AS_ALL = 0.995
_WORTH_A_LINE = 0.05
"""Share of all blocked time from which on synchronisations other than the gradient all-reduce get a line."""
_BAR_LEAST, _BAR_MOST = 10, 40
_FIRST_STEP = 2
"""First step with a meaningful length, because step 1 includes everything since the process started."""


@dataclass(frozen=True)
class Branch:
    """An efficiency in the tree: its name, its value, and what it means for this run."""

    name: str
    value: float
    sentence: str
    leaf: bool = True


def _left(value: float) -> str:
    return numbers.percent(1 - value)


def branches(efficiency: EfficiencyView, slowest: int | None = None, over: float | None = None) -> list[Branch]:
    """Return the nodes of the tree of efficiencies, root first: parallel = load balance x communication, and load
    balance = persistent x moving.

    Args:
        efficiency: The efficiencies.
        slowest: The rank with the most own time.
        over: Excess of that rank's own time over the median of the others, as a fraction.

    """
    e = efficiency
    persistent = "no rank is slow for long"
    if e.load_balance_persistent < _WELL and slowest is not None:
        persistent = f"rank {slowest} is slow: {numbers.over(over)} own time, in most steps"
    return [
        Branch("parallel efficiency", e.parallel, "own time, as a share of all time", leaf=False),
        Branch(
            "├ load balance",
            e.load_balance,
            "all ranks have the same amount of work"
            if e.load_balance >= _WELL
            else f"waiting for the slowest costs {_left(e.load_balance)}, because work is uneven",
            leaf=False,
        ),
        Branch("│ ├ persistent", e.load_balance_persistent, persistent),
        Branch(
            "│ └ moving",
            e.load_balance_moving,
            "the slow rank does not rotate"
            if e.load_balance_moving >= _WELL
            else "the slow rank keeps rotating, so that fixing one gains little",
        ),
        Branch(
            "└ communication",
            e.communication,
            f"even the slowest rank is blocked {_left(e.communication)}, in transfers and waits",
        ),
    ]


def _over(rank: RankView) -> float:
    return finite_or_none(rank.over_median) or 0.0


def tree(rows: list[Branch], width: int) -> list[Line]:
    """Draw a line for each efficiency, and mark the one that costs most."""
    lines: list[Line] = []
    worst = min((branch for branch in rows if branch.leaf), key=lambda branch: branch.value)
    room = max(_BAR_LEAST, min(_BAR_MOST, (width - _NAME - 60) // 2))
    for branch in rows:
        marked = branch is worst and branch.value < _WELL
        role = "warn" if marked else "text" if branch.leaf else "strong"
        share = min(1.0, max(0.0, finite_or_none(branch.value) or 0.0))
        full = room if share >= _SHOWN_AS_ALL else math.floor(share * room)
        line: Line = [
            ("▲" if marked else " ", role),
            (f"{branch.name:<{_NAME - 1}}", "muted" if branch.leaf and not marked else role),
            (f"{numbers.percent(branch.value):>5}  ", role),
            ("━" * full, "info" if not marked else role),
            ("─" * (room - full), "rule"),
            ("  ", "text"),
        ]
        lines.append(
            [*line, (cut_sentence(branch.sentence, width - line_width(line)).rstrip("."), role if marked else "text")]
        )
    return lines


def _faster(gain: float | None) -> str:
    gain = finite_or_none(gain)
    return numbers.NONE if gain is None else "no gain" if gain < 1.005 else f"{gain:.2f}x faster"


def _of_collectives(shown: AllReduceView) -> bool:
    return shown.kind == SYNC_KINDS[SYNC_COLLECTIVE]


def _cost(shown: AllReduceView, bandwidth: float | None, width: int) -> list[Line]:
    share = numbers.percent(shown.exposed_share) + " of a step" * (width >= _WITH_WORDS)
    total = None if finite_or_none(shown.wait_ms) is None else shown.wait_ms + shown.transfer_ms
    speed = f"{numbers.ms(bandwidth)} GB/s" if finite_or_none(bandwidth) is not None else "needs --buckets"
    name = " blocked " if _of_collectives(shown) else " exposed "
    first: Line = [
        (name, "muted"), (f"{numbers.ms(total)} ms", "strong"), (f", {share}", "text"),
        ("   ╌ wait ", "wait"), (numbers.ms(shown.wait_ms), "text"),
        ("   ═ transfer ", "comm"), (numbers.ms(shown.transfer_ms), "text"),
    ]  # fmt: skip
    if _of_collectives(shown):
        return [first]
    second: Line = [
        (" bytes a step ", "muted"), (numbers.size(shown.payload_bytes), "text"),
        ("   bus bandwidth ", "muted"), (speed, "text" if finite_or_none(bandwidth) is not None else "muted"),
    ]  # fmt: skip
    if line_width(first) + line_width(second) + 2 <= width:
        return [[*first, ("  ", "text"), *second]]
    return [first, second]


def _beside(shown: AllReduceView) -> list[Line]:
    """Return a line about the time blocked in synchronisations other than the gradient all-reduce, if this time is
    notable.
    """
    beside = finite_or_none(shown.beside_ms) or 0.0
    if not beside > _WORTH_A_LINE * (beside + (finite_or_none(shown.wait_ms + shown.transfer_ms) or 0.0)):
        return []
    return [[
        (" in addition ", "muted"), (f"{numbers.ms(beside)} ms", "text"),
        (" in other synchronisations: buffers, collectives", "muted"),
    ]]  # fmt: skip


def _gains(shown: AllReduceView) -> Line:
    line: Line = [(" if all ranks took their mean: ", "muted"), (_faster(shown.gain_without_waiting), "text")]
    if shown.gain_with_even_transfer is not None:
        even = _faster(shown.gain_with_even_transfer)
        line += [("   with even transfers: ", "muted"), (even, "text")]
    return line


def _nothing(snapshot: Snapshot) -> str:
    if snapshot.window is None:
        return "no steps yet"
    if snapshot.measured and not with_ddp(snapshot.parallelism):
        return snapshot.measured
    if snapshot.run.world_size == 1:
        return "a single rank waits for nobody"
    if snapshot.all_reduce_ms is not None:
        return f"{numbers.ms(snapshot.all_reduce_ms)} ms exposed; no breakdown available"
    return "no gradient synchronisation: the script wraps no model in DDP"


def view_over(snapshot: Snapshot, over: str) -> CostView | None:
    """Return the cost over the steps `over`, or over the snapshot's window until the hub has sent that; None without
    steps.
    """
    if snapshot.cost is not None and snapshot.cost.over == over:
        return snapshot.cost
    if snapshot.window is None:
        return None
    slowest = max(
        (rank for rank in snapshot.ranks if finite_or_none(rank.over_median) is not None), key=_over, default=None
    )
    first, last = snapshot.window
    return CostView(
        COST_WINDOWS[0], snapshot.window, last - first + 1, snapshot.all_reduce, snapshot.efficiency,
        None if slowest is None else slowest.rank, None if slowest is None else slowest.over_median,
    )  # fmt: skip


def of_steps(shown: CostView, *, attached: bool = False) -> str:
    """Return the steps that a cost covers, for the title. attached: ddpmon does not know the job's first steps."""
    first, last = (numbers.count(step) for step in shown.window)
    if shown.over == "start" and shown.window[0] > _FIRST_STEP:
        return f"all steps since step {first}, to {last}"
    if shown.window[0] == shown.window[1]:
        return f"step {first}"
    return {
        "last": f"the last {min(COST_STEPS, shown.steps)} steps, {first}–{last}",
        "start": f"since {'the attach' if attached else 'the start'}, steps {first}–{last}",
    }.get(shown.over, f"steps {first}–{last}")


def cost(snapshot: Snapshot, width: int, over: str) -> list[Line]:
    """Return all lines about the cost, without the title."""
    view = view_over(snapshot, over)
    shown = None if view is None else view.all_reduce
    lines: list[Line] = []
    if shown is not None:
        lines += [*_cost(shown, snapshot.bus_bandwidth_gb_s, width), *_beside(shown)]
        if _of_collectives(shown):
            lines += paragraph(snapshot.measured, width - 1, "muted")
    else:
        lines += paragraph(_nothing(snapshot), width - 1, "muted")
    if view is not None and view.efficiency is not None:
        lines += tree(branches(view.efficiency, view.slowest, view.slowest_over), width)
    if shown is not None and finite_or_none(shown.gain_without_waiting) is not None:
        lines.append(_gains(shown))
    return [*lines, *_spent(snapshot)]


def _spent(snapshot: Snapshot) -> list[Line]:
    """Return lines about pauses since the first step, if there were any, and about accumulated batches."""
    lines: list[Line] = []
    times = snapshot.times
    if times is not None and times.paused_s:
        whole = max(times.training_s + sum(times.paused_s.values()), 1e-9)
        kinds = sorted(times.paused_s, key=lambda kind: -times.paused_s[kind])
        pauses = [
            f"{numbers.percent(times.paused_s[kind] / whole)} {kind} ({pause_count(kind, times.counts.get(kind, 0))})"
            for kind in kinds
        ]
        trained = f"{numbers.percent(times.training_s / whole)} training"
        beginning = "the attach" if snapshot.run.attached else "the first step"
        lines.append([(f" since {beginning}: ", "muted"), (", ".join([trained, *pauses]), "text")])
    if snapshot.accumulation > 1:
        lines.append([(" each step accumulates ", "muted"), (f"{snapshot.accumulation} batches", "text")])
    return lines


class Cost(Pane):
    """The cost of all-reduce and its causes."""

    over = COST_WINDOWS[0]
    """The steps that the cost covers: one of `COST_WINDOWS`."""

    @property
    def actions(self) -> Actions:
        return {"window": self._next_window}

    def _next_window(self) -> None:
        self.over = COST_WINDOWS[(COST_WINDOWS.index(self.over) + 1) % len(COST_WINDOWS)]

    @property
    def view_request(self) -> ViewRequest:
        return ViewRequest() if self.over == COST_WINDOWS[0] else ViewRequest(cost=self.over)

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        heading = "what does all-reduce cost, and why"
        if snapshot is None:
            return [pane_title(heading, width)]
        if not with_ddp(snapshot.parallelism):
            heading = "what do collectives cost, and why"
        shown = view_over(snapshot, self.over)
        if shown is not None:
            heading += f": {of_steps(shown, attached=snapshot.run.attached)}"
        return [pane_title(heading, width), *cost(snapshot, width, self.over)]
