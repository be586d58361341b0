"""The three lines at the top of every screen: state, verdict and numbers. `ddpmon status` prints them too."""

from __future__ import annotations

from ddpmon import numbers
from ddpmon.analysis.processes.parallelism import short_name, with_ddp
from ddpmon.analysis.verdict import beside_state
from ddpmon.messages import STAGES, Snapshot
from ddpmon.tui.blocks import LEAST_HEIGHT, LEAST_WIDTH
from ddpmon.tui.frame import BADGES, SEVERITY_ROLES, STAGE_WORDS, Frame, arriving
from ddpmon.tui.lines import Line, cut_sentence, cut_text, line_text, line_width, plain_text, wrap_text
from ddpmon.tui.views import title

_HUB_STARTS_S = 10.0
"""Seconds without the hub's first answer after which the user gets a message."""
_Item = tuple[int, Line]
"""(drop order, pieces): if space is short, the item with the highest drop order is dropped first."""


_ATTACHED = ("", "text")
"""First piece of an item that is joined to the item on its left by one space instead of two."""


def _join(items: list[_Item], width: int) -> Line:
    """Join as many items as fit. There are two spaces between items, but only one before an item that starts with
    `_ATTACHED`.
    """
    fitting = list(items)
    while len(fitting) > 1 and line_width(_glue(fitting)) > width:
        fitting.remove(max(fitting, key=lambda item: item[0]))
    return _glue(fitting)


def _glue(items: list[_Item]) -> Line:
    joined: Line = []
    for _, line in items:
        if joined:
            joined.append(("  ", "text") if line[0][0] else (" ", "text"))
        joined += line
    return joined


def bar(share: float, width: int) -> Line:
    """Draw a progress bar."""
    done = round(min(1.0, max(0.0, share)) * width)
    return [("━" * done, "info"), ("─" * (width - done), "rule")]


def state_line(frame: Frame, width: int) -> Line:
    """Return the first line: ▲ SLOW name 64 ranks step 12,486/50,000 ━━── 25% epoch 2/8 ETA 3h14m up 1h02m."""
    badge, snapshot = frame.badge, frame.snapshot
    word = badge.word
    if frame.is_stale:
        word += f" {numbers.duration(frame.silent_s)}"
    elif snapshot is not None and snapshot.state == "stalled" and snapshot.verdict_since is not None:
        word += f" {numbers.duration(snapshot.at - snapshot.verdict_since)}"
    items: list[_Item] = _replay(frame, wide=width >= 110)
    items.append((0, [(f"{badge.glyph} {word:<7}", badge.role)]))
    if frame.behind_s is not None:
        items.append((1, [(f"‖ FROZEN {numbers.duration(frame.behind_s)}", "warn")]))
    if snapshot is not None:
        items += _progress(snapshot, frame, wide=width >= 110)
    return _join(items, width)


def _replay(frame: Frame, wide: bool) -> list[_Item]:
    """Return the items of the first line while a recording plays: ↺ REPLAY 2m14s ━━━━── 10m32s x4."""
    cursor, badge = frame.cursor, BADGES["replay"]
    if cursor is None:
        return []
    share = cursor.at_s / cursor.length_s if cursor.length_s > 0 else 1.0
    speed = "paused" if cursor.paused else f"x{cursor.speed:g}"
    return [
        (0, [(f"{badge.glyph} {badge.word} {numbers.duration(cursor.at_s):>6}", badge.role)]),
        (2, [_ATTACHED, *bar(share, 24 if wide else 10)]),
        (1, [_ATTACHED, (f"{numbers.duration(cursor.length_s)} {speed:<6}", badge.role)]),
    ]


