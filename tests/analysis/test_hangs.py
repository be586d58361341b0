"""Test which rank did not come, from made-up stacks with a known answer."""

from dataclasses import replace

import msgspec
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.gpus import GpuSigns
from ddpmon.analysis.processes.hangs import Held, Standstill
from ddpmon.analysis.processes.loaders import Worker
from ddpmon.messages import Collective, Stack

REDUCE = "DDP's gradient all-reduce"


def stack(rank, *frames, blocked=None, issued=100, step=50, sequence=100, group="0"):
    frames = list(frames) or ["torch/autograd/graph.py:979 _engine_run_backward", "train.py:40 main"]
    own = next((i for i, frame in enumerate(frames) if not frame.startswith("torch/")), None)
    collective = Collective(blocked, group, sequence) if blocked else None
    return Stack(rank, 1, 20_000_000, step, 5_000_000, 2, frames, own, collective, bool(blocked), {group: issued})


def named(stacks, idle=12.0, **more):
    told = Standstill(
        idle,
        {one.rank: one for one in stacks},
        world_size=len({one.rank for one in stacks}.union(*(more.get(of, ()) for of in ("gone", "silent", "unheard")))),
        **more,
    )
    (finding,) = all_findings(None, Evidence(standstill=told))
    return finding


def test_the_rank_that_is_not_in_the_collective_is_named_with_its_line():
    late = stack(2, "train.py:12 shuffle", "train.py:38 main", issued=99)
    finding = named([stack(0, blocked=REDUCE), stack(1, blocked=REDUCE), late, stack(3, blocked=REDUCE)])
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("hang", "critical", [2], 51)
    assert finding.text == f"rank 2 does not reach {REDUCE}: in train.py:12 shuffle"
    assert len(finding.text) <= 76
    assert finding.evidence["waiting"] == [0, 1, 3]
    assert (finding.evidence["collective"], finding.evidence["sequence"]) == (REDUCE, 100)
    assert [(group["ranks"], group["line"]) for group in finding.evidence["stacks"]] == [
        ([2], "train.py:12 shuffle"),
        ([0, 1, 3], "train.py:40 main"),
    ]


def test_ranks_in_different_collectives_are_told_apart_by_their_count():
    """Rank 1 took another branch: it waits too, but in a call before."""
    stacks = [stack(rank, blocked="all_reduce", issued=9) for rank in (0, 2)] + [stack(1, blocked="barrier", issued=8)]
    assert named(stacks).ranks == [1]


def test_messages_between_ranks_make_the_count_say_nothing():
    stacks = [stack(0, blocked="recv", issued=9), stack(1, blocked="recv", issued=4)]
    finding = named(stacks)
    assert finding.ranks == []
    assert finding.text.startswith("all ranks wait in recv and none is missing")


def test_ranks_that_never_meet_are_told_that_a_restart_may_be_why():
    finding = named([stack(rank, blocked="init_process_group", issued=0) for rank in range(2)])
    assert finding.text.startswith("all ranks wait in init_process_group and none is missing")
    assert "ranks of the previous attempt" in finding.advice


def test_work_that_nobody_waits_for_is_no_alarm():
    finding = named([stack(rank, "train.py:80 evaluate", "train.py:99 main") for rank in range(3)])
    assert (finding.severity, finding.ranks) == ("warn", [])
    assert finding.text == "no rank finished a step for 12 s, and none waits for another: in train.py:80 evaluate"


@pytest.mark.parametrize(
    ("inner", "advice"),
    [
        ("torch/utils/file_baton.py:50 FileBaton.wait", "builds the same extension"),
        ("filelock/_api.py:330 BaseFileLock.acquire", "waits for a lock file"),
        ("filelock/_core/_acquire.py:177 acquire", "waits for a lock file"),
        ("json/decoder.py:355 JSONDecoder.raw_decode", "Look at train.py:21 build"),
    ],
)
def test_the_place_in_a_library_that_all_share_is_told_with_the_line_that_called_it(inner, advice):
    stacks = [Stack(rank, 1, 9, 0, 1, 4, [inner, "train.py:21 build"], own=1) for rank in range(2)]
    finding = named(stacks)
    place = inner.rpartition("/")[2].partition(" ")[0]
    assert finding.text == f"no step for 12 s: all ranks are at {place}, called in train.py:21 build"
    assert advice in finding.advice


