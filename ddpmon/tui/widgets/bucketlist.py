"""Lists DDP's buckets of one backward: when each all-reduce was launched and ended, its size and parameters."""

from __future__ import annotations

from textual import events

from ddpmon import numbers
from ddpmon.messages import BucketView, Snapshot
from ddpmon.tui.frame import Frame, finite_or_none
from ddpmon.tui.lines import Line, cut_text, join_pieces, pane_title, plain_text, under_cursor, wrap_text
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.scrolling import moved

_LEGEND: Line = [("╌ wait ", "wait"), (" ═ transfer ", "comm"), (" │ backward ends ", "muted")]
_HEADER = f"{'bucket':>9}{numbers.MEGA:>8}{'handed over':>13}{'done':>8}{'transfer':>10}"
_BAR_LEAST = 16
_PICTURE_FROM = 9
"""Height of the pane in lines from which it shows the bar of bucket sizes."""


def bucket_name(bucket: BucketView, buckets: list[BucketView]) -> str:
    """Return DDP's number of a bucket, with the number of its model if there are several."""
    several = any(each.model != buckets[0].model for each in buckets)
    return f"{bucket.model}.{bucket.index}" if several else str(bucket.index)


def bucket_span(buckets: list[BucketView]) -> tuple[float, float]:
    """Return the times of the first launch and of the last end of an all-reduce, in ms after the start of the step."""
    starts = [value for each in buckets if (value := finite_or_none(each.launch_ms)) is not None]
    ends = [value for each in buckets if (value := finite_or_none(each.end_ms)) is not None]
    return min(starts, default=0.0), max(ends, default=0.0)


def bucket_bar(bucket: BucketView, first: float, last: float, ready: float, width: int) -> Line:
    """Draw the bar of a bucket's all-reduce, from launch to end, on a scale of `width` columns.

    Args:
        bucket: The bucket.
        first: Left end of the scale, in ms after the start of the step.
        last: Right end of the scale, in ms after the start of the step.
        ready: Time at which the last all-reduce was launched, which the bar marks.
        width: Columns of the scale.

    """
    complete = all(finite_or_none(value) is not None for value in (bucket.launch_ms, bucket.end_ms, bucket.transfer_ms))
    if not complete or not last > first or not first <= bucket.launch_ms <= bucket.end_ms <= last:
        return []

    def column(at: float) -> int:
        share = (min(max(at, first), last) / 2 - first / 2) / (last / 2 - first / 2)  # halves cannot overflow
        return min(width - 1, int(share * width))

    start, end, mark = column(bucket.launch_ms), column(bucket.end_ms), column(ready)
    moving = column(max(bucket.launch_ms, bucket.end_ms - max(0.0, bucket.transfer_ms)))
    cells = [(" ", "text")] * width
    cells[mark] = ("│", "rule")
    for place in range(start, end + 1):
        cells[place] = ("═", "comm") if place >= moving else ("╌", "wait")
    return join_pieces(cells)


def bucket_lines(buckets: list[BucketView], shown: range, width: int, chosen: int | None) -> list[Line]:
    """Return the header, and a line for each bucket at the places in `shown`."""
    first, last = bucket_span(buckets)
    ready = max((value for each in buckets if (value := finite_or_none(each.launch_ms)) is not None), default=0.0)
    room = width - len(_HEADER) - 3
    header = _HEADER
    if room >= _BAR_LEAST:
        header += f"  {f'{first:,.1f} ms':<{room // 2}}{f'{last:,.1f} ms':>{room - room // 2}}"
    lines: list[Line] = [[(header, "muted")]]
    for place in shown:
        bucket = buckets[place]
        line: Line = [
            (f"{bucket_name(bucket, buckets):>9}", "strong"),
            (f"{numbers.ms(bucket.payload_bytes / numbers.KILO**2):>8}", "text"),
            (f"{numbers.ms(bucket.launch_ms):>13}{numbers.ms(bucket.end_ms):>8}", "text"),
            (f"{numbers.ms(bucket.transfer_ms):>10}", "comm"),
        ]
        if room >= _BAR_LEAST:
            bar = bucket_bar(bucket, first, last, ready, room)
            line += [("  ", "text"), *bar]
        lines.append(under_cursor(line, width) if place == chosen else line)
    return lines


