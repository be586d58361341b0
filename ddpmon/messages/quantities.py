"""Table of all quantities that are measured of a rank. Code that uses a quantity selects its row by name.

A row says what a quantity is, where it is measured, whether high or low values are worse, how it is summarised and what
people call it. Screens, filters, charts, recordings, reports and exports read the row; they decide only on the order
and the width of their columns.

To add a quantity of a rank's process, GPU or host, add a field with its row to `Sample` here, and fill it in the
probe's `devices.py` (`gpu_counters.py`, `host_counters.py`). All users of this table then show it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from ddpmon import numbers
from ddpmon.messages.vocabulary import OWN_PHASES, REASONS_JOIN, Amount, Celsius, Micros
from ddpmon.numbers import GIGA

STEP, PROCESS, GPU, HOST = "step", "process", "gpu", "host"
"""Places where a quantity is measured. A STEP quantity is measured in each step. The others are measured once a second:
of the rank's process, of its GPU, or of its host. A HOST quantity has the same value for all ranks of the host."""
LOGGED_PLACE = "log"
"""Place (`Quantity.where`) of values that the script passes to `ddpmon.log`."""


class Unit(msgspec.Struct, frozen=True):
    """Unit of a quantity, with its name and scale on screens and in OpenMetrics."""

    words: str
    """Words that follow the meaning of a quantity, such as "bytes a second", or "" if none are needed."""
    screen: float = 1.0
    """Factor from a value to the number that screens show and filters compare."""
    metric: str = ""
    """Suffix of the OpenMetrics names of quantities with this unit."""
    scale: float = 1.0
    """Factor from a value to the number in OpenMetrics, which allows base units only."""
    base: str = ""
    """Name of the unit in OpenMetrics, or "" if OpenMetrics has no name for it."""
    whole: bool = False
    """True if values are whole numbers."""
    rises: bool = False
    """True if values never fall."""


MS = Unit("ms", metric="_seconds", scale=1e-3, base="seconds")
SHARE = Unit("0 to 1", screen=100, metric="_ratio", base="ratio")
EXCESS = Unit("as a fraction", screen=100, metric="_ratio", base="ratio")
PERCENT = Unit("percent", metric="_ratio", scale=0.01, base="ratio")
BYTES = Unit("bytes", screen=numbers.KILO**-3, metric="_bytes", base="bytes", whole=True)
WATTS = Unit("W", metric="_watts", base="watts")
CELSIUS = Unit("°C", metric="_celsius", base="celsius")
MEGAHERTZ = Unit("MHz", metric="_hertz", scale=1e6, base="hertz")
PER_S = Unit("a second", metric="_per_second")
BYTES_PER_S = Unit("bytes a second", metric="_bytes_per_second")
COUNT = Unit("", whole=True)
TOTAL = Unit("", whole=True, rises=True)
NUMBER = Unit("")


class Measured(Protocol):
    """Interface of an object that holds the measurements of a rank, such as `RankView`."""

    @property
    def sample(self) -> Sample | None:
        """Return the latest sample of the rank."""

    @property
    def named_ms(self) -> dict[str, float]:
        """Return the time inside each `ddpmon.phase` of the script, in milliseconds."""

    def phase_ms(self, name: str) -> float | None:
        """Return the time in a phase of the rank's step, in milliseconds."""


