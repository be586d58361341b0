"""Devices: what the machines do, by host; many hosts fold and keep what is wrong in sight."""

from functools import partial

import pytest

from ddpmon.messages import Environment, RankView, Sample
from ddpmon.tui import lines
from ddpmon.tui.widgets import gauges, machines
from ddpmon.tui.widgets.lanes import LaneGrid
from tests.fake_source import FakeSource
from tests.findings import finding
from tests.tui import golden, inspected, measured, snapshots
from tests.tui.driving import drive, seen, until

STATES = {
    "waiting": snapshots.waiting, "cores": measured.cpu, "slow": measured.slow, "many": measured.many,
    "plain": snapshots.four_on_cpu,
}  # fmt: skip
replace = snapshots.replace


def heading(text: str) -> str:
    return next(row for row in text.splitlines() if "what are the machines doing" in row)


def below(text: str) -> list[str]:
    """The list's lines, without the keys."""
    rows = text.splitlines()
    return rows[next(y for y, row in enumerate(rows) if "gpu%" in row.split() or "cpu%" in row.split()[:3]) + 1 : -1]


@golden.of_states({"waiting": [golden.NARROW], "cores": [golden.WIDE], "slow": golden.SIZES, "plain": [golden.NARROW]})
def test_devices(state, size):
    golden.check(f"devices-{state}", drive(STATES[state](), "6", size=size)[1], size)


def test_a_thousand_ranks_fold_and_keep_what_is_wrong_on_top():
    _, text = drive(measured.many(), "6")
    rows = below(text)
    assert "300" in rows[1]
    assert "dead" in rows[1]
    assert "813" in rows[3]
    assert "thermal" in rows[3]
    assert "77" in rows[5]
    assert "the worst per host" in heading(text)


def test_every_rank_can_be_reached_and_the_cursor_is_always_in_sight():
    def walk(app, _):
        listed = app.views["devices"].main

        def went(*moves):
            seen = set()
            for move in moves:
                move()
                seen.add(listed.chosen)
                assert sum(any("select" in role for _, role in row) for row in listed._rows) == 1
            return seen

        assert went(partial(app.screen.action_do, "first"), *[partial(listed.move, 1)] * 70) == set(range(64))
        assert went(partial(app.screen.action_do, "last"), *[partial(listed.page, -1)] * 8) >= {63, 13}
        went(*[partial(listed.move, 1)] * 20, listed.fold, partial(listed.move, -1), listed.fold)

    drive(measured.slow(), *"6f", walk)


def test_a_host_with_many_ranks_in_trouble_counts_them_and_shows_the_worst():
    calm = measured.slow()
    starved = finding("cpu_starved", "warn", "", list(range(16, 24)))
    _, text = drive(replace(calm, findings=[starved]), "6")
    rows = [row for row in below(text) if "starved" in row]
    assert len(rows) == 2
    assert "node02 ×8" in rows[0]
    assert "8: starved" in rows[0]


def test_sorting_groups_by_the_worst_rank_and_skips_what_nobody_measured():
    _, text = drive(measured.slow(), *"6sss")
    assert "hottest GPU first" in heading(text)
    assert "node01" in below(text)[0]
    texts = []
    _, around = drive(measured.cpu(), "6", seen(texts), "s", seen(texts), *"ssss")
    assert "highest cpu% first" in heading(texts[1])
    assert [row.split()[1] for row in below(texts[1])[1:5]] == ["3", "2", "1", "0"]
    assert around == texts[0]


def test_the_filter_holds_here_and_enter_inspects_the_rank_under_the_cursor():
    _, text = drive(measured.slow(), "6", "slash", *"gpumem>63", "enter")
    assert "of 64 ranks: gpumem>63" in heading(text)
    app, text = drive(measured.slow(), "6", "slash", *"rank:13", "enter", "j", "enter", "escape")
    assert app.current_mode == "devices"
    assert app.views["devices"].main.chosen == 13
    assert "no rank matches" in drive(measured.slow(), "6", "slash", *"nowhere", "enter")[1]


def test_missing_counters_are_explained_once():
    _, text = drive(measured.cpu(), "6")
    assert text.count("NVML") == 1
    assert "gpu%" not in text
    assert "no GPU: the ranks compute on the CPU" in drive(snapshots.four_on_cpu(), "6")[1]
    calm = snapshots.running(8, 8)
    unmeasured = replace(calm, ranks=[snapshots.without_gpu(rank) for rank in calm.ranks])
    assert "no GPU counters yet" in drive(unmeasured, "6")[1]
    assert machines.why_no_gpu(measured.slow()) == ""


def test_a_gpu_or_a_core_that_ranks_share_counts_once():
    shared = [
        RankView(
            rank, host="n0", device="cuda:0", sample=Sample(0, 50.0, gpu_percent=80.0, gpu_power_w=300.0),
            environment=Environment(device_name="H200", cores=16),
        )
        for rank in range(2)
    ]  # fmt: skip
    told = machines.facts(shared)
    assert "1 × H200" in told
    assert "0.3 kW" in told
    assert "ranks use 1.0 of 16 cores" in told


def test_narrow_screens_keep_the_gpu_and_drop_the_rest_in_order():
    ranks = measured.slow().ranks
    heads = [[column.column.head for column in gauges.fit_gauges(ranks, width)] for width in (12, 30, 60, 140)]
    assert heads[0] == ["gpu%"]
    assert heads[1][:2] == ["gpu%", "gpu mem"]
    assert "°C" in heads[2]
    assert "major/s" in heads[3]
    assert gauges.fit_gauges(ranks, 3) == []


