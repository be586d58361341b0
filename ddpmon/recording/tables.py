"""The tables of telemetry.db: every column with its type, its unit and what it means. docs/recording.md prints them.

New columns go to the end of a table, those of a sample before `merged`; what reads them takes NULL for a recording that
has none.
"""

from __future__ import annotations

from typing import NamedTuple

from ddpmon.messages import DIGESTS, OWN_PHASES, PAUSES, SAMPLED, STAGES, SYNC_KINDS, Sample


class Column(NamedTuple):
    """A column, as SQLite declares it and as people read it."""

    name: str
    kind: str
    """INTEGER, REAL, TEXT or BLOB; "": whatever a value is."""
    meaning: str
    """One sentence, the unit in it."""


def _numbered(words: tuple[str, ...]) -> str:
    return ", ".join(f"{number} {word}" for number, word in enumerate(words))


_PROCESS = Column("process", "INTEGER", "`processes.id` of who sent it.")
_MERGED_TIMES = (*OWN_PHASES, "wait", "transfer")


def _tier() -> tuple[Column, ...]:
    """What is kept of the steps of one process that ended in the same second, minute or hour."""
    times = [
        Column(f"{name}_us_{how}", "INTEGER", f"{statistic} {name} of its steps{of}, µs.")
        for name in ("length", *_MERGED_TIMES)
        for how, statistic in (("sum", "Sum of the"), ("min", "The least"), ("max", "The largest"))
        for of in (" whose wait is known" if name in {"wait", "transfer"} else "",)
    ]
    return (
        _PROCESS,
        Column("begin_us", "INTEGER", "When it began, CLOCK_MONOTONIC of the host of the lowest rank, µs."),
        Column("end_us", "INTEGER", "When the last of its steps ended, CLOCK_MONOTONIC of this process's host, µs."),
        Column("first_step", "INTEGER", "Number of its first step."),
        Column("last_step", "INTEGER", "Number of its last step."),
        Column("steps", "INTEGER", "Count of its steps: those that ended in it and were not lost."),
        *times,
        Column("waits", "INTEGER", "Count of those whose wait is known: records of every rank are there."),
        Column("critical", "INTEGER", "Count of those in which this was the critical rank: the one that waited least."),
        Column("losses", "INTEGER", "Count of finite losses."),
        Column("loss_sum", "REAL", "Sum of the finite losses."),
        Column("loss_min", "REAL", "The least of them."),
        Column("loss_max", "REAL", "The largest of them."),
        Column("losses_not_finite", "INTEGER", "Count of losses that were NaN or infinite."),
        Column("samples", "INTEGER", "Sum of the training samples."),
        Column("tokens", "INTEGER", "Sum of the token ids."),
        Column("gradient_bytes", "INTEGER", "Sum of the bytes of gradient synchronisations."),
        Column("learning_rate", "REAL", "The learning rate of its last step."),
        Column("gc_us", "INTEGER", "Sum of the time in Python's garbage collector, µs."),
        Column("backwards", "INTEGER", "Sum of the backward calls."),
        Column("paused_us", "INTEGER", "Sum of the time in pauses, which is not in the lengths here, µs."),
    )


def _logged_tier() -> tuple[Column, ...]:
    """What is kept of the values that a script logged under one name in the same minute or hour."""
    return (
        _PROCESS,
        Column("name", "TEXT", "The name that the script gave."),
        Column("begin_us", "INTEGER", "When it began, as in `minutes`, µs."),
        Column("first_step", "INTEGER", "The first step for which a value was logged."),
        Column("last_step", "INTEGER", "The last one."),
        Column("count", "INTEGER", "Count of finite values."),
        Column("sum", "REAL", "Sum of them."),
        Column("min", "REAL", "The least of them."),
        Column("max", "REAL", "The largest of them."),
        Column("not_finite", "INTEGER", "Count of values that were NaN or infinite."),
    )


