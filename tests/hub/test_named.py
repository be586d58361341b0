"""Time that scripts name: from the wire into the recording, the snapshot, the finding and the report."""

import msgspec
import pytest

from ddpmon.export import report
from tests.worlds import own_times, records

NAMED = (
    {"augment": 1500, "load": 2000},
    {"augment": 16_500, "load": 17_000},
    {},
)


def test_named_times_reach_the_screen_the_finding_and_the_report(stage):
    own = own_times(80, 3, noise=0.02)
    own[:, 1, 0] += 15
    told = records(own, first=1)
    for rank in stage.start(3):
        rank.train([msgspec.structs.replace(step, named_us=NAMED[rank.rank]) for step in told[rank.rank]])
        rank.leave()
    shot = stage.viewer().until(lambda s: s.findings and s.window, "the straggler")
    assert [view.named_ms for view in shot.ranks] == [
        pytest.approx({name: names.get(name, 0) / 1000 for name in ("augment", "load")}) for names in NAMED
    ]
    (finding,) = shot.findings
    assert (finding.ranks, finding.evidence["named"]) == ([1], "augment")
    stage.finish()
    made = report.build(stage.run)
    assert made["ranks"][1]["named_ms"] == {"augment": 16.5, "load": 17.0}
    assert made["ranks"][2]["named_ms"] == {"augment": 0.0, "load": 0.0}
    assert made["findings"][0]["evidence"]["named"] == "augment"
    said = " ".join(report.text(made).split())
    assert "Look in augment: rank 1 spends 16.5 ms a step there, and its peers spend 0.8 ms." in said
