"""One rank beside all others: where its step goes, what its machine does, how it ended."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from ddpmon.messages import OWN_PHASES, PHASES, RankView, Snapshot
from ddpmon.tui import numbers, standing
from ddpmon.tui.frame import Frame, finite
from ddpmon.tui.lines import Line, cut, fit, plain, size, title, wrap
from ddpmon.tui.widgets.columns import HEALTH_WORDS, decimals, how_far
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.worldmap import everyone, short_host

_LEAST_EXCESS = 0.05
"""Of the median own time: a phase that is longer by less is not worth a mark."""
_SIDE_BY_SIDE = 128
"""Columns from which the numbers and the rest stand beside each other."""
_NAME, _NUMBER, _RANGE = 18, 11, 19

Get = Callable[[RankView], float | None]


@dataclass(frozen=True)
class _Row:
    name: str
    get: Get
    text: Callable[[float | None], str]
    marked: bool = False
    """An excess over the median is a slowness."""


def _phase(name: str) -> Get:
    place = PHASES.index(name)
    return lambda rank: rank.phases_ms[place] if rank.phases_ms is not None and place < len(rank.phases_ms) else None


def _percent(value: float | None) -> str:
    return numbers.percent(None if value is None else value / 100)


def _whole(value: float | None) -> str:
    return numbers.NONE if finite(value) is None else f"{value:,.0f}"


def _times(digits: int) -> tuple[_Row, ...]:
    def ms(value: float | None) -> str:
        return numbers.aligned_ms(value, digits)

    return (
        _Row("own ms", lambda rank: rank.own_ms, ms, marked=True),
        *(_Row(f"  {name}", _phase(name), ms, marked=True) for name in OWN_PHASES),
        _Row("wait", _phase("wait"), ms),
        _Row("transfer", _phase("transfer"), ms),
        _Row("step ms", lambda rank: rank.step_ms, ms),
        _Row("late ms", lambda rank: rank.late_ms, ms),
        _Row("last to arrive", lambda rank: rank.critical_share, numbers.percent),
        _Row("gc ms", lambda rank: rank.gc_ms, numbers.ms),
    )


def _named(name: str, digits: int) -> _Row:
    """What the script named with `ddpmon.phase`: a part of the phases."""
    return _Row(
        cut(f"in {plain(name)}", _NAME - 1),
        lambda rank: rank.named_ms.get(name),
        lambda value: numbers.aligned_ms(value, digits),
        marked=True,
    )


_OTHERS = (
    _Row("loss", lambda rank: rank.loss, numbers.loss),
    _Row("learning rate", lambda rank: rank.learning_rate, numbers.loss),
    _Row("samples/s", lambda rank: rank.samples_per_s, numbers.short),
    _Row("tokens/s", lambda rank: rank.tokens_per_s, numbers.short),
    _Row("GPU", lambda rank: None if rank.gpu is None else rank.gpu.percent, _percent),
    _Row("GPU memory GiB", lambda rank: None if rank.gpu is None else rank.gpu.memory_used_bytes, numbers.gigabytes),
    _Row("GPU power W", lambda rank: None if rank.gpu is None else rank.gpu.power_w, _whole),
    _Row("GPU °C", lambda rank: None if rank.gpu is None else rank.gpu.temperature_c, _whole),
    _Row("GPU clock MHz", lambda rank: None if rank.gpu is None else rank.gpu.clock_mhz, _whole),
    _Row("CPU", lambda rank: rank.cpu_percent, _percent),
    _Row("no core free", lambda rank: rank.cpu_starved_share, numbers.percent),
    _Row("memory GiB", lambda rank: rank.rss_bytes, numbers.gigabytes),
    _Row("threads", lambda rank: rank.threads, _whole),
    _Row("disk faults/s", lambda rank: rank.major_faults_per_s, numbers.short),
    _Row("read bytes/s", lambda rank: rank.read_bytes_per_s, numbers.short),
    _Row("written bytes/s", lambda rank: rank.written_bytes_per_s, numbers.short),
)


def _beside(rows: tuple[_Row, ...], rank: RankView, snapshot: Snapshot) -> list[Line]:
    """A line per quantity: this rank, the world's median, the range of the others. What nobody measured is left out."""
    owns = [own for each in snapshot.ranks if (own := finite(each.own_ms)) is not None]
    least = _LEAST_EXCESS * statistics.median(owns) if owns else 0.0
    lines: list[Line] = []
    for row in rows:
        values = [value for each in snapshot.ranks if (value := finite(row.get(each))) is not None]
        mine = row.get(rank)
        if not values and mine is None:
            continue
        median = statistics.median(values) if values else None
        others = [v for each in snapshot.ranks if each.rank != rank.rank and (v := finite(row.get(each))) is not None]
        between = f"{row.text(min(others))}–{row.text(max(others))}" if others else numbers.NONE
        excess = finite(mine - median) if mine is not None and median is not None else None
        remark: Line = []
        if row.marked and excess is not None and excess > least and others:
            remark = [(f"  ▲ +{row.text(excess)}", "warn")]
        elif row.name == "wait" and excess is not None and -excess > max(least, 0.5 * (median or 0.0)):
            remark = [("  ◂ the others wait", "warn")]
        role = "warn" if remark else "strong" if row.name == "own ms" else "text"
        lines.append([
            (f" {row.name:<{_NAME - 1}}", "muted" if row.name.startswith(" ") else "text"),
            (f"{row.text(mine):>{_NUMBER}}", role), (f"{row.text(median):>{_NUMBER}}", "text"),
            (f"{between:>{_RANGE}}", "muted"), *remark,
        ])  # fmt: skip
    return lines


