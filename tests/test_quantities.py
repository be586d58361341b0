"""Every quantity is one row, and what is sampled gets to wherever people look for it."""

import re
from collections import deque

import msgspec
import pytest

from ddpmon.analysis.report import run_report
from ddpmon.export import openmetrics
from ddpmon.messages import (
    GPU,
    HOST,
    PHASES,
    QUANTITIES,
    SAMPLED,
    STAGE_TRAINING,
    STEP,
    Hello,
    RankView,
    Sample,
    decode_snapshot,
    encode,
)
from ddpmon.recording.merging import LAST_VALUE_FIELDS
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from ddpmon.store.view import snapshot
from ddpmon.tui import chart_choice, filters, lines, units
from ddpmon.tui.widgets import columns, gauges
from ddpmon.tui.widgets.inspection import inspection
from ddpmon.tui.widgets.peers import NAME

RUN = Run(
    id="20261120-141502-7f3a", name="mnist", argv=[], script="mnist.py", script_args=[], cwd="/", host="n0",
    boot_id="", created_at=0.0, world_size=2,
)  # fmt: skip
UNCHARTED = {"gpu_memory_total"}
"""It never changes."""
sampled = pytest.mark.parametrize("row", SAMPLED, ids=lambda row: row.name)
every = pytest.mark.parametrize("row", QUANTITIES.values(), ids=lambda row: row.name)


def value_of(row, rank=0):
    """Another one for each quantity and rank, which can be."""
    number = 1 + 2 * SAMPLED.index(row) + rank
    if row.unit.whole:
        return number << 30 if row.unit.screen < 1 else number
    return number / row.unit.screen


@pytest.fixture(scope="module")
def shown():
    """The snapshot of two ranks on two hosts that told one sample each, and charts of what they tell."""
    registry = Registry(RUN.id, 2, RUN.host)
    store = Store(RUN, registry, Clock(0, RUN.created_at))
    for rank in range(2):
        hello = Hello(1, RUN.id, rank, 0, 2, rank, f"n{rank}", 100 + rank, STAGE_TRAINING)
        sample = Sample(20_000_000, **{row.field: value_of(row, rank) for row in SAMPLED})
        process = RankProcess(rank + 1, 0, hello, stage=STAGE_TRAINING, trains_since_us=0, samples=deque([sample]))
        registry.add_recorded([process])
        store.add_samples(process, [sample])
    store.histories.end_seconds(final=True)
    shot = decode_snapshot(encode(snapshot(store, "e", 1, 21.0, 21.0)))
    return shot, store.histories


@sampled
def test_what_is_sampled_reaches_the_snapshot(row, shown):
    shot, _ = shown
    assert [row.get(rank) for rank in shot.ranks] == [value_of(row, rank) for rank in range(2)]
    assert row.get(RankView(0)) is None


@sampled
def test_what_is_sampled_can_be_charted(row, shown):
    shot, histories = shown
    if row.name in UNCHARTED:
        assert not row.chart
        return
    assert row.name in shot.quantities
    median = (value_of(row) + value_of(row, 1)) / 2  # each host's clock is its own, and both ranks are in the chart
    assert histories.view(row.name, None, None, 9).median == [pytest.approx(median)]
    assert chart_choice.quantity_named(row.name) is row


@sampled
def test_what_is_sampled_can_be_filtered_by(row, shown):
    shot, _ = shown
    wanted = filters.parse_filter(f"{row.filter_word}>{row.on_screen(shot.ranks[0])}")
    assert [wanted.matches_rank(rank) for rank in shot.ranks] == [False, True]


@sampled
def test_what_is_sampled_is_exported(row, shown):
    shot, _ = shown
    name = row.metric_name + "_total" * row.unit.rises
    told = [line for line in openmetrics.text(shot).splitlines() if line.startswith(name + "{")]
    assert [float(line.rpartition(" ")[2]) for line in told] == [
        pytest.approx(value_of(row, rank) * row.unit.scale) for rank in range(2)
    ]
    for rank, line in enumerate(told):
        assert (f'host="n{rank}"' if row.where == HOST else f'rank="{rank}"') in line
    ranks = run_report(shot, None, None)["ranks"]
    of_rank = ranks[0]["gpu"] if row.where == GPU else ranks[0]
    assert of_rank[(row.reported or row.field).removeprefix("gpu_")] == pytest.approx(value_of(row), abs=1e-4)


@sampled
def test_what_is_sampled_stands_on_ranks_devices_and_inspect(row, shown):
    shot, _ = shown
    assert row.name in {column.name for column in gauges.fit_gauges(shot.ranks, 400)}
    if row.name in UNCHARTED:
        return
    assert row.get in {column.value for column in columns.RANK_COLUMNS.values()}
    page = ["".join(text for text, _ in line) for line in inspection(shot, shot.ranks[0], 120)]
    assert any(
        line.startswith(f" {row.text} ") and units.value_formatter(row.unit)(value_of(row)) in line for line in page
    )


@sampled
def test_a_sample_with_an_impossible_value_is_refused(row):
    least = -300 if row.name == "gpu_temperature" else 0
    decode = msgspec.msgpack.Decoder(Sample).decode
    assert getattr(decode(encode(Sample(1, **{row.field: least}))), row.field) == least
    for value in (least - 1, float("nan"), 1e300):
        with pytest.raises(msgspec.ValidationError):
            decode(encode(Sample(1, **{row.field: value})))


def numbers_of(kind):
    """The fields of a struct that hold a number, or None."""
    optional = [field for field in msgspec.structs.fields(kind) if field.default is None]
    number = re.compile(r"(typing\.(Optional|Annotated)\[)*(int|float|bool)\b")
    return {field.name for field in optional if number.match(str(field.type))}


def test_no_number_is_without_a_row():
    assert numbers_of(Sample) - LAST_VALUE_FIELDS == {row.field for row in SAMPLED}
    assert numbers_of(RankView) | {"steps"} == {
        row.field for row in QUANTITIES.values() if row.where == STEP and "phases_ms" not in row.field
    }
    assert {name for name in QUANTITIES if QUANTITIES[name].field.startswith("phases_ms")} == set(PHASES)


def test_what_people_call_them_is_theirs_alone():
    rows = QUANTITIES.values()
    for names in (
        [row.filter_word for row in rows],
        [row.text for row in rows],
        [row.heading for row in rows],
        [(row.metric_name, row.metric_label) for row in rows],
        [row.chart for row in rows if row.chart],
    ):
        assert len(set(names)) == len(names)


@every
def test_a_row_fits_where_it_stands(row):
    assert row.worse in {"high", "low", ""}
    assert lines.line_width([(row.text, "")]) < NAME
    assert row.filter_word.isascii()
    assert row.filter_word.isalpha()
    assert row.sentence.endswith(".")
    for value in (None, 0.0, 0.5, 999.7, 99_999.4, 99_999.6, 1e15, float("nan"), float("inf")):
        assert len(units.value_formatter(row.unit)(value)) <= (6 if row.unit.screen == 1 else 7)
        assert "," not in units.cell_formatter(row.unit)(value)