class Quantity(msgspec.Struct, frozen=True, dict=True):
    """A quantity that is measured of a rank: one row of the table."""

    name: str
    """Name by which code selects the quantity, and viewers request its history."""
    unit: Unit
    meaning: str
    """Meaning for the docs and for HELP in OpenMetrics, without the unit and the full stop."""
    field: str = ""
    """Field of `RankView` that holds the value; "phases_ms.data" and "named_ms.augment" are entries of such a field. In
    the rows of `Sample`, code sets it to the name of the sample's field."""
    where: str = STEP
    """One of STEP, PROCESS, GPU, HOST."""
    worse: str = "high"
    """Values at which a rank needs attention: "high" values, "low" values, or "" if neither are known to be bad."""
    label: str = ""
    """Name of the quantity in lists on the screen, with the unit. If it is "", `name` is used."""
    head: str = ""
    """Heading of the quantity's table column. If it is "", `label` is used."""
    word: str = ""
    """Name in a filter, in lower case. If it is "", `name` is used."""
    chart: str = ""
    """Title of the quantity's chart, or "" if the quantity has no chart."""
    metric: str = ""
    """Name in OpenMetrics, without the unit. If it is "", `name` is used."""
    metric_label: tuple[str, str] | None = None
    """Label and value that distinguish quantities which share a metric."""
    reported: str = ""
    """Name in reports. If it is "", `field` is used."""
    mean: bool = False
    """True if `RankView.sample` has the quantity's mean over the last seconds of training instead of its latest
    value."""
    largest: bool = False
    """True if a merged sample has the largest value of its samples instead of their mean."""

    @cached_property
    def get(self) -> Callable[[Measured], float | None]:
        """Return a function that reads this quantity of a rank. The function returns None if the quantity is not
        measured.
        """
        field, _, entry = self.field.partition(".")
        if field == "phases_ms":
            return lambda rank: rank.phase_ms(entry)
        if field == "named_ms":
            return lambda rank: rank.named_ms.get(entry)
        read = attrgetter(field)
        if self.where == STEP:
            return read
        return lambda rank: None if rank.sample is None else read(rank.sample)

    def on_screen(self, rank: Measured) -> float | None:
        """Return this quantity of a rank as the number that screens show."""
        value = self.get(rank)
        return None if value is None else value * self.unit.screen

    @property
    def text(self) -> str:
        """Return the name of this quantity in a list."""
        return self.label or self.name

    @property
    def heading(self) -> str:
        """Return the heading of this quantity's column."""
        return self.head or self.text

    @property
    def filter_word(self) -> str:
        """Return the name of this quantity in a filter."""
        return self.word or self.name

    @property
    def metric_name(self) -> str:
        """Return the name of this quantity in OpenMetrics, with the unit."""
        kind = "host" if self.where == HOST else "rank"
        return f"ddpmon_{kind}_{self.metric or self.name}{self.unit.metric}"

    @property
    def sentence(self) -> str:
        """Return the meaning and the unit of this quantity as text."""
        return f"{self.meaning}, {self.unit.words}." if self.unit.words else f"{self.meaning}."


def _phase(name: str, meaning: str, worse: str = "high", chart: str = "") -> Quantity:
    label = ("phase", name)
    return Quantity(
        name, MS, meaning, f"phases_ms.{name}", worse=worse, chart=chart, metric="phase", metric_label=label
    )  # fmt: skip


_OF_A_STEP = "Mean time in each phase of a step"
_ROWS = (
    Quantity("loss", NUMBER, "Latest loss; the sum of losses if a step updates several models", "loss", chart="loss"),
    Quantity("step", MS, "Mean length of a step", "step_ms", label="step ms", chart="step ms"),
    Quantity("own", MS, "Mean own time per step", "own_ms", label="own ms", chart="own ms per step"),
    Quantity(
        "over", EXCESS, "Own time in excess of the peers' median", "over_median", label="excess", word="excess",
        metric="over_median",
    ),
    *(_phase(name, _OF_A_STEP) for name in OWN_PHASES),
    _phase("wait", _OF_A_STEP, "low", "wait ms per step"),
    _phase("transfer", _OF_A_STEP, chart="transfer ms per step"),
    Quantity("late", MS, "Mean time by which the rank arrives after the median of its peers", "late_ms", label="late"
    " ms"),
    Quantity(
        "critical", SHARE, "Share of steps in which the other ranks waited for this one", "critical_share", head="crit",
    ),
    Quantity(
        "samples", PER_S, "Training samples", "samples_per_s",
        worse="low", label="samples/s", chart="samples/s of a rank",
    ),
    Quantity("tokens", PER_S, "Token ids", "tokens_per_s", worse="low", label="tokens/s"),
    Quantity(
        "learning_rate", NUMBER, "Learning rate of the optimizer's first parameter group", "learning_rate",
        worse="", label="learning rate", word="lr",
    ),
    Quantity("gc", MS, "Mean time in Python's garbage collector; the phases include this time", "gc_ms", label="gc ms"),
    Quantity("steps", TOTAL, "Steps finished by the rank", "steps", worse="low"),
)  # fmt: skip