def test_a_rank_that_waits_for_a_worker_of_its_loader_is_named_with_the_worker():
    fetching = msgspec.structs.replace(stack(1, "torch/utils/data/dataloader.py:9 get", "train.py:9 main"), worker=77)
    worker = Worker(77, 0.0, "futex_do_wait", "train.py:3 Images.__getitem__")
    finding = named([stack(0, blocked=REDUCE), fetching, stack(2, blocked=REDUCE)], workers={1: worker})
    assert finding.ranks == [1]
    lead = "rank 1 waits for DataLoader worker 77: in train.py:3 Images.__getitem__, without using a core"
    assert finding.text == f"{lead}; ranks 0, 2 wait in {REDUCE}"
    assert finding.evidence["workers"] == {
        "1": {"pid": 77, "cores": 0.0, "kernel": "futex_do_wait", "line": "train.py:3 Images.__getitem__"}
    }
    finding = named([stack(0, blocked=REDUCE), fetching])
    lead = "rank 1 waits for DataLoader worker 77: the worker does not send the next batch; rank 0"
    assert finding.text.startswith(lead)
    all_of_them = [msgspec.structs.replace(fetching, rank=rank, worker=70 + rank) for rank in range(2)]
    finding = named(all_of_them, workers={0: Worker(70, 0.0, "", "train.py:3 get")})
    assert finding.text == (
        "both ranks wait for DataLoader workers (rank 0: 70): in train.py:3 get, without using a core"
    )


def test_a_rank_that_ended_is_whom_the_others_wait_for_and_told_with_its_last_step_if_its_script_came_to_its_end():
    finding = named([stack(0, blocked=REDUCE), stack(1, blocked=REDUCE)], gone=[2])
    assert (finding.ranks, finding.text) == ([2], f"rank 2 ended; ranks 0-1 wait in {REDUCE}")
    finding = named([stack(0, blocked=REDUCE), stack(1, blocked=REDUCE)], gone=[2], left={2: 240})
    assert finding.ranks == [2]
    assert finding.text == f"rank 2 ended its script after step 240; ranks 0-1 wait in {REDUCE}"
    assert finding.advice.startswith("Ranks 0-1 went on, in train.py:40 main. All ranks must run the same number")
    finding = named([stack(0, blocked=REDUCE)], gone=[1, 2], left={2: 240})
    assert finding.text == f"ranks 1-2 ended; rank 0 waits in {REDUCE}", "one of them was killed"


def test_a_gpu_that_executes_nothing_is_named_where_all_ranks_have_issued_the_same():
    def at(*device):
        return [
            msgspec.structs.replace(stack(rank, blocked=REDUCE), device=list(one)) for rank, one in enumerate(device)
        ]

    finding = named(at((50, 2), (50, 2), (49, 3)))
    assert (finding.ranks, finding.evidence["waiting"]) == ([2], [0, 1])
    assert finding.text.startswith(f"the GPU of rank 2 makes no progress: all ranks have issued {REDUCE}")
    assert "Xid" in finding.advice
    for device in ([(50, 2)] * 3, [(50, 2), (49, 3), (49, 3)], [(50, 2), (), (49, 3)]):
        assert named(at(*device)).text.startswith(f"all ranks wait in {REDUCE} and none is missing"), device


GPUS = {rank: GpuSigns(f"cuda:{rank}", (), 100.0, 240.0) for rank in range(4)}


def wait_together(changes, ranks=4, **more):
    """All ranks wait in one collective; some GPUs differ."""
    gpus = {rank: replace(GPUS[rank], **changes.get(rank, {})) for rank in range(ranks)}
    return named([stack(rank, blocked=REDUCE) for rank in range(ranks)], gpus=gpus, **more)


def test_a_gpu_with_a_critical_error_is_named_with_it_where_no_rank_is_missing():
    broken = {"errors": ("Xid 13", "Xid 79"), "percent": None, "power_w": 68.0}
    finding = wait_together({3: broken})
    assert (finding.ranks, finding.severity) == ([3], "critical")
    assert finding.text == f"GPU 3 (rank 3): Xid 79, 68 W (others 240 W); ranks 0-2 wait in {REDUCE}"
    assert "dmesg" in finding.advice
    assert finding.evidence["gpus"]["3"]["errors"] == ["Xid 13", "Xid 79"]
    stacks = [stack(0, blocked=REDUCE), stack(1, "train.py:9 copy", issued=99)]
    gpus = {0: GPUS[0], 1: replace(GPUS[1], errors=("GPU is lost",), percent=None, power_w=None)}
    assert named(stacks, gpus=gpus).text == f"GPU 1 (rank 1): GPU is lost; rank 0 waits in {REDUCE}"


