"""Reports of made-up snapshots that hold whatever a snapshot can hold."""

import math

from hypothesis import strategies as st

from ddpmon.analysis.report import run_report
from ddpmon.messages import Exit, Finding, RankView, RunView, Snapshot

WORDS = st.text(st.sampled_from("ab |`*_<@日本\n\\\x1b[2J-é"), max_size=120) | st.sampled_from(
    ["日本語 " * 40, "x" * 500]
)
QUANTITIES = st.none() | st.floats(0, 1e12) | st.sampled_from([math.nan, math.inf, 0.0, 999.96, 99_999.6])
LOSSES = st.none() | st.floats(allow_nan=True, allow_infinity=True)
COUNTS = st.integers(0, 1 << 48)


def _rank(number, draw):
    return RankView(
        number,
        pid=draw(st.integers(0, 9)),
        own_ms=draw(QUANTITIES),
        phases_ms=draw(st.none() | st.tuples(*[st.floats(0, 1e9)] * 7)),
        critical_share=draw(st.none() | st.floats(0, 1)),
        loss=draw(LOSSES),
        exit=draw(st.none() | st.builds(Exit, code=st.none() | st.integers(0, 255), error=st.none() | WORDS)),
    )


@st.composite
def snapshots(draw):
    """Any snapshot, of 1,024 ranks too."""
    kinds = draw(st.lists(st.builds(lambda n: _rank(n, draw), st.just(0)), min_size=1, max_size=4))
    size = draw(st.sampled_from([len(kinds), 31, 33, 1024]))
    ranks = [
        RankView(**{f: getattr(kinds[n % len(kinds)], f) for f in RankView.__struct_fields__} | {"rank": n})
        for n in range(size)
    ]
    finding = st.builds(
        Finding,
        kind=st.sampled_from(["straggler", "rank_failed"]) | WORDS,
        severity=st.sampled_from(["info", "warn", "critical"]),
        text=WORDS,
        ranks=st.lists(st.integers(0, 2000), max_size=3),
        since_step=st.none() | COUNTS,
        cost_ms=st.none() | st.floats(0, 1e9),
        advice=st.none() | WORDS,
    )
    return Snapshot(
        "e",
        1,
        draw(st.floats(0, 1e10)),
        RunView(
            "20261120-141502-7f3a", draw(st.sampled_from(["m", "n" * 64])), size, exit_code=draw(st.none() | st.just(1))
        ),
        draw(st.sampled_from(["running", "done", "failed", "stalled"])),
        draw(WORDS),
        step=draw(COUNTS),
        samples_per_s=draw(QUANTITIES),
        records_lost=draw(COUNTS),
        ranks=ranks,
        findings=draw(st.lists(finding, max_size=12)),
    )


@st.composite
def reports(draw):
    """The report of any snapshot, with numbers of steps or without."""
    made = run_report(draw(snapshots()), None, None)
    if draw(st.booleans()):
        made["steps"]["window"] = [draw(COUNTS), draw(COUNTS)]
        made["steps"]["step_ms"] = {name: draw(st.none() | st.floats(0, 1e12)) for name in made["steps"]["step_ms"]}
        made["efficiency"] = {name: draw(st.none() | st.floats(0, 1)) for name in made["efficiency"]}
    return made
