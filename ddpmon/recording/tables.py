"""The tables of telemetry.db: every column with its type, unit and meaning. docs/reference/tables.md prints them."""

from __future__ import annotations

from typing import NamedTuple

from ddpmon.messages import DIGESTS, OWN_PHASES, SAMPLED, STAGES, Sample


class Column(NamedTuple):
    """A column, as SQLite declares it and as people read it."""

    name: str
    kind: str
    """INTEGER, REAL, TEXT or BLOB; "": whatever a value is."""
    meaning: str
    """One sentence, the unit in it."""


def _numbered(words: tuple[str, ...]) -> str:
    return ", ".join(f"{number} {word}" for number, word in enumerate(words))


_PROCESS = Column("process", "INTEGER", "The rank's process, as in `processes.id`.")
_MERGED_TIMES = (*OWN_PHASES, "wait", "transfer")


_WIDTH = Column("width_us", "INTEGER", "Width of the span: a minute or an hour, µs.")


def _rollup() -> tuple[Column, ...]:
    """Return the columns of sums over the steps of one process that ended in the same minute or hour."""
    times = [
        Column(
            f"{name}_us_{how}",
            "INTEGER",
            f"{statistic} {'' if name == 'length' else 'time in '}{name} of its steps{of}, µs.",
        )
        for name in ("length", *_MERGED_TIMES)
        for how, statistic in (("sum", "Sum of the"), ("min", "Smallest"), ("max", "Largest"))
        for of in (" whose wait is known" if name in {"wait", "transfer"} else "",)
    ]
    return (
        _PROCESS,
        _WIDTH,
        Column("begin_us", "INTEGER", "Beginning, CLOCK_MONOTONIC of the host of the lowest rank, µs."),
        Column("end_us", "INTEGER", "End of the last of its steps, CLOCK_MONOTONIC of this process's host, µs."),
        Column("first_step", "INTEGER", "Number of its first step."),
        Column("last_step", "INTEGER", "Number of its last step."),
        Column("steps", "INTEGER", "Count of its steps: those that ended in this time and were not lost."),
        *times,
        Column("waits", "INTEGER", "Count of steps whose wait is known, because records of every rank arrived."),
        Column("critical", "INTEGER", "Count of steps in which this was the critical rank: the one that waited least."),
        Column("losses", "INTEGER", "Count of finite losses."),
        Column("loss_sum", "REAL", "Sum of the finite losses."),
        Column("loss_min", "REAL", "Smallest finite loss."),
        Column("loss_max", "REAL", "Largest finite loss."),
        Column("losses_not_finite", "INTEGER", "Count of losses that were NaN or infinite."),
        Column("samples", "INTEGER", "Sum of the training samples."),
        Column("tokens", "INTEGER", "Sum of the token ids."),
        Column("gradient_bytes", "INTEGER", "Sum of the bytes of gradient synchronisations."),
        Column("learning_rate", "REAL", "The learning rate of its last step."),
        Column("gc_us", "INTEGER", "Sum of the time in Python's garbage collector, µs."),
        Column("backwards", "INTEGER", "Sum of the backward calls."),
        Column("paused_us", "INTEGER", "Sum of the time in pauses, which the lengths here leave out, µs."),
    )


def _scalar_rollup() -> tuple[Column, ...]:
    """Return the columns of sums over the values that a script logged under one name in the same minute or hour."""
    return (
        _PROCESS,
        _WIDTH,
        Column("begin_us", "INTEGER", "Beginning, as in `rollup`, µs."),
        Column("name", "TEXT", "The name that the script gave."),
        Column("first_step", "INTEGER", "The first step for which a value was logged."),
        Column("last_step", "INTEGER", "The last step for which a value was logged."),
        Column("count", "INTEGER", "Count of finite values."),
        Column("sum", "REAL", "Sum of the finite values."),
        Column("min", "REAL", "Smallest finite value."),
        Column("max", "REAL", "Largest finite value."),
        Column("not_finite", "INTEGER", "Count of values that were NaN or infinite."),
    )


def _samples() -> tuple[Column, ...]:
    """The fields of `Sample`, in their order."""
    columns = {
        "time_us": Column("time_us", "INTEGER", "Moment of the sample, CLOCK_MONOTONIC of its host, µs."),
        "gpu_throttled": Column("gpu_throttled", "TEXT", "Reason for which its GPU lowers its clocks; '': none."),
        "loader_workers": Column("loader_workers", "INTEGER", "Worker processes of the DataLoader that was read last."),
        "loader_pinned": Column(
            "loader_pinned",
            "INTEGER",
            "1: its batches are in pinned memory; 0: not pinned; NULL: for a CPU.",
        ),
    }
    for row in SAMPLED:
        columns[row.field] = Column(row.field, "INTEGER" if row.unit.whole else "REAL", row.sentence)
    return tuple(columns[name] for name in Sample.__struct_fields__)