def sizes(buckets: list[BucketView], width: int, chosen: int | None) -> Line:
    """Draw all buckets side by side, each as wide as it is large."""
    total = sum(bucket.payload_bytes for bucket in buckets)
    line: Line = [(" sizes ", "muted")]
    room, before, filled = width - 8, 0, 0
    for place, bucket in enumerate(buckets):
        before += bucket.payload_bytes
        end = round(room * before / total) if total else 0
        label = bucket_name(bucket, buckets)
        wide = end - filled
        text = (label if len(label) < wide else "").ljust(wide, "▓░"[place % 2])
        line.append((text, "comm" + "+select" * (place == chosen)))
        filled = end
    return line


def contents(bucket: BucketView, label: str, width: int, height: int) -> list[Line]:
    """Return the names of a bucket's parameters, in at most `height` lines."""
    names = [plain_text(each) for each in bucket.parameters]
    rows = wrap_text(f"in bucket {label}: {', '.join(names) or 'names not recorded'}", width - 3)
    if len(rows) > height > 0:
        rows = rows[:height]
        rows[-1] = cut_text(rows[-1].rstrip(",") + f", … {len(names):,} in all", width - 2)
    return [[(f" {'  ' if place else ''}{row}", "text")] for place, row in enumerate(rows[:height])]


class BucketList(Pane):
    """The list of buckets with a cursor, and the parameters of the bucket under it."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.chosen = 0
        self.active = False
        """True if the movement keys act on this list."""
        self._top = 0
        self._above = 2
        """Number of lines above the first bucket."""

    def _buckets(self) -> list[BucketView]:
        return [] if self.frame.snapshot is None else self.frame.snapshot.buckets

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        heading = pane_title("buckets during backward ", width, _LEGEND)
        buckets = self._buckets()
        if not buckets:
            return [heading]
        self.chosen = max(0, min(self.chosen, len(buckets) - 1))
        bucket = buckets[self.chosen]
        picture = [sizes(buckets, width - 1, self.chosen if self.active else None)] if height >= _PICTURE_FROM else []
        self._above = 2 + len(picture)
        height_left = height - len(picture)
        names = contents(bucket, bucket_name(bucket, buckets), width - 1, self._names_room(height_left, len(buckets)))
        room = max(1, height_left - 2 - len(names))
        self._top = max(self.chosen - room + 1, min(self._top, self.chosen, len(buckets) - room), 0)
        shown = range(self._top, min(len(buckets), self._top + room))
        lines = [heading, *picture, *bucket_lines(buckets, shown, width - 1, self.chosen if self.active else None)]
        below = len(buckets) - shown.stop
        if below > 0 and len(lines) > 3:
            lines[-1] = [(f" ↓ {below + 1} more buckets", "muted")]
        return [*lines, *names]

    @staticmethod
    def _names_room(height: int, buckets: int) -> int:
        """Return the number of lines for parameter names: the lines that buckets do not need, but at least a quarter of
        `height`. 0 if `height` is below 6.
        """
        return 0 if height < 6 else max(2, min(12, height - 2 - buckets), height // 4)

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        self.chosen = moved(self.chosen, len(self._buckets()), by, to)
        self.redraw()

    def page(self, direction: int) -> None:
        self.move(direction * max(1, self.size.height - 4))

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked bucket."""
        place = self._top + event.y - self._above
        if event.y >= self._above and place < len(self._buckets()):
            self.chosen = place
            self.redraw()


def needed(snapshot: Snapshot) -> int:
    """Return the number of lines that all buckets and some of the parameter names need."""
    return len(snapshot.buckets) + 6
