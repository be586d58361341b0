"""What all-reduce costs, and why: the exposed part of a step, the tree of efficiencies, what would be gained."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddpmon.messages import AllReduceView, EfficiencyView, RankView, Snapshot
from ddpmon.tui import numbers
from ddpmon.tui.frame import Frame, finite
from ddpmon.tui.lines import Line, cut_sentence, size, title
from ddpmon.tui.widgets.pane import Pane

_NAME = 22
_WELL = 0.98
"""From this efficiency on there is nothing to explain."""
_WITH_WORDS = 70
_SHOWN_AS_ALL = 0.995
_WORTH_A_LINE = 0.05
"""Share of all blocked time."""
_BAR_LEAST, _BAR_MOST = 10, 40


@dataclass(frozen=True)
class Branch:
    """One efficiency: where it hangs in the tree, and what it says of this run."""

    name: str
    value: float
    sentence: str
    leaf: bool = True


def _left(value: float) -> str:
    return numbers.percent(1 - value)


def branches(efficiency: EfficiencyView, ranks: list[RankView]) -> list[Branch]:
    """The tree from its root on: parallel = load balance x communication, load balance = persistent x moving."""
    e = efficiency
    slowest = max((rank for rank in ranks if finite(rank.over_median) is not None), key=_over, default=None)
    persistent = "no rank is slower than others for long"
    if e.load_balance_persistent < _WELL and slowest is not None:
        persistent = f"rank {slowest.rank} is slow: {numbers.over(slowest.over_median)} own time, in most steps"
    return [
        Branch("parallel efficiency", e.parallel, "of the ranks' time is work of their own", leaf=False),
        Branch(
            "├ load balance",
            e.load_balance,
            "all ranks have equally much to do"
            if e.load_balance >= _WELL
            else f"{_left(e.load_balance)} is lost by waiting for the last, because work is not spread evenly",
            leaf=False,
        ),
        Branch("│ ├ persistent", e.load_balance_persistent, persistent),
        Branch(
            "│ └ moving",
            e.load_balance_moving,
            "it is not a different rank each time"
            if e.load_balance_moving >= _WELL
            else "a different rank is late each time, so that fixing one of them gains little",
        ),
        Branch(
            "└ communication",
            e.communication,
            f"transfer takes {_left(e.communication)} of a step, and blocks the last rank too",
        ),
    ]


def _over(rank: RankView) -> float:
    return finite(rank.over_median) or 0.0


def tree(efficiency: EfficiencyView, ranks: list[RankView], width: int) -> list[Line]:
    """A line for each efficiency; the one that costs most is marked."""
    lines: list[Line] = []
    made = branches(efficiency, ranks)
    worst = min((branch for branch in made if branch.leaf), key=lambda branch: branch.value)
    room = max(_BAR_LEAST, min(_BAR_MOST, (width - _NAME - 60) // 2))
    for branch in made:
        marked = branch is worst and branch.value < _WELL
        role = "warn" if marked else "text" if branch.leaf else "strong"
        share = min(1.0, max(0.0, finite(branch.value) or 0.0))
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
            [*line, (cut_sentence(branch.sentence, width - size(line)).rstrip("."), role if marked else "text")]
        )
    return lines


def _bytes(payload: float) -> str:
    """Bytes in the units of nccl-tests, powers of ten: 97.5 MB."""
    scaled = numbers.short(payload)
    return f"{scaled} B" if scaled[-1:].isdigit() else f"{scaled[:-1]} {scaled[-1:].replace('k', 'K')}B"


def _faster(gain: float | None) -> str:
    gain = finite(gain)
    return numbers.NONE if gain is None else "no gain" if gain < 1.005 else f"{numbers.percent(gain - 1)} faster"


def _cost(shown: AllReduceView, bandwidth: float | None, width: int) -> list[Line]:
    share = numbers.percent(shown.exposed_share) + " of a step" * (width >= _WITH_WORDS)
    total = None if finite(shown.wait_ms) is None else shown.wait_ms + shown.transfer_ms
    speed = f"{numbers.ms(bandwidth)} GB/s" if finite(bandwidth) is not None else "known with --buckets"
    first: Line = [
        (" exposed ", "muted"), (f"{numbers.ms(total)} ms", "strong"), (f", {share}", "text"),
        ("   ╌ wait ", "wait"), (numbers.ms(shown.wait_ms), "text"),
        ("   ═ transfer ", "comm"), (numbers.ms(shown.transfer_ms), "text"),
    ]  # fmt: skip
    second: Line = [
        (" bytes a step ", "muted"), (_bytes(shown.payload_bytes), "text"),
        ("   bus bandwidth ", "muted"), (speed, "text" if finite(bandwidth) is not None else "muted"),
    ]  # fmt: skip
    if size(first) + size(second) + 2 <= width:
        return [[*first, ("  ", "text"), *second]]
    return [first, second]


def _beside(shown: AllReduceView) -> list[Line]:
    """What ranks are blocked in besides, where it is worth a line."""
    beside = finite(shown.beside_ms) or 0.0
    if not beside > _WORTH_A_LINE * (beside + (finite(shown.wait_ms + shown.transfer_ms) or 0.0)):
        return []
    return [[
        (" beside it ", "muted"), (f"{numbers.ms(beside)} ms", "text"),
        (" in other synchronisations: buffers, collectives", "muted"),
    ]]  # fmt: skip


def _gains(shown: AllReduceView) -> Line:
    return [
        (" if nobody waited: ", "muted"), (_faster(shown.gain_without_waiting), "text"),
        ("   if every transfer took its median: ", "muted"), (_faster(shown.gain_with_even_transfer), "text"),
    ]  # fmt: skip


def _nothing(snapshot: Snapshot) -> str:
    if snapshot.window is None:
        return "no steps yet"
    if snapshot.run.world_size == 1:
        return "one rank alone: it waits for nobody"
    if snapshot.all_reduce_ms is not None:
        return f"exposed {numbers.ms(snapshot.all_reduce_ms)} ms; what it is made of was not told"
    return "no gradients are synchronised: no model is wrapped in DDP"


def cost(snapshot: Snapshot, width: int) -> list[Line]:
    """All there is to say, without the title."""
    shown = snapshot.all_reduce
    lines: list[Line] = []
    if shown is not None:
        lines += [*_cost(shown, snapshot.bus_bandwidth_gb_s, width), *_beside(shown)]
    else:
        lines.append([(f" {_nothing(snapshot)}", "muted")])
    if snapshot.efficiency is not None:
        lines += tree(snapshot.efficiency, snapshot.ranks, width)
    if shown is not None and finite(shown.gain_without_waiting) is not None:
        lines.append(_gains(shown))
    return lines


class Cost(Pane):
    """What all-reduce costs, and why."""

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        heading = "what does all-reduce cost, and why"
        if snapshot is None:
            return [title(heading, width)]
        if snapshot.window is not None:
            first, last = snapshot.window
            heading += f": steps {numbers.count(first)}–{numbers.count(last)}"
        return [title(heading, width), *cost(snapshot, width)]