TABLES: dict[str, tuple[Column, ...]] = {
    "meta": (
        Column("key", "TEXT PRIMARY KEY", "`schema`, `run_id`, `monotonic_us` or `unix`."),
        Column(
            "value",
            "",
            "The version of the schema; the run's id; and one moment on both clocks, CLOCK_MONOTONIC in µs and Unix "
            "time in s.",
        ),
    ),
    "processes": (
        Column("id", "INTEGER PRIMARY KEY", "Counts the processes of the recording from 1."),
        Column("attempt", "INTEGER", "0, plus 1 for each restart of the ranks; -1: the process never became a rank."),
        Column("rank", "INTEGER", "Rank of the process."),
        Column("pid", "INTEGER", "Its process id on its host."),
        Column("start_ticks", "INTEGER", "Start time, field 22 of /proc/PID/stat; NULL: on another host."),
        Column("host", "TEXT", "Name of its host."),
        Column("hello", "BLOB", "Its own description, msgpack of `ddpmon.messages.Hello`."),
        Column("stage", "INTEGER", f"Stage of its life: {_numbered(STAGES)}."),
        Column("seq", "INTEGER", "Number of its last recorded batch."),
        Column("steps", "INTEGER", "Steps finished by its own count, also those that a killed rank could not send."),
        Column("last_step", "INTEGER", "The highest step number that is recorded."),
        Column(
            "records",
            "INTEGER",
            "Number of its recorded steps, merged ones too. All others up to `last_step` are lost.",
        ),
        Column("dropped", "INTEGER", "Count of records that it had to drop."),
        Column("total_steps", "INTEGER", "Steps planned; NULL: not known."),
        Column("left", "INTEGER", "1: it ended in order."),
        Column("dead", "INTEGER", "1: it exited unexpectedly."),
        Column("unsynchronised", "INTEGER", "Count of optimizer steps on gradients that DDP never reduced."),
        Column("unsynchronised_at", "INTEGER", "Steps finished when it last reported one of them."),
        Column("stack", "BLOB", "Its Python stack during a hang, msgpack of `ddpmon.messages.Stack`."),
        Column("epoch", "INTEGER", "Current epoch, from 1; NULL: not known."),
        Column("epochs", "INTEGER", "Epochs planned; NULL: not known."),
        Column(
            "later_us",
            "INTEGER",
            "Time by which its host's clock is behind that of `meta`, exact to milliseconds, µs; NULL: the same clock.",
        ),
        Column(
            "end",
            "BLOB",
            "Its end on another machine, msgpack of [exit code, last line of its stderr, whether it failed first "
            "there]; NULL: the logs beside this recording tell its end.",
        ),
        Column(
            "ended_us",
            "INTEGER",
            "Moment at which the hub noticed that the process had ended, µs on the clock in `meta`; NULL: unknown.",
        ),
    ),
    "step_blocks": (
        _PROCESS,
        Column("first_step", "INTEGER", "Number of its first step."),
        Column("last_step", "INTEGER", "Number of its last step."),
        Column("count", "INTEGER", "Count of its steps: all from the first to the last that are not lost."),
        Column("first_end_us", "INTEGER", "End of the first step, CLOCK_MONOTONIC of its host, µs."),
        Column("last_end_us", "INTEGER", "End of the last step, µs."),
        Column("rows", "BLOB", "The steps, as zlib of `ddpmon.analysis.steps.table.column_bytes`: for ddpmon."),
        Column(
            "records",
            "BLOB",
            "Further steps, with buckets, names, pauses or more than two synchronisations, as zlib of msgpack of "
            "`list[ddpmon.messages.Step]`; NULL: none. For ddpmon.",
        ),
    ),
    "samples": (
        _PROCESS,
        *_samples(),
        Column(
            "merged",
            "INTEGER",
            "Number of samples merged into this one. Of memory, temperature and threads it has the largest value, "
            "else the mean. NULL: one sample, which covers a second, or two in runs on 500 machines.",
        ),
    ),
    "scalars": (
        _PROCESS,
        Column("step", "INTEGER", "The step for which the script logged it."),
        Column("name", "TEXT", "The name that the script gave."),
        Column("value", "", "The value; the text 'nan' where it was no number."),
    ),
    "digests": (
        _PROCESS,
        Column("step", "INTEGER", "Steps finished when the digest was made."),
        Column("model", "INTEGER", "Number of the model on its rank, in the order of wrapping."),
        Column("value", "INTEGER", "Checksum of a fixed sample of the parameters; replicas have the same."),
        Column("group", "TEXT", "Process group whose ranks hold replicas of it."),
        Column("sequence", "INTEGER", "Sequence number of the group's last collective."),
        Column(
            "updates",
            "INTEGER",
            "Optimizer steps so far on gradients that DDP never reduced, if the digest followed one.",
        ),
        Column("of", "INTEGER", f"Content: {_numbered(DIGESTS)}; NULL: weights."),
    ),
    "layouts": (
        _PROCESS,
        Column("number", "INTEGER", "Number of the bucket layout on its rank, from 1."),
        Column("layout", "BLOB", "Parameters in each bucket, msgpack of `ddpmon.messages.Layout`."),
    ),
    "events": (
        Column("at", "REAL", "Moment of the event, Unix time, s."),
        Column("severity", "TEXT", "`info`, `warn` or `critical`."),
        Column("text", "TEXT", "One sentence about the event. Findings that begin and end are events too."),
    ),
    "findings": (
        Column(
            "record",
            "INTEGER",
            "Number of the finding in this recording, from 1. A finding that comes back keeps it.",
        ),
        Column("episode", "INTEGER", "Number of the episode, from 1. If there are very many, some share a row."),
        Column("attempt", "INTEGER", "Attempt, as in `processes`; each restart begins new findings."),
        Column("kind", "TEXT", "Kind, as in the report."),
        Column("severity", "TEXT", "Highest severity so far: `info`, `warn` or `critical`."),
        Column("since_step", "INTEGER", "First step; NULL: this kind has none."),
        Column("until_step", "INTEGER", "Last step; NULL: it goes on."),
        Column("cost_s", "REAL", "Cost in all of these steps, s; NULL: not measured."),
        Column("reported_at", "REAL", "Moment of the first report, Unix time, s."),
        Column("ended_at", "REAL", "Moment at which ddpmon noticed its end, Unix time, s; NULL: it goes on."),
        Column("text", "TEXT", "The latest sentence about it."),
        Column(
            "episode_facts",
            "BLOB",
            "The record, msgpack of `ddpmon.analysis.episodes.EpisodeRecord`: for ddpmon.",
        ),
    ),
    "failures": (
        Column("rank", "INTEGER", "The rank that failed."),
        Column("pid", "INTEGER", "Its process id."),
        Column("failure", "BLOB", "Its uncaught exception, msgpack of `ddpmon.messages.Failure`."),
    ),
    "silences": (
        Column("attempt", "INTEGER", "Attempt, as in `processes`."),
        Column("first_step", "INTEGER", "First step that only the other ranks sent."),
        Column("last_step", "INTEGER", "Last step that only they sent."),
        Column("ranks", "BLOB", "Ranks that sent nothing in this time, msgpack. Any of them may have arrived last."),
    ),
    "checkpoints": (
        Column("name", "TEXT PRIMARY KEY", "`history`, `judged`, `unarmed` or `refused`."),
        Column(
            "value",
            "BLOB",
            "Charts and sums since the start, the last judged step, processes without the probe, or refused values: "
            "for ddpmon.",
        ),
    ),
    "rollup": _rollup(),
    "scalar_rollup": _scalar_rollup(),
}

