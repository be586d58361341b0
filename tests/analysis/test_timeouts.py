"""Test when a wait nears the timeout of its process group, from made-up waits with a known end."""

from math import inf

import pytest

from ddpmon.analysis.events import Announcer
from ddpmon.analysis.evidence import Evidence, Wait
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.kinds.hang import NEAR_TIMEOUT, NOT_ENFORCED
from ddpmon.analysis.kinds.kind import USED_UP_SHARE
from ddpmon.analysis.processes.hangs import Standstill
from tests.analysis.test_hangs import REDUCE, stack

TIMEOUT_S = 1800.0


def wait(waited_s, stacks, timeout_s=TIMEOUT_S, world_size=4, **more):
    standing = Standstill(waited_s, {one.rank: one for one in stacks}, world_size=world_size, **more)
    return Evidence(wait=Wait(waited_s, timeout_s, 1_000_000.0 + timeout_s - waited_s, standing))


def evaluating(waited_s, **more):
    others = [stack(rank, blocked=REDUCE) for rank in (1, 2, 3)]
    return wait(waited_s, [stack(0, "train.py:30 evaluate", "train.py:50 main", issued=99), *others], **more)


def named(evidence):
    (finding,) = all_findings(None, evidence)
    return finding


def test_who_is_waited_for_is_named_with_its_line_and_when_the_run_ends():
    finding = named(evaluating(960.0))
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("timeout_near", "warn", [0], 51)
    assert finding.text == "all wait for rank 0: the timeout (30 min) ends the run in 14 min"
    assert finding.brief == "timeout in 14 min"
    assert finding.advice.startswith("Look at what rank 0 does in train.py:30 evaluate (ddpmon stack).")
    assert "init_process_group(timeout=timedelta(...))" in finding.advice
    assert finding.evidence == {
        "timeout_s": 1800.0,
        "waited_s": 960,
        "ends_at": 1_000_840,
        "waiting": [1, 2, 3],
        "line": "train.py:30 evaluate",
    }
    assert not finding.explains
    assert finding.device is None


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (NEAR_TIMEOUT.enter - 0.01, None),
        (NEAR_TIMEOUT.enter, "warn"),
        (USED_UP_SHARE.enter - 0.01, "warn"),
        (USED_UP_SHARE.enter, "critical"),
        (1.01, "critical"),
        (NOT_ENFORCED.enter, None),
    ],
)
def test_from_half_of_the_timeout_it_is_told_and_from_nine_tenths_it_is_critical(share, severity):
    """No sentence about a wait that went on long after its timeout would be true."""
    found = all_findings(None, evaluating(share * TIMEOUT_S))
    assert [finding.severity for finding in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("timeout_s", "waited_s", "said"),
    [
        (1800.0, 1679.0, "the timeout (30 min) ends the run in 2 min"),
        (1800.0, 1700.0, "the timeout (30 min) ends the run in 100 s"),
        (1800.0, 1795.0, "the timeout (30 min) ends the run in seconds"),
        (1800.0, 1900.0, "the timeout (30 min) ends the run in seconds"),
        (90.0, 51.0, "the timeout (90 s) ends the run in 40 s"),
        (90.0, 54.0, "the timeout (90 s) ends the run in 40 s"),
        (150.0, 80.0, "the timeout (2.5 min) ends the run in 70 s"),
        (1800.0, 930.0, "the timeout (30 min) ends the run in 14 min"),
        (7200.0, 3700.0, "the timeout (120 min) ends the run in 58 min"),
    ],
)
def test_what_is_left_is_told_coarsely_so_that_the_sentence_stays_put(timeout_s, waited_s, said):
    finding = named(evaluating(waited_s, timeout_s=timeout_s))
    assert finding.text == f"all wait for rank 0: {said}"
    assert len(finding.text) <= 76


def test_ranks_of_whom_nothing_is_known_are_who_is_waited_for():
    finding = named(wait(1000.0, [stack(rank, blocked=REDUCE) for rank in (1, 2)]))
    assert finding.ranks == [0, 3]
    assert finding.text.startswith("all wait for ranks 0, 3: ")
    assert finding.advice.startswith("See where ranks 0, 3 are (ddpmon stack).")


def test_a_rank_that_ended_is_who_is_waited_for():
    finding = named(wait(1000.0, [stack(rank, blocked=REDUCE) for rank in (0, 1, 3)], gone=[2]))
    assert (finding.ranks, finding.evidence["gone"]) == ([2], [2])
    assert finding.advice == "Look at the last output of rank 2 in the run's logs."


def test_where_none_is_missing_the_network_is_to_be_looked_at():
    finding = named(wait(1000.0, [stack(rank, blocked=REDUCE) for rank in range(4)]))
    assert (finding.ranks, finding.evidence["waiting"]) == ([], [0, 1, 2, 3])
    assert finding.text == "all ranks wait for each other: the timeout (30 min) ends the run in 13 min"
    assert "network" in finding.advice


def test_a_hang_tells_who_and_where_and_this_until_when():
    evidence = evaluating(1000.0)
    both = Evidence(wait=evidence.wait, standstill=evidence.wait.standing)
    assert [(f.kind, f.ranks) for f in all_findings(None, both)] == [("hang", [0]), ("timeout_near", [0])]


def test_it_is_announcer_once_and_when_little_is_left_and_its_end_too():
    before, told, news = [], [], Announcer()
    for waited_s in (800.0, 960.0, 1200.0, 1700.0):
        now = all_findings(None, evaluating(waited_s), before)
        told += news.announce(before, now, waited_s)
        before = now
    told += news.announce(before, [], inf)
    assert [(event.severity, event.text) for event in told] == [
        ("warn", "all wait for rank 0: the timeout (30 min) ends the run in 14 min"),
        ("critical", "all wait for rank 0: the timeout (30 min) ends the run in 100 s"),
        ("info", "the wait that came near the timeout has ended"),
    ]