@pytest.mark.parametrize("make", [measured.slow, measured.cpu, snapshots.running])
def test_columns_never_need_more_than_they_were_given(make):
    ranks = make().ranks
    for width in range(3, 160, 3):
        columns = gauges.fit_gauges(ranks, width)
        assert sum(len(column.heading) for column in columns) <= width
        for column in columns:
            assert {lines.line_width(column.cell(rank, "text")) for rank in ranks} == {len(column.heading)}


def test_inspect_says_what_a_rank_runs_on():
    _, text = drive(measured.slow(), "enter", size=(160, 50))
    assert "NVIDIA H100 80GB HBM3, torch 2.13.0, nccl, 124,439,808 parameters in DDP" in text
    assert "1 compute thread" in text
    assert "DataLoader" not in text


@pytest.mark.parametrize(("workers", "said"), [(0, "no DataLoader workers"), (1, "1 DataLoader worker"), (4, "4 Data")])
def test_inspect_says_what_a_ranks_data_is_loaded_with(workers, said):
    calm = measured.slow()
    ranks = [replace(rank, environment=replace(rank.environment, loader_workers=workers)) for rank in calm.ranks]
    _, text = drive(replace(calm, ranks=ranks), "enter", size=(160, 50))
    assert said in text


def test_of_several_troubles_of_a_machine_the_gravest_is_said_whatever_their_order():
    kinds = ["memory_growth", "cpu_starved", "gpu_memory", "gpu_throttled"]
    said = ["memory grows", "starved", "GPU nearly full", "throttled"]
    calm = snapshots.four_on_cpu()
    for most in range(1, 5):
        found = [finding(kind, "warn", "", [2]) for kind in kinds[:most]]
        for order in (found, found[::-1]):
            assert machines.troubles(replace(calm, findings=order))[2].words == said[most - 1]


@pytest.mark.parametrize(
    ("name", "size", "world"),
    [
        ("gpus", (120, 40), {"ranks": 8}),
        ("beside", (240, 24), {"ranks": 32}),
    ],
)
def test_every_gpu_and_core_through_time(name, size, world):
    golden.check(f"devices-lanes-{name}", at_work(size, **world), size)


def at_work(size, **world):
    source = inspected.at_work(**world)
    return drive(source, "6", until(lambda _: source.current.samples is not None), "j", "k", size=size)[1]


def test_as_many_cores_are_shown_as_there_is_room_for():
    source = inspected.at_work(4)
    source.cores = 128
    there = until(lambda _: source.current.samples is not None)
    texts = {height: drive(source, "6", there, "j", "k", size=(160, height))[1] for height in (28, 50)}
    assert "the 128 cores of node00, the last" in texts[50]
    assert "127 " in texts[50]
    assert "cores of node00" not in texts[28], "no room for all of them"
    ended = FakeSource(replace(source.current, state="done"))
    assert "─cores" not in drive(ended, "6", size=(160, 50))[1], "they are not recorded"


def test_cores_of_which_nobody_tells_take_no_room_and_do_not_come_and_go():
    source = inspected.at_work(4)
    source.cores = None
    there = until(lambda _: source.current.samples is not None)
    ticks = [lambda app, _: app.tick()] * 3
    assert "─the" not in drive(source, "6", there, *ticks, size=(160, 50))[1]
    assert source.requested.cores is None


def test_lanes_request_what_fits_and_w_widens_their_columns():
    source = inspected.at_work(4)
    there = until(lambda _: source.requested.samples is not None)
    drive(source, "6", there, size=(160, 50))
    view_request = source.requested.samples
    assert (view_request.quantities, view_request.per_column, view_request.ranks) == (
        ("gpu", "gpu_memory", "cpu"),
        1,
        ((0, 3),),
    )
    source = inspected.at_work(4)
    wider = until(lambda _: source.requested.samples is not None and source.requested.samples.per_column == 16)
    _, text = drive(source, "6", there, "w", wider, lambda app, _: app.tick(), size=(160, 50))
    assert "through time, the last 24 min" in text
    assert source.requested.cores.per_column == 16, "one key widens the lanes of cores too"
    source = inspected.at_work(4)
    drive(source, "6", there, "1", until(lambda _: source.requested.samples is None))


def test_a_lane_of_which_nothing_is_known_says_so():
    source = inspected.at_work(4)
    source.store.sample_bins._ranks.pop(1)
    _, text = drive(source, "6", until(lambda _: source.current.samples is not None), "j", "k", size=(120, 40))
    rows = [row.split() for row in text.splitlines()]
    assert ["1", "–", "1", "–"] in rows


def test_the_axis_of_lanes_ends_at_the_end_of_a_run_that_has_ended():
    grid = LaneGrid(60, 7)
    live, ended = ("".join(text for text, _ in grid.ages(1, 1, ended=ended)).split() for ended in (False, True))
    assert (live[-1], ended[-1]) == ("now", "end")
    assert live[:-1] == ended[:-1]


def test_lanes_of_a_run_whose_ranks_tell_of_no_device_any_more_say_so():
    source = inspected.at_work(4)
    texts = []

    def go_silent(app, _):
        shot = source.current
        bare = [RankView(rank.rank, rank.host, device=rank.device) for rank in shot.ranks]
        app.playback.switch_source(FakeSource(replace(shot, ranks=bare)))
        app.show()

    there = until(lambda _: source.current.samples is not None)
    drive(source, "6", there, "j", seen(texts), go_silent, seen(texts), size=(120, 40))
    assert "through time, the last" in texts[0]
    assert "through time, the last" not in texts[1]