class Sample(msgspec.Struct, array_like=True, gc=False):
    """Activity of a rank's process, GPU and host in the last second. A field is None if its quantity is not measured on
    this machine.

    The hub of a node with very many ranks may merge two samples, which then cover the last two seconds.
    """

    time_us: Micros
    # fmt: off
    cpu_percent: Annotated[Amount | None, Quantity(
        "cpu", PERCENT, "CPU time of the process, as a share of one core", where=PROCESS, label="cpu%",
        chart="cpu% of a rank, 100% per core",
    )] = None
    rss_bytes: Annotated[Micros | None, Quantity(
        "rss", BYTES, "Resident memory of the process", where=PROCESS, label=f"mem {GIGA}", word="mem",
        chart=f"mem {GIGA} of a rank", metric="resident_memory", largest=True,
    )] = None
    gpu_percent: Annotated[Amount | None, Quantity(
        "gpu", PERCENT, "Share of the time in which the rank's GPU worked", where=GPU, worse="low", label="gpu%",
        chart="GPU utilization", metric="gpu_utilization",
    )] = None
    gpu_memory_used_bytes: Annotated[Micros | None, Quantity(
        "gpu_memory", BYTES, "Memory in use on the rank's GPU", where=GPU, label=f"gpu mem {GIGA}", head="gpu mem",
        word="gpumem", chart=f"gpu mem {GIGA}", largest=True,
    )] = None
    gpu_memory_total_bytes: Annotated[Micros | None, Quantity(
        "gpu_memory_total", BYTES, "Total memory of the rank's GPU", where=GPU, worse="", label="GPU memory of",
        head="of",
        word="gpuall", largest=True,
    )] = None
    gpu_power_w: Annotated[Amount | None, Quantity(
        "gpu_power", WATTS, "Power that the rank's GPU draws", where=GPU, label="GPU power W", head="W", word="watt",
        chart="GPU power, W",
    )] = None
    gpu_temperature_c: Annotated[Celsius | None, Quantity(
        "gpu_temperature", CELSIUS, "Temperature of its GPU", where=GPU, label="GPU °C", head="°C", word="celsius",
        chart="GPU temperature, °C", largest=True,
    )] = None
    gpu_clock_mhz: Annotated[Amount | None, Quantity(
        "gpu_clock", MEGAHERTZ, "Clock of the rank's GPU", where=GPU, worse="low", label="GPU clock MHz", head="MHz",
        word="mhz", chart="GPU clock, MHz",
    )] = None
    starved_share: Annotated[Amount | None, Quantity(
        "starved", SHARE, "Share of the time in which the training thread could run but got no core",
        where=PROCESS, chart="starved share of the time", metric="cpu_starved", mean=True,
        reported="cpu_starved_share",
    )] = None
    major_faults_per_s: Annotated[Amount | None, Quantity(
        "major_faults", PER_S, "Page faults that had to wait for a disk", where=PROCESS, label="major faults/s",
        head="major/s", word="major", chart="major page faults/s",
    )] = None
    minor_faults_per_s: Annotated[Amount | None, Quantity(
        "minor_faults", PER_S, "Page faults without a wait for a disk", where=PROCESS, label="minor faults/s",
        head="minor/s", word="minor", chart="minor page faults/s",
    )] = None
    read_bytes_per_s: Annotated[Amount | None, Quantity(
        "read", BYTES_PER_S, "Data that the process reads from storage", where=PROCESS, label="read bytes/s",
        head="read/s", chart="bytes/s a rank reads",
    )] = None
    written_bytes_per_s: Annotated[Amount | None, Quantity(
        "written", BYTES_PER_S, "Data that the process writes to storage", where=PROCESS, label="written bytes/s",
        head="write/s", chart="bytes/s a rank writes",
    )] = None
    threads: Annotated[Micros | None, Quantity(
        "threads", COUNT, "Number of threads of the process", where=PROCESS, chart="threads of a rank", largest=True,
    )] = None
    gpu_throttled: Annotated[str, Meta(max_length=256)] | None = None
    """Reasons why the GPU throttles its clocks, joined by REASONS_JOIN, or "" if it does not throttle them."""
    loader_workers: Micros | None = None
    """Number of workers of the DataLoader from which the rank read last."""
    loader_pinned: bool | None = None
    """True if that DataLoader's batches lie in pinned memory, or None if the rank trains on a CPU."""
    sent_bytes_per_s: Annotated[Amount | None, Quantity(
        "sent", BYTES_PER_S, "Traffic that the rank's host sends, without loopback and RDMA", where=HOST,
        label="sent bytes/s", head="sent/s", chart="bytes/s a host sends", metric="network_sent",
    )] = None
    received_bytes_per_s: Annotated[Amount | None, Quantity(
        "received", BYTES_PER_S, "Traffic that the rank's host receives, without loopback and RDMA", where=HOST,
        label="received bytes/s", head="recv/s", chart="bytes/s a host receives", metric="network_received",
    )] = None
    io_wait_share: Annotated[Amount | None, Quantity(
        "io_wait", SHARE, "Share of the time in which any process on the host waited for storage", where=HOST,
        label="io wait", word="iowait", chart="io wait of a host",
    )] = None
    cores_busy_share: Annotated[Amount | None, Quantity(
        "cores", SHARE, "Share of the host's cores that ranks or other programs use", where=HOST,
        worse="", label="cores busy", head="cores", chart="share of a host's cores that are busy",
        metric="cores_busy",
    )] = None
    worker_memory_bytes: Annotated[Micros | None, Quantity(
        "worker_memory", BYTES, "Memory of the rank's DataLoader workers that no other process shares", where=PROCESS,
        label=f"worker mem {GIGA}", head=f"wrk {GIGA}", word="workermem",
        chart=f"worker mem {GIGA} of a rank", largest=True,
    )] = None
    memory_left_bytes: Annotated[Micros | None, Quantity(
        "memory_left", BYTES, "Free memory of the host, or of the cgroup if it has less", where=HOST,
        worse="low", label=f"mem left {GIGA}", head=f"left {GIGA}", word="memleft", chart=f"mem left {GIGA} of a host",
        largest=True,
    )] = None
    gpu_allocated_bytes: Annotated[Micros | None, Quantity(
        "gpu_allocated", BYTES, "Memory of tensors on the rank's GPU, as torch counts it", where=GPU,
        label=f"GPU alloc'd {GIGA}", head=f"alloc {GIGA}", word="gpualloc", chart=f"GPU memory in tensors, {GIGA}",
        largest=True,
    )] = None
    gpu_reserved_bytes: Annotated[Micros | None, Quantity(
        "gpu_reserved", BYTES, "Memory of torch's allocator on the rank's GPU, including its cache", where=GPU,
        label=f"GPU reserved {GIGA}", head=f"resv {GIGA}", word="gpureserved",
        chart=f"GPU memory that torch reserved, {GIGA}",
        largest=True,
    )] = None
    gpu_alloc_retries: Annotated[Micros | None, Quantity(
        "gpu_alloc_retries", TOTAL, "Number of times that torch's allocator released its cache to find room",
        where=GPU, label="GPU mem retries", head="retries", word="gpuretries",
        chart="retries of torch's GPU allocator", largest=True,
    )] = None
    # fmt: on

    @property
    def throttles(self) -> tuple[str, ...]:
        """Return the reasons why the GPU throttles its clocks."""
        return tuple(self.gpu_throttled.split(REASONS_JOIN)) if self.gpu_throttled else ()