def _header() -> Line:
    return [(f"{'':{_NAME}}{'this rank':>{_NUMBER}}{'median':>{_NUMBER}}{'others':>{_RANGE}}", "muted")]


def _process(rank: RankView, width: int) -> list[Line]:
    facts = [HEALTH_WORDS.get(rank.health, plain(rank.health))]
    if rank.health != "missing":
        facts += [how_far(rank), f"{rank.steps:,} steps", f"local rank {rank.local_rank} of node {rank.node_rank}"]
    if rank.pid:
        facts.append(f"pid {rank.pid}")
    role = "warn" if rank.health in {"silent", "dead"} else "text"
    rows = wrap(", ".join(facts), width - 2)
    lines: list[Line] = [title("process", width), *([(f" {row}", role)] for row in rows)]
    lines += [[(f" {row}", "text")] for row in wrap(", ".join(_environment(rank)), width - 2) if row]
    if rank.gpu is not None and rank.gpu.throttled:
        lines.append([(f" ▲ its GPU holds its clocks down: {plain(rank.gpu.throttled)}", "warn")])
    return lines


def _environment(rank: RankView) -> list[str]:
    """What it runs on and with."""
    known = rank.environment
    if known is None:
        return []
    facts = [plain(known.device_name), f"torch {plain(known.torch_version)}" if known.torch_version else ""]
    facts.append(plain(known.backend))
    for count, what in (
        (known.parameters, "parameters in DDP"),
        (known.cores, "cores"),
        (known.compute_threads, "compute threads"),
        (known.restart, "restarts"),
    ):
        facts.append(f"{count:,} {what.removesuffix('s') if count == 1 else what}" if count else "")
    return [fact for fact in facts if fact]


def _findings(rank: RankView, snapshot: Snapshot, width: int) -> list[Line]:
    lines: list[Line] = []
    for finding in snapshot.findings:
        if rank.rank not in finding.ranks:
            continue
        role = {"warn": "warn", "critical": "bad"}.get(finding.severity, "text")
        mark = "▲ " if role != "text" else "● "
        rows = wrap(plain(finding.text), width - 4)
        lines += [[(f" {mark if place == 0 else '  '}{row}", role)] for place, row in enumerate(rows)]
        if finding.advice:
            rows = wrap(f"next: {plain(finding.advice)}", width - 4)
            lines += [[(f"   {row}", "text")] for row in rows]
    return [title("what is known against it", width), *lines] if lines else []


def _stack(rank: RankView, width: int) -> list[Line]:
    stack = rank.stack
    if stack is None or not stack.frames:
        return []
    lines = [title("where its training thread is, innermost first", width)]
    if stack.collective is not None:
        said = "waits in" if stack.blocked else "last issued"
        lines.append([(cut(f" {said} {plain(stack.collective.name)}", width), "text")])
    for place, row in enumerate(stack.frames):
        own = place == stack.own
        lines.append([(cut(f" {'›' if own else ' '} {plain(row)}", width), "strong" if own else "muted")])
    return lines