KEYS = {
    "step_blocks": ("process", "first_step"),
    "samples": ("process", "time_us"),
    "findings": ("record", "episode"),
    "failures": ("rank", "pid"),
    "silences": ("attempt", "first_step"),
    "layouts": ("process", "number"),
    "rollup": ("process", "begin_us", "width_us"),
    "scalar_rollup": ("process", "begin_us", "width_us", "name"),
}
"""Columns of the primary key, of tables without a rowid."""

INDEXES = {
    "scalars_by_step": "scalars (process, step)",
    "rollup_by_width": "rollup (width_us, begin_us)",
    "scalar_rollup_by_width": "scalar_rollup (width_us, begin_us)",
}

MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000
"""Widths of the spans into which steps are merged when a recording grows large."""

VIEWS = {
    "worst_ranks": """
SELECT width_us, attempt, begin_us, sum(critical) AS waited_steps, max(critical) AS critical, rank AS worst_rank
FROM rollup JOIN processes ON processes.id = rollup.process
GROUP BY width_us, attempt, begin_us HAVING sum(critical) > 0
""".strip()
}
"""The worst rank of each minute and hour over the world. SQLite takes `rank` from the row of the maximum."""

VIEW_COLUMNS: dict[str, tuple[Column, ...]] = {
    "worst_ranks": (
        Column("width_us", "", "Width of the span, as in `rollup`, µs."),
        Column("attempt", "", "Attempt, as in `processes`."),
        Column("begin_us", "", "Beginning, as in `rollup`, µs."),
        Column("waited_steps", "", "Count of steps in which a rank waited for another."),
        Column("critical", "", "Count of steps in which the worst rank was the critical rank."),
        Column("worst_rank", "", "The rank that was most often the critical rank."),
    )
}