def _progress(snapshot: Snapshot, frame: Frame, wide: bool) -> list[_Item]:
    run, ended = snapshot.run, frame.ended
    ranks = f"{numbers.count(run.world_size)} rank{'s' * (run.world_size != 1)}"
    if snapshot.state == "waiting":
        connected = sum(rank.health != "missing" for rank in snapshot.ranks)
        ranks = f"{numbers.count(connected)}/{ranks}"
    if wide and run.nnodes > 1:
        ranks += f" on {run.nnodes} nodes"
    items: list[_Item] = [(2, [(cut_text(plain_text(run.name), 32 if wide else 20), "strong")])]
    if frame.where:
        items.append((6, [_ATTACHED, (f"on {cut_text(plain_text(frame.where), 32 if wide else 20)}", "info")]))
    items.append((5, [(ranks, "text")]))
    if kind := short_name(snapshot.parallelism):
        items.append((4, [(plain_text(kind), "info")]))
    total = snapshot.total_steps
    step = f"step {numbers.count(snapshot.step)}" + (f"/{numbers.count(total)}" if total else "")
    if snapshot.step or total:
        items.append((3, [(step, "text")]))
    if total and frame.cursor is None:
        share = snapshot.step / total
        items.append((8, [_ATTACHED, *bar(share, 24 if wide else 10)]))
        items.append((4, [_ATTACHED, (f"{numbers.percent(min(1.0, share)):>4}", "text")]))
    if snapshot.training_epoch is not None:
        epochs = f"/{numbers.count(snapshot.training_epochs)}" if snapshot.training_epochs else ""
        items.append((7, [(f"epoch {numbers.count(snapshot.training_epoch)}{epochs}", "text")]))
    if ended and run.exit_code:
        items.append((3, [(f"exit {run.exit_code}", "strong")]))
    if not ended and snapshot.eta_s is not None and frame.cursor is None:
        items.append((6, [(f"ETA {numbers.duration(snapshot.eta_s)}", "muted")]))
    # For an attached job, the time that it ran before the attach is unknown.
    if ended and run.ended_at is not None and run.started_at:
        verb = "watched" if run.attached else "took"
        items.append((6, [(f"{verb} {numbers.duration(run.ended_at - run.started_at)}", "muted")]))
    elif not ended and run.started_at and frame.cursor is None:
        verb = "watched" if run.attached else "up"
        items.append((9, [(f"{verb} {numbers.duration(snapshot.at - run.started_at)}", "muted")]))
    return items


def _stand_in(frame: Frame) -> tuple[str, str] | None:
    """Return (sentence, colour role) of the message that replaces the verdict; None if the verdict is shown."""
    snapshot = frame.snapshot
    if frame.refused and not frame.ended:
        return plain_text(frame.refused), "bad"
    if snapshot is None:
        if frame.cursor is not None:
            return "reading the recording…", "text"
        if frame.trouble:
            return f"{plain_text(frame.trouble)}; trying again", "warn"
        if frame.silent_s > _HUB_STARTS_S:
            return f"no answer from the hub for {numbers.duration(frame.silent_s)}; still trying", "warn"
        return "starting the hub…", "text"
    if frame.is_stale:
        last_heard = numbers.clock(snapshot.at)
        goes_on = "stop requested" if frame.stopping else "training continues"
        if frame.trouble:
            return f"no connection since {last_heard}; {goes_on}; trying again: {plain_text(frame.trouble)}", "warn"
        return f"no answer from the hub since {last_heard}: values are from then; {goes_on}", "warn"
    return None


def sentence(frame: Frame) -> tuple[str, str, str]:
    """Return the verdict, or the message that replaces it, as (beginning that names the subject, rest, colour role)."""
    stand_in, snapshot = _stand_in(frame), frame.snapshot
    if stand_in is not None or snapshot is None:
        text, role = stand_in or ("", "text")
        return text, "", role
    facts, role = snapshot.verdict_facts, SEVERITY_ROLES.get(snapshot.severity, "text")
    if snapshot.findings:
        text = beside_state(snapshot.verdict, snapshot.state, snapshot.findings, snapshot.step)
        if text != snapshot.verdict:
            return plain_text(text), "", role
    lead = (facts.lead if facts else 0) or len(snapshot.verdict)
    return plain_text(snapshot.verdict[:lead]) or numbers.NONE, plain_text(snapshot.verdict[lead:]), role


def verdict_line(frame: Frame, width: int) -> Line:
    """Return the verdict, cut after a clause or word, then the number of further findings and of lost records."""
    lead, rest, role = sentence(frame)
    tail: Line = []
    if frame.snapshot is not None:
        matter = [f for f in frame.snapshot.findings if f.severity != "info" and (f.is_lasting or frame.ended)]
        more = len(matter) - 1
        if more > 0:
            tail.append((f"  +{more} more", role))
        if lost := frame.snapshot.records_lost:
            tail.append((f"  {numbers.short(lost)} record{'s' * (lost != 1)} lost", "warn"))
    if width - line_width(tail) < 20:
        tail = []
    text = cut_sentence(lead + rest, width - line_width(tail))
    if role not in {"warn", "bad"}:
        return [(text, role), *tail]
    # The lead names the culprit, so only the lead has the colour of the severity.
    return [(text[: len(lead)], role), (text[len(lead) :], "text"), *tail]


