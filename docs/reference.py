"""Writes the pages of docs/reference that are made from the code's own tables: python docs/reference.py

commands.md from the commands, keys.md from the dashboard's keys, metrics.md from the quantities, findings.md from the
kinds of findings and their thresholds, tables.md from the recording's tables, environment.md from the table here.
"""

from __future__ import annotations

import importlib
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import click

import ddpmon.analysis.kinds
from ddpmon.analysis.kinds import KINDS
from ddpmon.cli import commands
from ddpmon.messages.quantities import QUANTITIES, STEP, Quantity
from ddpmon.recording.tables import KEYS as PRIMARY_KEYS
from ddpmon.recording.tables import TABLES, VIEW_COLUMNS, Column
from ddpmon.tui.keys import KEYS, Key
from ddpmon.tui.views import DESCRIBED, ViewName

FOLDER = Path(__file__).with_name("reference")
MADE = "This page is made from the code: `python docs/reference.py`.\n"
WIDTH = 80

VARIABLES = {
    "DDPMON_HOME": "Where runs are kept; `~/.local/state/ddpmon` otherwise. May be a link of yours; only you may enter the folder.",
    "DDPMON_RUNTIME_DIR": "Where sockets lie; `/tmp/ddpmon-UID` otherwise. Short: a socket's path holds 107 bytes.",
    "DDPMON_KEEP": "How much of all runs to keep, as `20GB` or `90d`; the oldest go when a run starts.",
    "DDPMON_LOGS": "How much of a run's output to keep, as `2G`; 256 MB otherwise.",
    "DDPMON_NOTIFY": "`bell`, `desktop` or `both`: how a dashboard says that a run needs a look or has ended.",
    "DDPMON_ON_ALERT": "A program that is run when a run needs a look, stalls or fails: as `--on-alert`.",
    "DDPMON_HUB": "Where the hub of several machines is to listen: as `--hub`.",
    "DDPMON_HUB_KEY": "The key of `--hub`: what is in a file that `ddpmon key` made. Ranks are started without it.",
    "DDPMON_THEME": "`dark`, `light` or `ansi` (the terminal's own sixteen colours).",
    "NO_COLOR": "Set to anything: no colours.",
    "DDPMON_SSH": "The ssh command with its options, as `ssh -F config`.",
    "DDPMON_REMOTE": "What ddpmon is called on the other machine, as `~/project/.venv/bin/ddpmon`.",
}
"""What people set."""
INNER = {
    "DDPMON_SOCKET": "Where the hub of the run listens; what arms the probe in a rank.",
    "DDPMON_RUN_ID": "The run that a rank belongs to.",
    "DDPMON_RUN_DIR": "The folder of that run.",
    "DDPMON_BUCKETS": "1: the probe records each bucket's all-reduce.",
    "DDPMON_ALONE": "1: all ranks are on this machine; they look for no other.",
    "DDPMON_HUB_GIVEN": "1: hubs of several machines meet at `--hub`, and need nothing of the ranks for that.",
    "DDPMON_AGENT_PID": "The torchrun that a rank was started by.",
}
"""What ddpmon sets for its own processes. `ddpmon exec` and launchers must pass these on."""

