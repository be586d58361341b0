"""The title of a pane that lists ranks. With a filter, it shows the filter and the number of matching ranks."""

from __future__ import annotations

from ddpmon.analysis.words import format_count
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut_text, pane_title

NO_RANK_LINE: Line = [("  no rank matches the filter; esc shows all ranks", "muted")]


def no_rank(frame: Frame) -> Line:
    """Return the reason why a list of ranks is empty."""
    if frame.filter is not None:
        return NO_RANK_LINE
    return [(" no rank connected" if frame.ended else " no rank yet", "muted")]


class GrantedFilter:
    """Stores the filter for which the hub sent the shown rows, because a paused screen gets no new rows."""

    def __init__(self) -> None:
        self._filter = ""

    def fits(self, frame: Frame) -> bool:
        """Return whether a frame's rows match its filter. On a live screen, rows match at the latest after the next
        answer.
        """
        text = "" if frame.filter is None else frame.filter.text
        if frame.behind_s is None:
            self._filter = text
        return text == self._filter


def heading(text: str, frame: Frame, width: int, legend: Line | None = None) -> Line:
    """Return the title, in which the filter replaces the legend."""
    if frame.filter is None or frame.snapshot is None:
        return pane_title(text, width, legend)
    filter_text = f"{len(frame.listed_ranks):,} of {format_count(len(frame.ranks), 'rank')}: {frame.filter.text} "
    return pane_title(f"{text.rstrip()} ", width, [("/ ", "key"), (cut_text(filter_text, max(8, width - 50)), "info")])
