"""Shows why a run makes no progress: how the first rank failed, or where each rank is during a stall."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.analysis.words import format_count, named_ranks
from ddpmon.messages import Exit, Finding, RankView, Snapshot, Stack
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut_text, pane_title, paragraph, plain_text, wrap_text
from ddpmon.tui.rank_marks import culprits, has_failed
from ddpmon.tui.widgets.columns import HEALTH_WORDS
from ddpmon.tui.widgets.pane import Pane

_WHO = 22
"""Width in columns of the names of a group of ranks."""


@dataclass(frozen=True)
class _Group:
    """Ranks that are at the same place in the code."""

    ranks: tuple[int, ...]
    place: str
    frames: tuple[str, ...]
    late: bool
    """True if the other ranks wait for the ranks of this group."""


def _line_of(stack: Stack) -> str:
    """Return the innermost line of the script's own code, if there is one, else the innermost line."""
    frames = stack.frames
    place = stack.own if stack.own is not None and 0 <= stack.own < len(frames) else 0
    return plain_text(frames[place]) if frames else "no Python code"


def _place(rank: RankView) -> str:
    """Return the rank's last known place in the code; "" if no place is known."""
    stack = rank.stack
    if rank.health not in {"ok", "missing"}:
        health = HEALTH_WORDS.get(rank.health, plain_text(rank.health))
        return health if stack is None else f"{health}, last in {_line_of(stack)}"
    if stack is None:
        return ""
    if stack.blocked and stack.collective is not None:
        return f"waiting in {plain_text(stack.collective.name)}, {_line_of(stack)}"
    return _line_of(stack)


def _groups(snapshot: Snapshot) -> list[_Group]:
    """Group the ranks by their place in the code. Groups that others wait for come first, then small groups before
    large ones.
    """
    late = culprits(snapshot)
    ranks_at: dict[tuple[bool, str, tuple[str, ...]], list[int]] = {}
    for rank in snapshot.ranks:
        if place := _place(rank):
            frames = tuple(map(plain_text, rank.stack.frames)) if rank.stack is not None else ()
            ranks_at.setdefault((rank.rank in late, place, frames), []).append(rank.rank)
    groups = [_Group(tuple(ranks), place, frames, is_late) for (is_late, place, frames), ranks in ranks_at.items()]
    return sorted(groups, key=lambda group: (not group.late, len(group.ranks), group.ranks))


def standstill(snapshot: Snapshot, width: int, height: int) -> list[Line]:
    """Draw the title, a line for each group of ranks, the advice, and as many stack frames of late ranks as fit.

    Return no lines if the place of no rank is known.
    """
    groups = _groups(snapshot)
    if not groups:
        return []
    advice = next(
        (plain_text(f.advice) for f in snapshot.findings if f.explains == "stalled" and f.is_lasting and f.advice), ""
    )
    foot = paragraph(f"next: {advice}", width - 1)[:2] if advice else []
    room = max(0, height - 1 - len(foot))
    spare = max(0, room - len(groups))
    lines: list[Line] = []
    for group in groups[:room]:
        ranks_text = named_ranks(group.ranks, 0)
        ranks_text = f"{len(group.ranks):,} {ranks_text}" if len(group.ranks) > 6 else ranks_text
        mark, role = ("▲ ", "bad") if group.late else ("  ", "text")
        at = cut_text(group.place, max(1, width - _WHO - 2))
        lines.append(
            [
                (mark, role),
                (f"{cut_text(ranks_text, _WHO - 1):<{_WHO}}", role),
                (at, "strong" if group.late else "text"),
            ]
        )
        if group.late and group.frames:
            shown = group.frames[group.place.endswith(group.frames[0]) :][:spare]
            lines += [[(cut_text(f"{'':{_WHO + 2}}{frame}", width), "muted")] for frame in shown]
            spare -= len(shown)
    return [pane_title("where every rank is", width), *lines, *foot][:height]


def first_failed(snapshot: Snapshot) -> RankView | None:
    """Return the rank that failed first according to the findings. If findings name no rank, return a rank with a
    traceback or error, if possible.
    """
    ranks = {rank.rank: rank for rank in snapshot.ranks}
    for finding in snapshot.findings:
        if finding.explains == "failed":
            for number in finding.ranks:
                if number in ranks:
                    return ranks[number]
    ended = [(rank, rank.exit) for rank in snapshot.ranks if rank.exit is not None and has_failed(rank)]
    return max(ended, key=lambda pair: (bool(pair[1].traceback), bool(pair[1].error)), default=(None, None))[0]