WHAT_TO_DO = {
    "rank_failed": "Read the exception and its line, and the next step below it. `ddpmon logs --rank K` has what came before.",
    "restart_loop": "Stop the run, and look at the line and the batch that each attempt failed at.",
    "hang": "Look at the line of the rank that did not arrive, not at those that wait. `ddpmon stack` asks again.",
    "timeout_near": "Let that rank go on, or give `init_process_group(timeout=…)` more, before the run is ended.",
    "loss_not_finite": "Look at the rank and step it began on: its batch, a rate that is too high, half precision.",
    "replicas_differ": "Some rank changes weights outside of DDP, or skips a step. Restart from a checkpoint before it.",
    "gradients_not_synchronised": "Call the DDP wrapper, not `model.module`, and leave `no_sync` before the last backward.",
    "parameters_not_reduced": "Unfreeze and complete the model before it is wrapped, or wrap it again on all ranks.",
    "uneven_batches": "Give all ranks as many batches, or train inside `with Join([model]):`.",
    "samplers_disagree": "Leave `num_replicas`, `rank` and `seed` of `DistributedSampler` out, or give all ranks what fits.",
    "parameters_not_updated": "Make the optimizer from `model.parameters()` once the model is complete, before or after wrapping it.",
    "same_order": "Call `sampler.set_epoch(epoch)` at the beginning of each epoch.",
    "learning_rates_differ": "Feed schedulers the same on all ranks: all-reduce the validation loss before `step(loss)`.",
    "independent_copies": "Wrap the model in DDP and shard the data; separate trainings are better started as separate runs.",
    "same_data": "Give the DataLoader a `DistributedSampler`, and an `IterableDataset` its part by rank.",
    "trains_in_eval": "Call `model.train()` at the beginning of each epoch, after the evaluation.",
    "updates_skipped": "Train in bfloat16, lower the rate, clip gradients after `unscale_`, and look for NaN in the model.",
    "learning_rate_zero": "Compare the schedule's number of steps with how often `scheduler.step()` is called.",
    "periodic_straggler": "Look for what that rank does every so many steps: logging, a checkpoint, a metric on rank 0.",
    "straggler": "Look into the phase that is named, and at what sets the rank apart; move it to another machine if nothing.",
    "several_stragglers": "Fix all of them: fixing one gains nothing, as another is the slowest then. Look at what they share.",
    "late_in_bursts": "Look for what runs there as often: other programs, backups, checkpoints, clocks that fall when hot.",
    "slow_host": "Look at what all ranks of that host share: its clocks, its cores, its disk, its network card.",
    "run_slowed": "Look at what changed then for all ranks: sizes of inputs, the shared disk, the network, clocks.",
    "load_imbalance": "Sort batches by length, or cut them to equal numbers of tokens, so that ranks have as much to do.",
    "slow_link": "Look at that rank's network card, cable or PCIe lane; `ddpmon run --buckets` shows the bandwidth.",
    "moving_straggler": "No machine is at fault: even out batches, give ranks cores of their own, load ahead.",
    "data_bound": "More DataLoader workers (the text says how many would keep up), a faster format, decoded once.",
    "gc_pauses": "`gc.freeze()` after setting up, and `gc.disable()` with a `gc.collect()` every so many steps.",
    "loss_diverged": "One rank sees other data than the rest, or its batches are broken: look at its part of the data.",
    "communication_bound": "Larger batches or accumulation, half precision, fewer bytes a step; then a faster network.",
    "needless_reductions": "Put all batches of an update but the last under `model.no_sync()`, forward and backward.",
    "unused_search": "Leave `find_unused_parameters=True` out where every step uses every parameter.",
    "loss_spiked": "Look at the batches of that step; a lower rate or clipped gradients make it rarer.",
    "overhead_bound": "Larger batches, or `torch.compile`: the steps are too small to keep anything busy.",
    "gap": "Load in a DataLoader with workers, and copy with `non_blocking=True`, so that it happens beside the step.",
    "pauses": "Evaluate and save more rarely, or from one rank on a copy; look at the line of a pause without a name.",
    "cpu_starved": "Fewer ranks, threads (`OMP_NUM_THREADS`) or workers than cores; nothing else on the machine.",
    "gpu_throttled": "Look at its temperature and power limit: `nvidia-smi -q -d PERFORMANCE`, then at its fans.",
    "gpu_error": "Look into the kernel's log (`dmesg`); train without that GPU until it was reset or replaced.",
    "allocator_retries": "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, a smaller batch, or activation checkpointing.",
    "memory_growth": "Something keeps what it should let go: losses with their graphs, lists in the dataset, caches."
    " Where workers grow: hold the dataset's items in numpy arrays or tensors, not in lists.",
    "gpu_memory_growth": "Something keeps tensors from step to step: losses with their graphs, lists of outputs.",
    "gpu_memory": "A smaller batch, activation checkpointing, or `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
    "gpu_shared": "End what is left over, choose another GPU, or `torch.cuda.set_device(local_rank)` before other CUDA calls.",
    "same_worker_seeds": "Seed once, not before each epoch, if samples are augmented at random.",
    "debugging": "Switch it off once the fault is found.",
    "configuration_differs": "Start all ranks with the same script, arguments, versions and communication variables.",
    "buffers_differ": "Use `SyncBatchNorm` or `broadcast_buffers=True`; all-reduce what updates other buffers.",
    "telemetry_lost": "The numbers have gaps, the training has none: look whether the machine has cores left.",
}
"""In a line, for someone who has not seen the run; what a finding says itself knows more."""