def number_items(snapshot: Snapshot, width: int) -> list[_Item]:
    """Return the items of the third line: five numbers about the run. A number's width does not depend on its value, so
    that the numbers do not move.
    """
    arrow = {True: "↓", False: "↑", None: " "}[snapshot.loss_falls]
    on_gpu = snapshot.gpu_percent is not None or any(rank.device.startswith("cuda") for rank in snapshot.ranks)
    rate = f"{numbers.short(snapshot.samples_per_s):>5}"
    finite_loss = snapshot.loss is None or numbers.loss(snapshot.loss) not in {"nan", "inf", "-inf"}
    cost, blocked = "all-reduce", snapshot.all_reduce_ms
    if not with_ddp(snapshot.parallelism):
        collectives = snapshot.all_reduce
        cost, blocked = "collectives", None if collectives is None else collectives.wait_ms + collectives.transfer_ms
    items: list[_Item] = [
        (0, [("step ", "muted"), (f"{numbers.ms(snapshot.step_ms_p50):>5} ms", "strong"),
             (" max", "muted"), (f"{numbers.ms(snapshot.step_ms_max):>5}", "text")]),
        (1, [("loss ", "muted"), (f"{numbers.loss(snapshot.loss):>6} {arrow}", "strong" if finite_loss else "bad")]),
        (3, [(f"{cost} ", "muted"), (f"{numbers.ms(blocked):>4} ms", "text")]),
        (2, [("wait ", "muted"), (f"{numbers.percent(snapshot.wait_share):>4}", "text")]),
    ]  # fmt: skip
    if on_gpu:
        gpu = None if snapshot.gpu_percent is None else snapshot.gpu_percent / 100
        items.append((4, [("GPU ", "muted"), (f"{numbers.percent(gpu):>4}", "text")]))
    if not on_gpu or width >= 100:
        unit = " samples/s" if width >= 100 else "/s"
        items.append((5, [(rate, "text"), (unit, "muted")]))
    return items


_ARRIVAL = ("importing", "imported", "group", "model", "training")
"""Short names of the first five STAGES of a rank, for a head of less than 110 columns."""


def arrival_items(snapshot: Snapshot, width: int) -> list[_Item]:
    """Return one item for each stage before training with the number of ranks that are in it. Before the first step,
    these items replace the five numbers.
    """
    ranks = snapshot.ranks
    stages = [rank.stage for rank in ranks if rank.health != "missing"]
    names = [STAGE_WORDS[stage] for stage in STAGES[: len(_ARRIVAL)]] if width >= 110 else list(_ARRIVAL)
    digits = len(str(len(ranks)))
    counts = [stages.count(stage) for stage in STAGES[: len(_ARRIVAL)]]
    return [
        (place, [(f"{name} ", "muted"), (f"{count:>{digits}}", "strong" if count else "muted")])
        for place, (name, count) in enumerate(
            zip(["not connected", *names], [len(ranks) - len(stages), *counts], strict=True)
        )
    ]


def head(frame: Frame, width: int, height: int) -> list[Line]:
    """Return the head's three lines. On a screen that is too small for panes, the head gets more lines, and shows
    everything in full.
    """
    room = width - 1 if width > 20 else width
    margin: Line = [(" ", "text")] if width > 20 else []
    lines = [[*margin, *state_line(frame, room)]]
    numbers_ = _third(frame, room)
    if height <= 3:
        return [*lines, [*margin, *verdict_line(frame, room)], [*margin, *_join(numbers_, room)]]
    lead, rest, role = sentence(frame)
    text = lead + rest
    wrapped, most = wrap_text(text, room), max(1, height - 2)
    if len(wrapped) > most:
        wrapped[most - 1 :] = [cut_text(" ".join(wrapped[most - 1 :]), room)]
    lines += [[*margin, (row, role)] for row in wrapped]
    row: Line = []
    for _, whole in numbers_:
        item = whole if line_width(whole) <= room else whole[:2]
        if row and line_width(row) + 2 + line_width(item) > room:
            lines.append([*margin, *row])
            row = []
        row = [*row, *([("  ", "text")] if row else []), *item]
    lines += [[*margin, *row]] if row else []
    small = f"{title(frame.view)} needs a terminal of at least {LEAST_WIDTH}x{LEAST_HEIGHT}."
    words = [[*margin, (row, "muted")] for row in wrap_text(small, room)]
    return [*lines, [], *words] if len(lines) + 1 + len(words) <= height else lines


def _third(frame: Frame, width: int) -> list[_Item]:
    """Return the items of the head's third line."""
    snapshot = frame.snapshot
    if snapshot is None:
        late = frame.cursor is None and frame.silent_s > _HUB_STARTS_S
        return [(0, [("ddpmon ls shows the run's state, ddpmon logs its output", "muted")])] if late else []
    if snapshot.state in {"waiting", "stalled"} and arriving(snapshot):
        return arrival_items(snapshot, width)
    return number_items(snapshot, width)


def head_text(snapshot: Snapshot, width: int) -> list[str]:
    """Return the head's three lines as text in at most `width` columns."""
    return [line_text(line)[1:] for line in head(Frame(snapshot), width + 1, 3)]
