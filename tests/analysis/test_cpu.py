"""Ranks that could run and get no core."""

from dataclasses import replace

import pytest

from ddpmon.analysis.events import Announcer
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.messages import CpuProgram, CpuRivals
from tests.findings import judged
from tests.worlds import own_times, world_with


def waiting(rank, host, starved, cores=0, threads=0, affinity=frozenset()):
    """The conditions of a rank that got no core for these shares of each second."""
    return Conditions(rank, host, starved=starved, cores=cores, compute_threads=threads, affinity=affinity)


def found_in(shares, before=(), *, cores=2, threads=1, hosts=None, seconds=10):
    told = [
        waiting(rank, (hosts or ["n0"] * len(shares))[rank], [share] * seconds, cores, threads)
        for rank, share in enumerate(shares)
    ]
    return judged(None, Evidence(world_size=len(shares), conditions=told), before)


def test_more_busy_ranks_than_cores_are_said_with_both_numbers():
    (finding,) = found_in([0.4, 0.38, 0.42, 0.4])
    assert (finding.kind, finding.severity, finding.ranks) == ("cpu_starved", "warn", [0, 1, 2, 3])
    assert finding.text == "4 ranks on 2 cores: each is starved 40% of the time"
    assert finding.evidence["starved_share"] == pytest.approx(0.4)
    assert "at most 2 ranks" in finding.advice
    assert finding.cost_ms is None


def test_too_many_threads_are_named_with_the_number_that_fits():
    (finding,) = found_in([0.3, 0.3], cores=8, threads=8)
    assert finding.text.startswith("2 ranks of 8 threads on 8 cores: ")
    assert "OMP_NUM_THREADS=4" in finding.advice


def test_cores_that_others_take_are_not_blamed_on_the_ranks():
    (finding,) = found_in([0.02, 0.5, 0.01], cores=16)
    assert finding.ranks == [1]
    assert finding.text == "rank 1 is starved 50% of the time though there are 16 cores"
    assert "other programs" in finding.advice


def test_one_busy_second_is_no_want_of_cores():
    for busy, kinds in ([1], []), ([1, 1], ["cpu_starved"]):
        starved = [0.0] * (10 - len(busy)) + busy
        found = judged(None, Evidence(world_size=2, conditions=[waiting(rank, "n0", starved, 2, 1) for rank in (0, 1)]))
        assert [finding.kind for finding in found] == kinds


def test_a_little_is_worth_a_note_and_less_is_silence():
    assert [finding.severity for finding in found_in([0.08, 0.08])] == ["info"]
    assert found_in([0.03, 0.04]) == []
    assert found_in([0.9, 0.9], seconds=4) == []
    assert found_in([]) == []


def test_it_does_not_flap():
    before = found_in([0.06, 0.06])
    assert before
    assert found_in([0.04, 0.04], before)
    assert not found_in([0.02, 0.02], before)


def test_each_host_has_its_own():
    found = found_in([0.1, 0.1, 0.5, 0.5], hosts=["a", "a", "b", "b"], cores=1)
    assert [(finding.evidence["host"], finding.ranks) for finding in found] == [("b", [2, 3]), ("a", [0, 1])]


def test_while_one_of_them_has_just_begun_it_is_not_said_how_many_share_the_cores():
    begun = [waiting(rank, "n0", [0.4] * (10 if rank < 3 else 2), 2, 1) for rank in range(4)]
    assert judged(None, Evidence(world_size=4, conditions=begun)) == []
    (before,) = found_in([0.4] * 4)
    (still,) = judged(None, Evidence(world_size=4, conditions=begun), [before])
    assert still.text.startswith("4 ranks on 2 cores")


@pytest.mark.parametrize(
    ("late_ms", "cores", "kinds"),
    [
        (4.0, 2, ["cpu_starved"]),
        (4.0, 8, ["straggler", "cpu_starved"]),  # cores enough: others take them
        (25.0, 2, ["straggler", "cpu_starved"]),  # more than it waits for a core
    ],
)
def test_where_ranks_outnumber_cores_who_is_late_by_less_than_it_waits_for_one_is_nobodys_matter(late_ms, cores, kinds):
    own = own_times(200, 4, noise=0.03)
    own[100:, 3, 1] += late_ms
    cpu = [waiting(rank, "n0", [0.4] * 10, cores, 1) for rank in range(4)]
    found = judged(world_with(own), Evidence(world_size=4, conditions=cpu))
    assert [one.kind for one in found if one.severity != "info"] == kinds


def test_a_rank_with_fewer_cores_than_its_peers_is_named_also_where_ranks_outnumber_cores():
    own = own_times(200, 4, noise=0.03)
    own[:, 3, 1] += 4.0
    cpu = [waiting(rank, "n0", [0.4] * 10, 2, 2, frozenset({1} if rank == 3 else {0, 1})) for rank in range(4)]
    found = judged(world_with(own), Evidence(world_size=4, conditions=cpu))
    assert [one.kind for one in found if one.severity != "info"] == ["straggler", "cpu_starved"]
    assert "on core 1 alone" in found[0].text