FALSE_ALARMS = {
    "memory_growth": "Low: of 300 random walks five are told as growth, of noise and single steps none. A cache that fills for"
    " an hour is growth too.",
    "gpu_error": "Low: the driver reports it. Never seen on a real GPU.",
    "gpu_shared": "Low: a hint, unless a GPU is nearly full. Two ranks on one GPU may be meant. Silent in containers that see"
    " other process ids than the driver.",
    "replicas_differ": "Low: replicas are bit-identical under DDP. Meant where ranks average weights now and then in a way that"
    " ddpmon does not know.",
    "gradients_not_synchronised": "Low: critical only where replicas were seen to differ.",
    "parameters_not_reduced": "Low: critical only where these parameters were seen to differ between ranks.",
    "learning_rates_differ": "Low: weights that were compared later and are the same silence it. Only the rate of the"
    " optimizer that stepped last is compared, of its first parameter group above 0.",
    "independent_copies": "Low, where weights differ: a sweep that was started as one run. Where they are the same: only with"
    " equal losses and no collective, which no library that exchanges gradients unseen would leave.",
    "same_data": "Low: losses equal to the last bit by chance in one run of 10^9. Silent where the inputs of the model were seen"
    " to differ (a loss of all ranks' features) or never change (benchmarks), and without DDP. Where losses differ, as with"
    " dropout, 64 numbers of each input must have been equal whenever they were compared.",
    "trains_in_eval": "Middle: fine-tuning with frozen statistics after a phase in training mode is meant. Only for DDP models with"
    " torch's own dropout or BatchNorm.",
    "updates_skipped": "Low: a scale that finds its value skips 16 updates at most. Optimizers that handle the scale themselves"
    " (`fused=True`) are not seen to skip.",
    "learning_rate_zero": "Low: a warm-up that has been at 0 since the first step is a hint only.",
    "configuration_differs": "Middle: a hint, but for the versions of torch and Python and the script. What names a rank, a device,"
    " a host, a seed or a path is not compared.",
    "buffers_differ": "Middle: a hint. Compared only with `broadcast_buffers=False`.",
}
"""How likely a finding is wrong, or what it calls a fault is meant; only of those about the training itself."""

RUN = """RUN is a name, the beginning of an id, or nothing for the latest run; for some commands also `HOST:RUN`, a run on
another machine."""
METRICS = """What ddpmon measures of each rank, and by which word it is found: over columns, in the filter (`/`), in
charts (`m`), and as a metric of `ddpmon metrics` and `ddpmon export --format openmetrics`. Those of a step are means
over the last steps; the others are read once a second."""
FINDINGS = """The kinds of findings, in the order in which they are listed: what each means, what to do, and from which value
on it is one. A run that is well has none above `info`. The names are those of `kind` in `ddpmon report --format json`.
[Thresholds](../thresholds.md) has those that several kinds share."""

RECORDING = """Every table and column of [the recording](../recording.md). Times in µs are durations, or moments of
CLOCK_MONOTONIC on the rank's host. Columns marked "for ddpmon" may change without notice."""
SAME_COLUMNS = {"minutes": "seconds", "hours": "seconds", "scalar_hours": "scalar_minutes"}
"""Tables with the columns of another one."""


def command_page() -> str:
    """Each command's own help."""
    whole = click.Context(commands, info_name="ddpmon", **commands.context_settings)
    shown = {name: command for name, command in commands.commands.items() if not command.hidden}
    rows = [f"| [{name}](#{name}) | {command.get_short_help_str(WIDTH)} |" for name, command in shown.items()]
    parts = ["# Commands\n", f"{RUN}\n", MADE, "| command | does |\n| --- | --- |", *rows, ""]
    for name, command in shown.items():
        context = click.Context(command, whole, name, terminal_width=WIDTH, max_content_width=WIDTH)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def key_page() -> str:
    """The keys of each screen, those that all have first."""
    everywhere = [key for key in KEYS if set(key.views) == set(ViewName)]
    parts = ["# Keys\n", MADE, "## On every screen\n", *_key_rows(everywhere)]
    for name in ViewName:
        rows = [key for key in KEYS if name in key.views and key not in everywhere]
        view = DESCRIBED[name]
        parts += [
            f"## {view.title or name.title()}\n",
            *([f"{view.question}\n"] if view.question else []),
            *_key_rows(rows),
        ]
    return "\n".join(parts)