def test_a_gpu_that_alone_does_nothing_is_named_with_its_power():
    finding = wait_together({1: {"percent": 0.0, "power_w": 70.0}})
    assert finding.ranks == [1]
    assert finding.text == (
        f"the GPU of rank 1 makes no progress: 0% busy, 70 W (others 240 W); all have issued {REDUCE}"
    )
    alike = msgspec.structs.replace(stack(2, blocked=REDUCE), device=[49, 3])
    stacks = [msgspec.structs.replace(stack(rank, blocked=REDUCE), device=[50, 2]) for rank in range(2)]
    assert "100% busy, 240 W (others 240 W); all have issued" in named([*stacks, alike], gpus=GPUS).text


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {rank: {"percent": 0.0, "power_w": 70.0} for rank in range(4)},
        {0: {"percent": 0.0}, 1: {"percent": 40.0}},
        {rank: {"percent": None, "power_w": None} for rank in range(4)},
        {2: {"errors": ("Xid 43", "Xid 31")}},  # of the program
    ],
)
def test_gpus_that_are_alike_or_well_are_not_blamed(changes):
    assert wait_together(changes).text.startswith(f"all ranks wait in {REDUCE} and none is missing")


def test_a_rank_whose_own_thread_is_not_heard_either_is_named_with_its_line_if_it_answered_a_signal():
    finding = named([stack(0, blocked=REDUCE)], silent=[1])
    assert (finding.ranks, finding.severity) == ([1], "critical")
    assert finding.text == f"rank 1 is silent though its process is alive; rank 0 waits in {REDUCE}"
    assert "GIL" in finding.advice
    finding = named([stack(0, blocked=REDUCE), stack(1, "train.py:40 spin")], silent=[1])
    assert finding.text.startswith("rank 1 is silent though its process is alive: in train.py:40 spin")
    assert finding.evidence["waiting"] == [0]
    assert [group["ranks"] for group in finding.evidence["stacks"]] == [[0], [1]]
    over = named([stack(0, blocked=REDUCE)], silent=[1], over=True)
    assert over.text == f"rank 1 fell silent; rank 0 waits in {REDUCE}", "nothing is said of what lives"


@pytest.mark.parametrize(
    ("unheard", "who", "advice"),
    [
        ({2: "host1"}, "host1 sends nothing (rank 2)", "whether host1 is up"),
        ({2: "host1", 3: "host1"}, "host1 sends nothing (ranks 2-3)", "its link"),
        ({2: "host1", 3: "host2"}, "host1 and 1 other host send nothing (ranks 2-3)", "their link"),
        ({2: "", 3: ""}, "ranks 2-3 send nothing to this machine", "where they run"),
        ({2: ""}, "rank 2 sends nothing to this machine", "where it runs"),
    ],
)
def test_of_ranks_behind_a_cut_link_no_more_is_said_than_that_they_are_not_heard(unheard, who, advice):
    """The cut ended a collective on rank 0 and not on rank 1, whose count lags for that."""
    finding = named([stack(0, blocked=REDUCE), stack(1, blocked=REDUCE, issued=99)], unheard=unheard)
    assert finding.text == f"{who}; ranks 0-1 wait in {REDUCE}"
    assert advice in finding.advice
    assert (finding.ranks, finding.severity) == (sorted(unheard), "critical")
    assert finding.evidence["unheard"] == sorted(unheard)


def test_a_rank_that_does_not_wait_is_named_though_others_are_not_heard():
    late = stack(1, "train.py:12 shuffle")
    finding = named([stack(0, blocked=REDUCE), late], unheard={2: "host1"})
    assert finding.text == f"rank 1 does not reach {REDUCE}: in train.py:12 shuffle"


@pytest.mark.parametrize(
    ("held", "text", "advice"),
    [
        (Held(77, "stopped"), "rank 1 is stopped (SIGSTOP or Ctrl-Z)", "kill -CONT 77"),
        (Held(77, "traced"), "a debugger holds rank 1", "77"),
        (Held(77, "kernel", "nfs_wait"), "rank 1 hangs in the kernel (nfs_wait), where no signal reaches", "dmesg"),
        (Held(77, "kernel"), "rank 1 hangs in the kernel, where no signal reaches", "dmesg"),
    ],
)
def test_a_process_that_the_kernel_does_not_let_run_is_told_as_such(held, text, advice):
    finding = named([stack(0, blocked=REDUCE)], silent=[1], held={1: held})
    assert finding.text == f"{text}; rank 0 waits in {REDUCE}"
    assert advice in finding.advice
    assert (finding.ranks, finding.severity) == ([1], "critical")
    assert finding.evidence["held"] == {"1": {"how": held.how, "where": held.where}}


def test_several_that_are_stopped_are_named_together_with_their_pids():
    finding = named([stack(2, blocked=REDUCE)], silent=[0, 1], held={0: Held(7, "stopped"), 1: Held(8, "stopped")})
    assert finding.text.startswith("ranks 0-1 are stopped")
    assert finding.advice == "Resume them: kill -CONT 7 8"


def test_without_stacks_nothing_is_said():
    assert all_findings(None, Evidence(standstill=Standstill(12.0, {}, gone=[1]))) == []
