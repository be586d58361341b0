"""The tables of telemetry.db: every column with its type, unit and meaning. docs/reference/tables.md prints them."""

from __future__ import annotations

from typing import NamedTuple

from ddpmon.messages import DIGEST_SUBJECTS, OWN_PHASES, SAMPLED, STAGES, Sample


class Column(NamedTuple):
    """A column of a table: its declaration for SQLite, and its meaning for readers."""

    name: str
    kind: str
    """INTEGER, REAL, TEXT or BLOB, or "" if the column accepts any type."""
    meaning: str
    """Sentence that says what the column holds, with the unit."""


def _numbered(words: tuple[str, ...]) -> str:
    return ", ".join(f"{number} {word}" for number, word in enumerate(words))


_PROCESS = Column("process", "INTEGER", "The process of the rank, as in `processes.id`.")
_MERGED_TIMES = (*OWN_PHASES, "wait", "transfer")


_WIDTH = Column("width_us", "INTEGER", "Length of the merged time: a minute or an hour, µs.")


def _rollup() -> tuple[Column, ...]:
    """Return the columns of sums over the steps of one process that ended in the same minute or hour."""
    times = [
        Column(
            f"{name}_us_sum",
            "INTEGER",
            f"Sum of the {'length of' if name == 'length' else f'time in `{name}` during'} these steps{of}, µs.",
        )
        for name in ("length", *_MERGED_TIMES)
        for of in (", if their wait is known" if name in {"wait", "transfer"} else "",)
    ]
    return (
        _PROCESS,
        _WIDTH,
        Column(
            "begin_us", "INTEGER", "Beginning of the merged time, CLOCK_MONOTONIC of the host of the lowest rank, µs."
        ),
        Column("end_us", "INTEGER", "End of the last step, CLOCK_MONOTONIC of the host of this process, µs."),
        Column("first_step", "INTEGER", "Number of the first step in this row."),
        Column("last_step", "INTEGER", "Number of the last step in this row."),
        Column("steps", "INTEGER", "Number of steps that ended in this time and were not lost."),
        *times,
        Column("waits", "INTEGER", "Number of steps with a known wait, because records of every rank arrived."),
        Column("critical", "INTEGER", "Number of steps in which this rank was the critical rank, which waited least."),
        Column("losses", "INTEGER", "Number of finite losses."),
        Column("loss_sum", "REAL", "Sum of the finite losses."),
        Column("losses_not_finite", "INTEGER", "Number of losses that were NaN or infinite."),
        Column("samples", "INTEGER", "Number of training samples in these steps."),
        Column("tokens", "INTEGER", "Number of token ids in these steps."),
        Column("gradient_bytes", "INTEGER", "Bytes of all gradient synchronisations in these steps."),
        Column("learning_rate", "REAL", "The learning rate in the last of these steps."),
        Column("gc_us", "INTEGER", "Total time in Python's garbage collector, µs."),
        Column("backwards", "INTEGER", "Number of backward calls in these steps."),
        Column("paused_us", "INTEGER", "Total time in pauses, which the step lengths in this row do not include, µs."),
    )


def _scalar_rollup() -> tuple[Column, ...]:
    """Return the columns of sums over the values that a script logged under one name in the same minute or hour."""
    return (
        _PROCESS,
        _WIDTH,
        Column("begin_us", "INTEGER", "Beginning of the merged time, as in `rollup`, µs."),
        Column("name", "TEXT", "The name under which the script logged the value."),
        Column("first_step", "INTEGER", "The first step with a logged value."),
        Column("last_step", "INTEGER", "The last step with a logged value."),
        Column("count", "INTEGER", "Number of finite values."),
        Column("sum", "REAL", "Sum of the finite values."),
        Column("not_finite", "INTEGER", "Number of values that were NaN or infinite."),
    )


def _samples() -> tuple[Column, ...]:
    """Return the columns of the fields of `Sample`, in their order."""
    columns = {
        "time_us": Column("time_us", "INTEGER", "Time of the sample, CLOCK_MONOTONIC of the rank's host, µs."),
        "gpu_throttled": Column("gpu_throttled", "TEXT", "Reason why the rank's GPU has reduced clocks; '': none."),
        "loader_workers": Column(
            "loader_workers", "INTEGER", "Number of workers of the DataLoader that the rank read last."
        ),
        "loader_pinned": Column(
            "loader_pinned",
            "INTEGER",
            "1: the DataLoader pins its batches in memory; 0: it does not; NULL: the rank trains on a CPU.",
        ),
    }
    for row in SAMPLED:
        columns[row.field] = Column(row.field, "INTEGER" if row.unit.whole else "REAL", row.sentence)
    return tuple(columns[name] for name in Sample.__struct_fields__)