def failed_alike(snapshot: Snapshot) -> list[int]:
    """Return all ranks that failed with the same error as the first failed rank; an empty list if no other rank did."""
    ranks = next((finding.ranks for finding in snapshot.findings if finding.explains == "failed"), [])
    return ranks if len(ranks) > 1 else []


def failure(
    rank: RankView, alike: list[int], world_size: int, width: int, height: int, finding: Finding | None = None
) -> list[Line]:
    """Draw the failure of a rank: title, how it ended, the end of the traceback, cause and next step.

    Args:
        rank: The rank.
        alike: The ranks that `failed_alike` returned.
        world_size: Number of ranks.
        width: Columns.
        height: Maximum number of lines.
        finding: The finding about the failure; without one, the exception's message is the cause.

    """
    exit_ = rank.exit or Exit()
    host = plain_text(rank.host)
    failed_rank = f"rank {rank.rank}{f' on {host}' if host else ''}"
    all_ranks = named_ranks(alike, world_size)
    lines = [
        pane_title(
            f"{all_ranks} failed in the same way; {failed_rank}:" if alike else f"{failed_rank}: how it failed", width
        )
    ]
    how = [f"exit code {exit_.code}"] if exit_.code is not None else []
    how += [f"killed by {plain_text(exit_.signal)}"] if exit_.signal else []
    how += [f"after {format_count(rank.steps, 'step')}"] if rank.steps else ["before its first step"]
    trace = traceback_lines(exit_)
    cause = plain_text(finding.text[finding.lead :].strip()) if finding else plain_text(exit_.error or "")
    foot = paragraph(cause, width - 1, "bad", [("  ", "bad")]) if cause else []
    if finding and finding.advice:
        foot += paragraph(f"next: {finding.advice}", width - 1, "strong", [("  ", "strong")])
    lines.append([(f" {', '.join(how)}", "muted")])
    says_last = bool(trace) and trace[-1][:_SAME_ERROR].rstrip(". ") in cause
    body = _rows(trace[:-1] if says_last else trace, width - 3)
    room = max(0, height - len(lines) - len(foot))
    lines += [[(cut_text(f"  {row}", width), "text")] for row in body[max(0, len(body) - room) :][:room]]
    if not trace:
        lines.append([("  no traceback", "muted")])
    return [*lines, *foot][:height]


def _rows(trace: list[str], width: int) -> list[str]:
    """Return a traceback as rows. Messages are wrapped, but not code and file names, which the caller cuts."""
    return [row for line in trace for row in ([line] if line.startswith(" ") else wrap_text(line, width))]


def traceback_lines(exit_: Exit) -> list[str]:
    """Return the traceback of a failed rank with its error last; the error alone if there is no traceback."""
    lines = [plain_text(line.rstrip()) for line in (exit_.traceback or "").splitlines() if line.strip()]
    error = plain_text(exit_.error or "")
    is_told = any(error[:_SAME_ERROR] in line for line in lines)
    return [*lines, error] if error and not is_told else lines


_SAME_ERROR = 40
"""Number of characters of the error that are compared to find it in a traceback, because launchers cut long errors."""
_CHARTS_LEAST = 8
"""Minimum number of lines for charts below the failure."""


def trouble(snapshot: Snapshot | None, width: int, height: int) -> list[Line]:
    """Return at most `height` lines on why the run stalls or failed. Return none if it does neither, or if no reason is
    known.
    """
    if snapshot is not None and snapshot.state == "stalled":
        return standstill(snapshot, width, height)
    if snapshot is None or snapshot.state != "failed" or (rank := first_failed(snapshot)) is None:
        return []
    finding = next((one for one in snapshot.findings if one.explains == "failed" and rank.rank in one.ranks), None)
    return failure(rank, failed_alike(snapshot), snapshot.run.world_size, width, height, finding)


def failure_lines(snapshot: Snapshot | None, width: int, room: int) -> int:
    """Return how many of `room` lines a failure or stall needs: 0 without a failure or stall, all lines if no chart
    fits below.
    """
    needed = len(trouble(snapshot, width, room))
    return needed if not needed or room - needed >= _CHARTS_LEAST else room


class FailurePane(Pane):
    """The pane that replaces the charts after a failure and during a stall."""

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        return trouble(frame.snapshot, width, height)