def test_who_waits_for_a_core_does_so_in_its_own_time_for_a_share_of_the_whole_step():
    own = own_times(200, 4, noise=0.03)
    own[100:, 3, 1] += 12.0
    cpu = [waiting(rank, "n0", [0.2] * 10, 2, 1) for rank in range(4)]
    for transfer_ms, kinds in ((1.0, {"straggler", "cpu_starved"}), (40.0, {"cpu_starved"})):
        found = judged(world_with(own, transfer=transfer_ms), Evidence(world_size=4, conditions=cpu))
        assert kinds == {one.kind for one in found if one.severity == "warn"} - {"communication_bound"}


def test_it_stays_as_it_was_while_ranks_leave_and_get_each_others_cores():
    before = found_in([0.4] * 4)
    assert found_in([0.0, 0.4], before) == before
    assert found_in([], before) == before
    assert found_in([0.0] * 4, before) == []


@pytest.mark.parametrize(("share", "kinds"), [(0.4, ["cpu_starved"]), (0.0, ["straggler", "cpu_starved"])])
def test_who_is_late_once_the_others_have_left_is_named_if_it_waits_for_no_core_any_more(share, kinds):
    own = own_times(200, 2, noise=0.03)
    own[100:, 1, 1] += 4.0
    cpu = [replace(waiting(rank, "n0", [share] * 10, 2, 1), starved_share=share) for rank in range(2)]
    found = judged(world_with(own), Evidence(world_size=4, conditions=cpu), found_in([0.4] * 4))
    assert [one.kind for one in found if one.severity != "info"] == kinds


def test_a_rank_that_was_named_before_cores_ran_short_is_not_said_to_keep_up_again():
    own = own_times(240, 4, noise=0.03)
    own[100:, 3, 1] += 4.0
    world, found, news, events = world_with(own), [], Announcer(), []
    for seconds, end, share in ((0.0, 200, 0.0), (40.0, 210, 0.4), (80.0, 220, 0.4), (120.0, 230, 0.4)):
        cpu = [waiting(rank, "n0", [share] * 10, 2, 1) for rank in range(4)]
        before, found = found, judged(world.steps_between(0, end), Evidence(world_size=4, conditions=cpu), found)
        events += [event.text for event in news.announce(before, found, seconds)]
    assert [text.split(":")[0] for text in events] == ["rank 3 is slow", "4 ranks on 2 cores"]


def test_ranks_that_a_script_has_bound_to_few_cores_are_told_which():
    def found(affinities, starved=0.5):
        told = [waiting(rank, "n0", [starved] * 10, 4, 1, frozenset(bound)) for rank, bound in enumerate(affinities)]
        return judged(None, Evidence(world_size=2, conditions=told))

    (finding,) = found([{0}, {0}])
    assert finding.text == "2 ranks may run on core 0 alone, of 4: each is starved 50% of the time"
    assert "os.sched_setaffinity(0, range(4))" in finding.advice
    assert (finding.evidence["cores"], finding.evidence["bound_to"]) == (1, [0])
    assert "though there are 4 cores" in found([{0, 1}, {2, 3}])[0].text, "together they have all"
    assert found([{0}, {1}], starved=0.0) == [], "each has a core of its own"


def among(rivals, *, cores=8, starved=0.4):
    told = [replace(waiting(rank, "n0", [starved] * 10, cores, 1), cpu_rivals=rivals) for rank in range(2)]
    (finding,) = judged(None, Evidence(world_size=2, conditions=told), ())
    return finding


def test_programs_that_take_the_cores_are_named_where_they_account_for_it():
    finding = among(CpuRivals([CpuProgram(4711, "python eval.py", 0.9), CpuProgram(12, "tar", 0.2)]))
    assert finding.text == "both ranks are starved 40% of the time beside python eval.py"
    assert finding.advice == (
        "Process 4711 (python eval.py, 0.9 cores) runs on the same cores. Together, other programs use at least 1.1 of"
        " 8 cores: end or move what is not needed there."
    )
    many = among(CpuRivals([CpuProgram(pid, "python", cores) for pid, cores in ((7, 0.6), (8, 0.5), (9, 0.2))])).advice
    assert many.startswith("Process 7 (python, 0.6 cores) and process 8 (python, 0.5 cores) run on")
    small = among(CpuRivals([CpuProgram(pid, "python", 0.2) for pid in (7, 8, 9)])).advice
    assert "process 8" not in small
    assert "0.6 of 8 cores" in small
    assert finding.evidence["programs"][1] == "process 12 (tar, 0.2 cores)"
    assert "process 12" not in among(CpuRivals([CpuProgram(12, "tar", 0.1)])).advice


def test_a_quota_that_is_used_up_is_named():
    finding = among(CpuRivals(quota_cores=1.5, throttled_share=0.35))
    assert finding.text == "both ranks are starved 40% of the time under a CPU quota of 1.5 cores"
    assert "used up 35% of the time" in finding.advice
    assert finding.evidence["quota_cores"] == 1.5
    assert "quota" not in among(CpuRivals(quota_cores=1.5, throttled_share=0.02)).text