TABLES: dict[str, tuple[Column, ...]] = {
    "meta": (
        Column("key", "TEXT PRIMARY KEY", "Name of the value: `schema`, `run_id`, `monotonic_us` or `unix`."),
        Column(
            "value",
            "",
            "The version of the schema, the run's id, and one time on both clocks: CLOCK_MONOTONIC in µs and Unix time"
            " in s.",
        ),
    ),
    "processes": (
        Column("id", "INTEGER PRIMARY KEY", "Number of the process in this recording, from 1."),
        Column(
            "attempt", "INTEGER", "Number of restarts before this process started; -1: the process never became a rank."
        ),
        Column("rank", "INTEGER", "Rank of the process."),
        Column("pid", "INTEGER", "Process id on the host of the process."),
        Column("start_ticks", "INTEGER", "Start time, field 22 of /proc/PID/stat; NULL: on another host."),
        Column("host", "TEXT", "Name of the host on which the process runs."),
        Column("hello", "BLOB", "What the process reports about itself, msgpack of `ddpmon.messages.Hello`."),
        Column("stage", "INTEGER", f"Stage of the process: {_numbered(STAGES)}."),
        Column("seq", "INTEGER", "Number of the last recorded batch of messages from the process."),
        Column(
            "steps",
            "INTEGER",
            "Number of finished steps by the process's own count, including steps that a killed rank could not send.",
        ),
        Column("last_step", "INTEGER", "The highest step number that is recorded."),
        Column(
            "records",
            "INTEGER",
            "Number of recorded steps of the process, including merged steps. All other steps up to "
            "`last_step` are lost.",
        ),
        Column("dropped", "INTEGER", "Number of records that the process had to drop."),
        Column("total_steps", "INTEGER", "Planned number of steps; NULL: unknown."),
        Column("left", "INTEGER", "1: the process ended normally."),
        Column("dead", "INTEGER", "1: the process exited unexpectedly."),
        Column("unsynchronised", "INTEGER", "Number of optimizer steps with gradients that DDP never reduced."),
        Column(
            "unsynchronised_at",
            "INTEGER",
            "Number of finished steps when the process last reported an optimizer step with unreduced gradients.",
        ),
        Column("stack", "BLOB", "Python stack of the process during a hang, msgpack of `ddpmon.messages.Stack`."),
        Column("epoch", "INTEGER", "Current epoch, counted from 1; NULL: unknown."),
        Column("epochs", "INTEGER", "Planned number of epochs; NULL: unknown."),
        Column(
            "later_us",
            "INTEGER",
            "Time by which the clock of the process's host is behind the clock in `meta`, exact to "
            "milliseconds, µs; NULL: the same clock.",
        ),
        Column(
            "end",
            "BLOB",
            "How the process ended on another machine, msgpack of [exit code, last line of stderr, whether it failed"
            " first there]; NULL: the logs next to this recording say how.",
        ),
        Column(
            "ended_us",
            "INTEGER",
            "Time at which the hub noticed the end of the process, µs on the clock in `meta`; NULL: unknown.",
        ),
    ),
    "step_blocks": (
        _PROCESS,
        Column("first_step", "INTEGER", "Number of the first step in this row."),
        Column("last_step", "INTEGER", "Number of the last step in this row."),
        Column("count", "INTEGER", "Number of steps in this row, from the first to the last, without lost steps."),
        Column("first_end_us", "INTEGER", "End of the first step, CLOCK_MONOTONIC of the rank's host, µs."),
        Column("last_end_us", "INTEGER", "End of the last step, µs."),
        Column("rows", "BLOB", "The compressed steps, zlib of `ddpmon.analysis.steps.table.column_bytes`; for ddpmon."),
        Column(
            "records",
            "BLOB",
            "Steps that have buckets, names, pauses or more than two synchronisations, zlib of msgpack of"
            " `list[ddpmon.messages.Step]`; NULL: none. For ddpmon.",
        ),
    ),
    "samples": (
        _PROCESS,
        *_samples(),
        Column(
            "merged",
            "INTEGER",
            "Number of samples merged into this row. The row then has the largest value of memory, temperature and"
            " threads, and the mean of every other quantity. NULL: one sample, which covers one second, or two"
            " seconds in runs on 500 machines.",
        ),
    ),
    "scalars": (
        _PROCESS,
        Column("step", "INTEGER", "The step for which the script logged the value."),
        Column("name", "TEXT", "The name under which the script logged the value."),
        Column("value", "", "The logged value; the text 'nan' if it was not a number."),
    ),
    "digests": (
        _PROCESS,
        Column("step", "INTEGER", "Number of finished steps at the time of the digest."),
        Column(
            "model", "INTEGER", "Number of the model on its rank, in the order in which the script wrapped its models."
        ),
        Column("value", "INTEGER", "Checksum of a fixed sample of the parameters, which is equal for equal replicas."),
        Column("group", "TEXT", "Process group whose ranks have replicas of the model."),
        Column("sequence", "INTEGER", "Sequence number of the group's last collective."),
        Column(
            "updates",
            "INTEGER",
            "Number of optimizer steps so far on gradients that DDP never reduced, if the digest came after such a"
            " step.",
        ),
        Column("of", "INTEGER", f"Content of the digest: {_numbered(DIGEST_SUBJECTS)}; NULL: weights."),
    ),
    "layouts": (
        _PROCESS,
        Column("number", "INTEGER", "Number of the bucket layout on its rank, from 1."),
        Column("layout", "BLOB", "Parameters in each bucket, msgpack of `ddpmon.messages.Layout`."),
    ),
    "events": (
        Column("at", "REAL", "Unix time of the event, s."),
        Column("severity", "TEXT", "Severity: `info`, `warn` or `critical`."),
        Column("text", "TEXT", "One sentence about the event. The beginning and the end of a finding are events too."),
    ),
    "findings": (
        Column(
            "record",
            "INTEGER",
            "Number of the finding in this recording, from 1. A finding that returns keeps its number.",
        ),
        Column(
            "episode", "INTEGER", "Number of the episode, from 1. If there are very many episodes, some share a row."
        ),
        Column("attempt", "INTEGER", "Attempt, as in `processes`; findings start anew after each restart."),
        Column("kind", "TEXT", "Kind of finding, as in the report."),
        Column("severity", "TEXT", "Highest severity so far: `info`, `warn` or `critical`."),
        Column("since_step", "INTEGER", "First step of the episode; NULL: findings of this kind begin at no step."),
        Column("until_step", "INTEGER", "Last step of the episode; NULL: the episode has not ended."),
        Column("cost_s", "REAL", "Cost of the episode, s; NULL: not measured."),
        Column("reported_at", "REAL", "Unix time of the first report of the finding, s."),
        Column(
            "ended_at",
            "REAL",
            "Time at which ddpmon noticed the end of the episode, Unix time, s; NULL: it has not ended.",
        ),
        Column("text", "TEXT", "The latest sentence about the finding."),
        Column(
            "episode_facts",
            "BLOB",
            "The record of the episode, msgpack of `ddpmon.analysis.episodes.EpisodeRecord`; for ddpmon.",
        ),
    ),
    "failures": (
        Column("rank", "INTEGER", "The rank that failed."),
        Column("pid", "INTEGER", "Process id of the rank."),
        Column("failure", "BLOB", "The uncaught exception of the rank, msgpack of `ddpmon.messages.Failure`."),
    ),
    "silences": (
        Column("attempt", "INTEGER", "Attempt, as in `processes`."),
        Column("first_step", "INTEGER", "First step that the missing ranks did not send."),
        Column("last_step", "INTEGER", "Last step that the missing ranks did not send."),
        Column("ranks", "BLOB", "The missing ranks, msgpack. Any of these ranks may have arrived last."),
    ),
    "checkpoints": (
        Column("name", "TEXT PRIMARY KEY", "Kind of the row: `history`, `judged`, `unarmed` or `refused`."),
        Column(
            "value",
            "BLOB",
            "In this order: charts and sums since the start, the last analysed step, processes without the probe, "
            "refused values;"
            " for ddpmon.",
        ),
    ),
    "rollup": _rollup(),
    "scalar_rollup": _scalar_rollup(),
}

