"""Play synthetic runs through the analysis alone: without a hub, recording and report, and with fewer judgements.

`play_alone` takes the arguments of `play.play`, and returns what the findings would show. It leaves out samples of
processes and the pauses between steps, and takes a third of the CPU time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike
from play import FIRST_PID, Floats, Moment, Pause, Played, Said, Shown, Timeline

from ddpmon.analysis import verdict
from ddpmon.analysis.events import Announcer
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.ledger import Judgement, Ledger
from ddpmon.analysis.slowness.engine import Engine
from ddpmon.analysis.steps.summary import summarise
from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.analysis.steps.window import Window
from ddpmon.messages import SYNC_COLLECTIVE, SYNC_GRADIENTS, Finding

WINDOW_STEPS, SHOWN_S = 600, 30.0
JUDGED_STEPS = 25
"""Steps between two judgements: signals are returned for 360 steps."""


def play_alone(
    own_ms: Floats, transfer_ms: ArrayLike, *, hosts: Sequence[str] = (), samples: ArrayLike = 64,
    tokens: ArrayLike = 0, pauses: Sequence[Pause] = (), sync_every: int = 1, **_: Any,
) -> Played:  # fmt: skip
    """Play a run. It takes the arguments of `play.play`, and ignores those that are not listed here."""
    timeline = Timeline.of(own_ms, transfer_ms, (), sync_every)
    step_ms = Timeline.of(own_ms, transfer_ms, pauses, sync_every).step_ms
    table = timeline.table(FIRST_PID, samples, tokens, SYNC_GRADIENTS if sync_every == 1 else SYNC_COLLECTIVE)
    count, ranks = table.shape
    world = split_waits(Rows.of_table(tuple(range(ranks)), table, {}))
    host_of = dict(enumerate(hosts or ["host0"] * ranks))
    engine, window, ledger, announcer = Engine(), Window(WINDOW_STEPS), Ledger(0), Announcer()
    before: list[Finding] = []
    shown: list[Finding] = []
    moments, events = [], []
    for end in range(JUDGED_STEPS, count + JUDGED_STEPS, JUDGED_STEPS):
        part = world.steps_between(max(1, end - JUDGED_STEPS), end)  # The first step is excluded.
        window.append(part)
        engine.append(part)
        whole, latest = window.as_world(), window.as_world(SHOWN_S)
        evidence = Evidence(slowdowns=engine.judge(whole, host_of), world_size=ranks, step=min(end, count))
        before = all_findings(latest, evidence, before, whole)
        seconds = float(timeline.end_us[min(end, count) - 1].max()) / 1e6
        ledger.enter_findings(before, Judgement(seconds, int(whole.step[0]), int(whole.step[-1])), over=end >= count)
        current = ledger.findings(seconds)
        for event in announcer.announce(shown, current, seconds):
            named = Shown.of(event.finding) if event.finding else None
            events.append(Said(min(end, count), event.severity, event.text, named))
        shown = current
        sentence = verdict.running_sentence(shown, summarise(latest)).text
        moments.append(Moment(min(end, count), seconds, "", sentence, tuple(map(Shown.of, shown))))
    report = {"verdict": moments[-1].verdict, "findings": [], "run": {"world_size": ranks}}
    return _Alone(moments, events, moments[-1], report, step_ms)


class _Alone(Played):
    """The results of the findings; the last moment is also used as the ended dashboard and the report."""

    @property
    def reported(self) -> tuple[Shown, ...]:
        return self.ended.findings