def _ending(rank: RankView, width: int) -> list[Line]:
    end = rank.exit
    if end is None:
        return []
    how = [f"exit code {end.code}"] if end.code is not None else []
    how += [f"ended by {plain(end.signal)}"] if end.signal else []
    lines: list[Line] = [
        title("how it ended", width),
        [(f" {', '.join(how) or 'gone without a word'}", "bad" if standing.failed(rank) else "text")],
    ]
    trace = [plain(row.rstrip()) for row in (end.traceback or "").splitlines() if row.strip()]
    error = plain(end.error or "")
    if error and (not trace or error[:40] not in trace[-1]):
        trace.append(error)
    for place, row in enumerate(trace):
        role = "bad" if place == len(trace) - 1 else "text"
        lines += [[(f"  {part}", role)] for part in (wrap(row, width - 3) if role == "bad" else [cut(row, width - 2)])]
    return lines


def inspection(snapshot: Snapshot, rank: RankView, width: int) -> list[Line]:
    """Everything about one rank, without the title; as long as it needs to be."""
    beside = width >= _SIDE_BY_SIDE
    left_width = width // 2 - 1 if beside else width
    right_width = width - left_width - 1 if beside else width
    digits = decimals(snapshot.ranks)
    named = [_named(name, digits) for name in dict.fromkeys(name for each in snapshot.ranks for name in each.named_ms)]
    times = _beside((*_times(digits), *named), rank, snapshot)
    others = _beside(_OTHERS, rank, snapshot)
    if not times and not others:
        left: list[Line] = [[(" nothing measured yet", "muted")]]
    else:
        left = [_header(), *times, *others]
    trouble = [*_findings(rank, snapshot, right_width), *_ending(rank, right_width)]
    rest = [*_process(rank, right_width), *_stack(rank, right_width)]
    if not beside:
        ended = rank.exit is not None and standing.failed(rank)
        return [*trouble, *left, *rest] if ended else [*left, *trouble, *rest]
    right = [*trouble, *rest]
    return [
        [
            *fit(left[y] if y < len(left) else [], left_width),
            (" ", "text"),
            *(right[y] if y < len(right) else []),
        ]
        for y in range(max(len(left), len(right)))
    ]


class Inspection(Pane):
    """The inspected rank, scrolled to a line."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rank = 0
        self._top = 0

    def open(self, rank: int) -> None:
        """Inspect this rank."""
        self.rank, self._top = rank, 0
        self.redraw()

    def _ranks(self) -> list[RankView]:
        return [] if self.frame.snapshot is None else everyone(self.frame.snapshot)

    def _listed(self) -> list[int]:
        """The ranks that the filter lets through."""
        wanted = self.frame.filter
        return [rank.rank for rank in self._ranks() if wanted is None or wanted.lets(rank)]

    def step(self, by: int) -> None:
        """The rank before or after, around the ends."""
        numbers_ = self._listed()
        if not numbers_:
            return
        after = [number for number in numbers_ if number > self.rank]
        before = [number for number in numbers_ if number < self.rank]
        self.open((after or numbers_)[0] if by > 0 else (before or numbers_)[-1])

    def heading(self, rank: RankView, width: int) -> Line:
        """rank 13 · node01 · cuda:5 · pid 48013 ───── [ 12 · 14 ]."""
        parts = [f"rank {rank.rank}", short_host(rank.host), plain(rank.device) if rank.health != "missing" else ""]
        line = title(" · ".join(part for part in parts if part), width)
        numbers_ = [number for number in self._listed() if number != rank.rank]
        if not numbers_:
            return line
        before = max((number for number in numbers_ if number < rank.rank), default=numbers_[-1])
        after = min((number for number in numbers_ if number > rank.rank), default=numbers_[0])
        ways = f" [ rank {before} · rank {after} ] "
        room = width - size([(ways, "")]) - 1
        return [*fit(line, room), (ways, "muted"), ("─", "rule")] if room > 30 else line

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        rank = next((each for each in self._ranks() if each.rank == self.rank), None)
        if snapshot is None or rank is None:
            return [title(f"rank {self.rank}", width), [(" nothing is known of it yet", "muted")]]
        lines = inspection(snapshot, rank, width)
        room = height - 1
        self._top = max(0, min(self._top, len(lines) - room))
        shown = lines[self._top : self._top + room]
        below = len(lines) - self._top - len(shown)
        if below > 0:
            shown[-1] = [(f" ↓ {below + 1} more lines", "muted")]
        return [self.heading(rank, width), *shown]

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Scroll by so many lines, or to a line (negative: to the end)."""
        self._top = max(0, self._top + (by or 0)) if to is None else 0 if to >= 0 else 1 << 20
        self.redraw()

    def page(self, direction: int) -> None:
        """Scroll by a screenful."""
        self.move(direction * max(1, self.size.height - 2))