def _key_rows(keys: list[Key]) -> Iterator[str]:
    yield "| key | does |\n| --- | --- |"
    for key in keys:
        when = " (replays)" if key.replay else " (not in replays)" if key.replay is False else ""
        yield f"| `{key.shown.replace('|', chr(92) + '|')}` | {key.help.replace('|', chr(92) + '|')}{when} |"
    yield ""


def metric_page() -> str:
    """Every quantity that a rank has a number of."""
    head = (
        "# Quantities and metrics\n",
        f"{METRICS}\n",
        MADE,
        "| quantity | what it is | of | unit | column | filter | metric |\n| --- | --- | --- | --- | --- | --- | --- |",
    )
    return "\n".join([*head, *(_metric_row(row) for row in QUANTITIES.values())]) + "\n"


def _metric_row(row: Quantity) -> str:
    where = "a step" if row.where == STEP else row.where
    metric = row.metric_name + ('{{{}="{}"}}'.format(*row.metric_label) if row.metric_label else "")
    cells = (row.name, row.meaning, where, row.unit.words or "–", row.label or row.name, row.word or row.name)
    return f"| {' | '.join(cells)} | `{metric}` |"


def finding_page() -> str:
    """Each kind of finding: what it means, from when on it is one, what to do."""
    rows_of = runpy.run_path(str(Path(__file__).with_name("thresholds.py")))["rows_of"]
    parts = [
        "# Findings\n",
        f"{FINDINGS}\n",
        MADE,
    ]
    for kind in KINDS:
        own = None if kind.meaning else importlib.import_module(f"{ddpmon.analysis.kinds.__name__}.{kind.name}")
        parts += [
            f"## {kind.name}\n",
            f"{((own and own.__doc__) or kind.meaning).strip()}\n",
            f"**What to do.** {WHAT_TO_DO[kind.name]}\n",
        ]
        if kind.name in FALSE_ALARMS:
            parts.append(f"**False alarms.** {FALSE_ALARMS[kind.name]}\n")
        if own and (rows := list(rows_of(own))):
            parts += [*rows, ""]
    return "\n".join(parts)


def environment_page() -> str:
    """What people set, and what is set for ranks."""
    parts = ["# Environment variables\n", MADE]
    for heading, variables in (("What you may set", VARIABLES), ("What ddpmon sets for its own processes", INNER)):
        rows = [f"| `{name}` | {meaning} |" for name, meaning in variables.items()]
        parts += [f"## {heading}\n", "| variable | what it does |\n| --- | --- |", *rows, ""]
    return "\n".join(parts)


def table_page() -> str:
    """Each table and view of a recording, with its columns."""
    parts = ["# The recording's tables\n", f"{RECORDING}\n", MADE]
    for table, columns in (TABLES | VIEW_COLUMNS).items():
        key = f" Key: {', '.join(PRIMARY_KEYS[table])}." if table in PRIMARY_KEYS else ""
        same = f"The columns of `{SAME_COLUMNS[table]}`." if table in SAME_COLUMNS else ""
        about = f"{same or ('A view.' if table in VIEW_COLUMNS else '')}{key}".strip()
        parts += [f"## {table}\n", *([f"{about}\n"] if about else []), *(() if same else _column_rows(columns))]
    return "\n".join(parts)


def _column_rows(columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield a row per column. The sum, minimum and maximum of one quantity share a row."""
    yield "| column | type | meaning |\n| --- | --- | --- |"
    for column in columns:
        stem, _, statistic = column.name.rpartition("_us_")
        if stem and statistic in {"min", "max"}:
            continue
        name = f"{column.name}, _min, _max" if stem and statistic == "sum" else column.name
        yield f"| {name} | {column.kind.removesuffix(' PRIMARY KEY') or 'any'} | {column.meaning} |"
    yield ""


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": command_page,
    "environment.md": environment_page,
    "findings.md": finding_page,
    "keys.md": key_page,
    "metrics.md": metric_page,
    "tables.md": table_page,
}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (FOLDER / name).write_text(made().rstrip() + "\n")