def _sampled_rows() -> Iterator[Quantity]:
    """Yield the rows that annotate the fields of `Sample`. Each row gets the name of its field."""
    for field in msgspec.structs.fields(Sample):
        for row in getattr(field.type, "__metadata__", ()):
            if isinstance(row, Quantity):
                yield msgspec.structs.replace(row, field=field.name)


SAMPLED = tuple(sorted(_sampled_rows(), key=lambda row: row.where != GPU))
"""Quantities that are measured once a second, those of the GPU first. Each quantity is a field of `Sample`."""
QUANTITIES = {row.name: row for row in (*_ROWS, *SAMPLED)}
"""All quantities by name."""
STEP_SERIES = tuple(row.name for row in _ROWS if row.chart and row.where == STEP)
"""Names of the quantities that are measured in every step and have a chart."""
SAMPLE_SERIES = tuple(row.name for row in SAMPLED if row.chart)
"""Names of the quantities that are measured once a second and have a chart."""


def quantities_named(*names: str) -> tuple[Quantity, ...]:
    """Return the rows with these names, in the order of the names."""
    return tuple(QUANTITIES[name] for name in names)


def other_quantities(names: Collection[str]) -> tuple[Quantity, ...]:
    """Return the sampled quantities with a chart that are not among `names`."""
    return tuple(row for row in SAMPLED if row.chart and row.name not in names)