def _samples() -> tuple[Column, ...]:
    """The fields of `Sample`, in their order."""
    columns = {
        "time_us": Column("time_us", "INTEGER", "When it was taken, CLOCK_MONOTONIC of its host, µs."),
        "gpu_throttled": Column("gpu_throttled", "TEXT", "Why its GPU holds its clocks down; '': it does not."),
        "loader_workers": Column("loader_workers", "INTEGER", "Worker processes of the DataLoader that was read last."),
        "loader_pinned": Column(
            "loader_pinned", "INTEGER", "1: its batches lie in pinned memory; 0: not; NULL: they are for a CPU."
        ),
    }
    for row in SAMPLED:
        columns[row.sample_field] = Column(row.sample_field, "INTEGER" if row.unit.whole else "REAL", row.sentence)
    return tuple(columns[name] for name in Sample.__struct_fields__)


TABLES: dict[str, tuple[Column, ...]] = {
    "meta": (
        Column("key", "TEXT PRIMARY KEY", "`schema`, `run_id`, `monotonic_us` or `unix`."),
        Column(
            "value",
            "",
            "The version of the schema; the run; and two readings of one moment, CLOCK_MONOTONIC in µs and Unix "
            "time in s, which tie the clocks together.",
        ),
    ),
    "processes": (
        Column("id", "INTEGER PRIMARY KEY", "Counts the processes of the recording from 1."),
        Column("attempt", "INTEGER", "0, and one more each time the ranks were restarted; -1: never was a rank."),
        Column("rank", "INTEGER", "Its rank."),
        Column("pid", "INTEGER", "Its process id on its host."),
        Column("start_ticks", "INTEGER", "When it started, field 22 of /proc/PID/stat; NULL: on another host."),
        Column("host", "TEXT", "Where it ran."),
        Column("hello", "BLOB", "What it said of itself, msgpack of `ddpmon.messages.Hello`."),
        Column("stage", "INTEGER", f"How far it has come: {_numbered(STAGES)}."),
        Column("seq", "INTEGER", "Number of its last recorded batch."),
        Column(
            "steps", "INTEGER", "Steps finished, as it says itself; of a killed rank also those that it could not send."
        ),
        Column("last_step", "INTEGER", "The highest step number that is recorded."),
        Column("records", "INTEGER", "Count of its recorded steps, merged ones too; fewer than `last_step`: lost."),
        Column("dropped", "INTEGER", "Count of records it had to throw away."),
        Column("total_steps", "INTEGER", "Steps that it means to do; NULL: not known."),
        Column("left", "INTEGER", "1: it said goodbye."),
        Column("dead", "INTEGER", "1: it is gone without a goodbye."),
        Column("unsynchronised", "INTEGER", "Count of optimizer steps on gradients that DDP never reduced."),
        Column("unsynchronised_at", "INTEGER", "Steps it had finished when the latest of them was reported."),
        Column("stack", "BLOB", "Where it stood in a standstill, msgpack of `ddpmon.messages.Stack`."),
        Column("epoch", "INTEGER", "The epoch that runs, from 1; NULL: not known."),
        Column("epochs", "INTEGER", "Epochs that it means to do; NULL: not known."),
        Column(
            "later_us",
            "INTEGER",
            "How far the clock of `meta` is ahead of its host's, to milliseconds, µs; NULL: they are one.",
        ),
        Column(
            "end",
            "BLOB",
            "How it ended on another machine, msgpack of [exit code, last line of its stderr, first there]; NULL: the "
            "logs beside this recording say it.",
        ),
        Column("ended_us", "INTEGER", "When its end was noticed, in µs of the clock of `meta`; NULL: not known."),
    ),
    "steps": (
        _PROCESS,
        Column("step", "INTEGER", "Its number, from 1; a hole is a lost record, or steps that are merged by now."),
        Column("end_us", "INTEGER", "When it ended, CLOCK_MONOTONIC of its host, µs."),
        Column("length_us", "INTEGER", "How long it took, µs: the five phases, blocked time and pauses add up to it."),
        Column("data_us", "INTEGER", "Blocked in the DataLoader, µs."),
        Column("forward_us", "INTEGER", "In forward, µs."),
        Column("backward_us", "INTEGER", "In backward, until the last gradient was ready, µs."),
        Column("optimizer_us", "INTEGER", "In the optimizer, µs."),
        Column("other_us", "INTEGER", "Everything else on the training thread, µs."),
        Column("loss", "", "The loss; the text 'nan' where it was no number; NULL: not known."),
        Column("samples", "INTEGER", "Training samples in it; 0: not known."),
        Column(
            "syncs",
            "BLOB",
            "Its synchronisations, msgpack of [kind, arrival, end, bytes]: blocked from arrival to end, µs after its "
            f"start. Kinds: {_numbered(SYNC_KINDS)}.",
        ),
        Column("tokens", "INTEGER", "Token ids in it; 0: not known."),
        Column("learning_rate", "REAL", "Of the optimizer's first parameter group; NULL: not known."),
        Column("gc_us", "INTEGER", "In Python's garbage collector, part of the phases, µs."),
        Column("buckets", "BLOB", "With --buckets, msgpack of [layout, launch, end], µs after its start; NULL: none."),
        Column("named", "BLOB", "What `ddpmon.phase` named, msgpack of {name: µs}, part of the phases; NULL: nothing."),
        Column(
            "pauses",
            "BLOB",
            f"Pauses in it, msgpack of [kind, start, end], µs after its start; NULL: none. Kinds: {_numbered(PAUSES)}.",
        ),
        Column("backwards", "INTEGER", "Backward calls in it; more than one: gradient accumulation."),
    ),
    "step_blocks": (
        _PROCESS,
        Column("first_step", "INTEGER", "Number of its first step."),
        Column("last_step", "INTEGER", "Number of its last step."),
        Column("count", "INTEGER", "Count of its steps: all from the first to the last that are not lost."),
        Column("first_end_us", "INTEGER", "When the first one ended, CLOCK_MONOTONIC of its host, µs."),
        Column("last_end_us", "INTEGER", "When the last one ended, µs."),
        Column(
            "rows", "BLOB", "The steps: zlib of what `column_bytes` in `ddpmon.analysis.steps.table` makes of them."
        ),
    ),
    "samples": (
        _PROCESS,
        *_samples(),
        Column(
            "merged",
            "INTEGER",
            "Count of samples that this one is made of: means, but for memory, temperature and threads, which are "
            "the largest; NULL: one sample, of the last second, or of two on the root of 500 machines.",
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
        Column("step", "INTEGER", "Steps finished when it was taken."),
        Column("model", "INTEGER", "Counts the models of a rank in the order they were wrapped."),
        Column("value", "INTEGER", "A fixed sample of the parameters as one number: replicas have the same."),
        Column("group", "TEXT", "Process group whose ranks hold replicas of it."),
        Column("sequence", "INTEGER", "Of the group's last collective."),
        Column("updates", "INTEGER", "Optimizer steps so far on gradients never reduced, where taken after one."),
        Column("of", "INTEGER", f"What it is of: {_numbered(DIGESTS)}; NULL: weights."),
    ),
    "layouts": (
        _PROCESS,
        Column("number", "INTEGER", "Counts the layouts of a rank's buckets from 1."),
        Column("layout", "BLOB", "What is in the bucket, msgpack of `ddpmon.messages.Layout`."),
    ),
    "events": (
        Column("at", "REAL", "When it happened, Unix time, s."),
        Column("severity", "TEXT", "`info`, `warn` or `critical`."),
        Column("text", "TEXT", "What happened, findings that came and went included: one sentence."),
    ),
    "findings": (
        Column("record", "INTEGER", "Counts the findings of the recording from 1: one that comes and goes is one."),
        Column("episode", "INTEGER", "Counts its episodes from 1; neighbours of very many are merged into one row."),
        Column("attempt", "INTEGER", "As in `processes`: a restart begins new findings."),
        Column("kind", "TEXT", "Its kind, as in the report."),
        Column("severity", "TEXT", "The gravest that it had: `info`, `warn` or `critical`."),
        Column("since_step", "INTEGER", "The first step; NULL: its kind names none."),
        Column("until_step", "INTEGER", "The last step; NULL: it lasts."),
        Column("cost_s", "REAL", "What it cost in all of these steps, s; NULL: nothing that is measured."),
        Column("reported_at", "REAL", "When it was first reported, Unix time, s."),
        Column("ended_at", "REAL", "When it was noticed to have ended, Unix time, s; NULL: it lasts."),
        Column("text", "TEXT", "Its last words."),
        Column("episode_facts", "BLOB", "All of it, msgpack of `ddpmon.analysis.episodes.EpisodeRecord`: for ddpmon."),
    ),
    "failures": (
        Column("rank", "INTEGER", "The rank that failed."),
        Column("pid", "INTEGER", "Its process id."),
        Column("failure", "BLOB", "Its uncaught exception, msgpack of `ddpmon.messages.Failure`."),
    ),
    "silences": (
        Column("attempt", "INTEGER", "As in `processes`."),
        Column("first_step", "INTEGER", "The first of some steps that the other ranks sent meanwhile."),
        Column("last_step", "INTEGER", "The last of them."),
        Column("ranks", "BLOB", "The ranks of which nothing was heard, msgpack: any of them may have arrived last."),
    ),
    "checkpoints": (
        Column("name", "TEXT PRIMARY KEY", "What it is: `history`, `judged`, `unarmed` or `refused`."),
        Column(
            "value",
            "BLOB",
            "Charts and sums since the start, how far `findings` goes, processes without the probe, refused values: "
            "for ddpmon.",
        ),
    ),
    "seconds": _tier(),
    "minutes": _tier(),
    "hours": _tier(),
    "scalar_minutes": _logged_tier(),
    "scalar_hours": _logged_tier(),
}

KEYS = {
    "steps": ("process", "step"),
    "step_blocks": ("process", "first_step"),
    "samples": ("process", "time_us"),
    "findings": ("record", "episode"),
    "failures": ("rank", "pid"),
    "silences": ("attempt", "first_step"),
    "layouts": ("process", "number"),
    "seconds": ("process", "begin_us"),
    "minutes": ("process", "begin_us"),
    "hours": ("process", "begin_us"),
    "scalar_minutes": ("process", "begin_us", "name"),
    "scalar_hours": ("process", "begin_us", "name"),
}
"""Columns of the primary key, of tables without a rowid."""

INDEXES = {"scalars_by_step": "scalars (process, step)"}

TIERS = {"seconds": 1_000_000, "minutes": 60_000_000, "hours": 3_600_000_000}
"""What steps are merged into when a recording grows large, the finest first: table and width in µs."""

_WORST = """
SELECT '{tier}' AS tier, attempt, begin_us, sum(critical) AS waited_steps, max(critical) AS critical, rank AS worst_rank
FROM {tier} JOIN processes ON processes.id = {tier}.process GROUP BY attempt, begin_us HAVING sum(critical) > 0
"""

VIEWS = {"worst_ranks": " UNION ALL ".join(_WORST.format(tier=tier).strip() for tier in TIERS)}
"""The worst rank of each second, minute and hour over the world. SQLite takes `rank` from the row of the maximum."""

VIEW_COLUMNS: dict[str, tuple[Column, ...]] = {
    "worst_ranks": (
        Column("tier", "", "`seconds`, `minutes` or `hours`."),
        Column("attempt", "", "As in `processes`."),
        Column("begin_us", "", "As in the table of that name, µs."),
        Column("waited_steps", "", "Count of its steps in which somebody waited for somebody."),
        Column("critical", "", "Count of those in which the worst rank was the critical one."),
        Column("worst_rank", "", "The rank that was the critical one most often."),
    )
}