PRIMARY_KEYS = {
    "step_blocks": ("process", "first_step"),
    "samples": ("process", "time_us"),
    "findings": ("record", "episode"),
    "failures": ("rank", "pid"),
    "silences": ("attempt", "first_step"),
    "layouts": ("process", "number"),
    "rollup": ("process", "begin_us", "width_us"),
    "scalar_rollup": ("process", "begin_us", "width_us", "name"),
}
"""Columns of the primary key, for each table without a rowid."""

INDEXES = {
    "scalars_by_step": "scalars (process, step)",
    "rollup_by_width": "rollup (width_us, begin_us)",
    "scalar_rollup_by_width": "scalar_rollup (width_us, begin_us)",
}

MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000
"""Lengths in microseconds of the spans into which steps are merged when a recording grows large."""

VIEWS = {
    "worst_ranks": """
SELECT width_us, attempt, begin_us, sum(critical) AS waited_steps, max(critical) AS critical, rank AS worst_rank
FROM rollup JOIN processes ON processes.id = rollup.process
GROUP BY width_us, attempt, begin_us HAVING sum(critical) > 0
""".strip()
}
"""SQL views by name. They return the rank that the others waited for most in each minute and hour. SQLite takes `rank`
from the row with the maximum."""

VIEW_COLUMNS: dict[str, tuple[Column, ...]] = {
    "worst_ranks": (
        Column("width_us", "", "Length of the merged time, as in `rollup`, µs."),
        Column("attempt", "", "Attempt, as in `processes`."),
        Column("begin_us", "", "Beginning of the merged time, as in `rollup`, µs."),
        Column("waited_steps", "", "Number of steps in which a rank waited for another."),
        Column("critical", "", "Number of steps in which the rank in `worst_rank` was the critical rank."),
        Column("worst_rank", "", "The rank that was most often the critical rank."),
    )
}
